"""The worker's side of Proofhouse's protocol, for providers written in Python: standard library and numpy only.

A provider is a map from operator names to the dtypes it runs and a function that binds a case:

    from protocol import serve

    def rms_norm(case):
        x, weight, y = case.arrays("x", "weight", "y")
        def run():
            ...                      # one call: reads x and weight, writes y
        return run

    serve("mine", {"rms_norm": (["F32"], rms_norm)}, version="1")

Binding is where to compile, choose and allocate; `run` is what is checked and timed. A case is bound once for the
tensors that the checker sees and once for every private buffer set of a measurement. docs/workers.md describes the
messages. Import this module before anything that a provider brings: it takes hold of the clock-free native timer and
of its own socket first.
"""

import hashlib
import importlib
import importlib.metadata
import json
import os
import platform
import socket
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor

from refusals import Refused, Unsupported
from tensors import DTYPES, Tensor

PROTOCOL = 1
MAX_LINE = 16 << 20

_dumps, _loads, _environ = json.dumps, json.loads, dict(os.environ)
DEVICE, _, _name = _environ.get("PROOFHOUSE_DEVICE", "cpu").partition(":")  # `cpu`, or `cuda:GPU-...`
_TIMERS = {"cpu": "timer", "cuda": "timer_cuda"}
if DEVICE not in _TIMERS:
    sys.exit("PROOFHOUSE_DEVICE asks for {!r}; accepted: cpu, cuda:UUID".format(DEVICE))
_timer = importlib.import_module(_TIMERS[DEVICE])


def digest(path):
    """The sha256 of a file; None where it cannot be read."""
    found = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for piece in iter(lambda: file.read(1 << 20), b""):
                found.update(piece)
    except OSError:
        return None
    return found.hexdigest()


class ProtocolError(Exception):
    """The other side broke the protocol; the worker ends."""


class Case:
    """One case, bound to one set of arrays.

    `name`, `operator`, `dtype`; `dims` and `params` by name; `dtypes` and `tensors` (numpy arrays with the layout of
    the case: BF16 as uint16, F8_E4M3 as uint8; PyTorch's tensors on a device) by tensor name; `checked` tells whether
    values are to be checked; `shared` is a dict that all bindings of the case share, for what is compiled once;
    `threads` is the number of threads that the contract grants.
    """

    def __init__(self, request, shared, tensors):
        self.name, self.operator, self.dtype = request["case"], request["operator"], request["dtype"]
        self.dims, self.params, self.shared, self.tensors = request["dims"], request["params"], shared, tensors
        self.dtypes = {fields["name"]: fields["dtype"] for fields in request["tensors"]}
        self.checked = False
        self.threads = int(_environ.get("PROOFHOUSE_THREADS", "1"))

    def arrays(self, *names):
        """The arrays of these tensors, in this order."""
        return [self.tensors[name] for name in names]


class _Prepared:
    """A prepared case: its memory, what runs on it, and the private buffer sets."""

    def __init__(self, request, bind, place):
        self.request, self.bind, self.shared = request, bind, {}
        self.tensors = [Tensor(fields) for fields in request["tensors"]]
        self.memory = place.memory(self.tensors)
        self.memory.load()  # a binding may try what it compiled on the case's own values
        self.case = Case(request, self.shared, self.memory.arrays)
        self.run = bind(self.case)
        self.memory.settle()  # what went wrong in the binding is this case's fault
        self.measurement = None

    def check(self, checked):
        """One call on the files' contents."""
        self.case.checked = checked
        self.memory.load()
        self.run()
        self.memory.store()

    def private_set(self):
        """A copy of all tensors in memory of our own with the same layout, and what runs on it."""
        case = Case(self.request, self.shared, self.memory.copies())
        return case, self.bind(case)

    def close(self):
        """Lets go of what refers back to here."""
        self.memory.close()
        self.end_measurement()

    def end_measurement(self):
        """Drops the private sets."""
        if self.measurement is not None:
            self.measurement.close()
            self.measurement = None

    def stage(self):
        """Brings the files' contents to the device, for the private sets that are made or refilled after it."""
        self.memory.stage()

    def refill(self, arrays):
        """Copies what the operator reads from the mapped file into a private set, same pointers."""
        self.memory.refill(arrays)

    def publish(self, arrays):
        """Copies written tensors into the mapped file, for the checker."""
        self.memory.publish(arrays)

    @staticmethod
    def modules():
        """How many files are mapped as code."""
        return len(mapped_libraries())


class _Worker:
    """The loop over requests."""

    def __init__(self, provider, operators, hello, witness, place):
        self.provider, self.operators, self.hello, self.witness = provider, operators, hello, witness
        self.place = place
        self.cases, self.digests = {}, {}
        self.nonce = _environ["PROOFHOUSE_NONCE"]
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(_environ["PROOFHOUSE_SOCKET"])
        self.lines = self.socket.makefile("rb")

    def say(self, seq, verb, fields):
        """Sends one answer."""
        line = {"nonce": self.nonce, "seq": seq, "provider": self.provider, "verb": verb}
        line.update(fields)
        self.socket.sendall(_dumps(line, separators=(",", ":"), allow_nan=False).encode() + b"\n")

    def hear(self, expected):
        """Receives one request; it must be whole, short enough, JSON, and have the expected number."""
        line = self.lines.readline(MAX_LINE + 1)
        if not line.endswith(b"\n"):
            raise ProtocolError("the line is longer than {} bytes or the socket closed before bye".format(MAX_LINE))
        try:
            request = _loads(line)
        except ValueError as error:
            raise ProtocolError("not JSON: {!r}".format(line[:200])) from error
        if not isinstance(request, dict) or request.get("seq") != expected or not isinstance(request.get("verb"), str):
            raise ProtocolError("expected request {}, found {!r}".format(expected, line[:200]))
        return request

    def loop(self):
        """Answers requests until bye."""
        self.say(0, "hello", self.hello)
        seq = 0
        while True:
            seq += 1
            request = self.hear(seq)
            if request["verb"] == "bye":
                self.say(seq, "bye", {})
                return
            self.say(seq, *self.answer(request))

    def answer(self, request):
        """The answer's verb and fields; what goes wrong becomes an answer, too."""
        case = request.get("case")
        try:
            handle = self.HANDLERS.get(request["verb"])
            if handle is None:
                return "failed", {"detail": "unknown verb {!r}".format(request["verb"])}
            return handle(self, request)
        except Refused as refusal:
            prepared = self.cases.get(case)
            operator = request.get("operator") or (prepared.request["operator"] if prepared else "")
            error = {"kind": refusal.kind, "operator": operator, "argument": refusal.argument}
            error.update(found=refusal.found, accepted=refusal.accepted)
            return "refused", {"case": case, "error": error}
        except Unsupported as reason:
            self.place.examine(reason)  # what is declined after a device's error may be that error's doing
            return "unsupported", {"case": case, "reason": str(reason)}
        except Exception as error:
            traceback.print_exc()
            self.place.examine(error)
            return "failed", {"detail": "{}: {}".format(type(error).__name__, error)}

    def prepared(self, request):
        """The prepared case that a request names."""
        if request["case"] not in self.cases:
            raise KeyError("case {!r} is not prepared".format(request["case"]))
        return self.cases[request["case"]]

    def prepare(self, request):
        """Maps the tensors and binds the operator."""
        dtypes, bind = self.operators.get(request["operator"], ([], None))
        if request["dtype"] not in dtypes:
            raise Unsupported("{} in {} is not among its operators".format(request["operator"], request["dtype"]))
        self.forget(request["case"])
        self.cases[request["case"]] = _Prepared(request, bind, self.place)
        return "prepared", {"case": request["case"]}

    def check(self, request):
        """Runs the operator once in the mapped tensors."""
        self.prepared(request).check(request["checked"])
        return "checked", {"case": request["case"]}

    def capture(self, request):
        """Captures one call over the tensors of `check` in a graph."""
        nodes, kernels = self.prepared(request).memory.capture(self.prepared(request).run)
        return "captured", {"case": request["case"], "nodes": nodes, "kernels": kernels}

    def replay(self, request):
        """Replays the captured call on the files' contents."""
        self.prepared(request).memory.replay()
        return "replayed", {"case": request["case"]}

    def measure(self, request):
        """Warms up or takes a turn, in the native timer."""
        prepared = self.prepared(request)
        if not _timer.available():
            raise Unsupported(_timer.reason())
        if request.get("launch", "eager") == "graph" and not self.place.graph:
            raise Unsupported("a graph needs a device; this worker runs on the processor")
        if request["phase"] == "warm":
            prepared.end_measurement()
            prepared.measurement = _timer.Measurement(prepared, request)
        if prepared.measurement is None:
            raise RuntimeError("a turn before the warm-up of case {!r}".format(request["case"]))
        measured = prepared.measurement.take(request)
        if measured["invalid"]:
            self.place.examine(RuntimeError(measured["invalid"][0]["detail"]))
        echo = {name: request[name] for name in ("case", "phase", "block", "position")}
        return "measured", {**echo, **measured}

    def say_witness(self, _request):
        """Says what is mapped and imported."""
        paths = mapped_libraries()
        new = [path for path in paths if path not in self.digests]
        with ThreadPoolExecutor(max_workers=min(16, os.cpu_count() or 1)) as pool:  # a GPU's libraries are gigabytes
            self.digests.update(zip(new, pool.map(digest, new)))
        libraries = [{"name": os.path.basename(path), "sha256": self.digests[path]} for path in paths]
        fields = {"libraries": libraries, "packages": self.hello["packages"]}
        fields["kernels"] = self.place.kernels()
        fields.update(self.witness())
        return "witnessed", fields

    def release(self, request):
        """Forgets a case."""
        self.prepared(request)
        self.forget(request["case"])
        return "released", {"case": request["case"]}

    def forget(self, name):
        """Drops a case, if it is there."""
        if name in self.cases:
            self.cases.pop(name).close()

    HANDLERS = {
        "prepare": prepare,
        "check": check,
        "capture": capture,
        "replay": replay,
        "measure": measure,
        "witness": say_witness,
        "release": release,
    }


def mapped_libraries():
    """Paths of the files that this process maps as code, in order."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        rows = (line.rstrip("\n").split(None, 5) for line in maps)
        return sorted({row[5] for row in rows if len(row) == 6 and "x" in row[1] and row[5].startswith("/")})


def versions(packages):
    """Installed versions by package name."""
    return {name: importlib.metadata.version(name) for name in packages}


def open_place(provider, devices):
    """Where the cases' memory lies: the processor, or the device that PROOFHOUSE_DEVICE names."""
    if DEVICE not in devices:
        sys.exit("{} runs on {}; PROOFHOUSE_DEVICE asks for {}".format(provider, " and ".join(devices), DEVICE))
    if DEVICE == "cpu":
        return importlib.import_module("host").Host()
    return importlib.import_module("torch_device").open_cuda(_name)


def serve(
    provider,
    operators,
    version,
    packages=("numpy",),
    strided=True,
    refusals=False,
    witness=dict,
    devices=("cpu",),
):
    """Connects, says hello and answers requests until bye; then the process ends with status 0.

    `provider`: the id of `provider.toml`. `operators`: name to (dtypes, bind). `packages`: distributions whose
    versions are reported. `strided`: whether `run` honors strides and offsets. `refusals`: whether invalid inputs
    raise `Refused`. `witness`: a function that gives further fields of `witnessed`, e.g. `dispatch`. `devices`: what
    it runs on; on `cuda` the tensors of a case are PyTorch's, and `run` enqueues on PyTorch's current stream.
    """
    place = open_place(provider, devices)
    hello = {
        "protocol": PROTOCOL,
        "version": version,
        "pid": os.getpid(),
        "language": "python " + platform.python_version(),
        "packages": versions(packages),
        "operators": {name: list(dtypes) for name, (dtypes, _) in operators.items()},
        "capabilities": {
            "measure": _timer.available(),
            "refusals": refusals,
            "strided": strided,
            "checker": False,
            "refresh": True,
            "graph": place.graph,
        },
    }
    if place.facts:
        hello["device"] = place.facts
    if not _timer.available():
        print("measure is off: " + _timer.reason(), file=sys.stderr)
    try:
        _Worker(provider, operators, hello, witness, place).loop()
    except (ProtocolError, OSError) as error:
        sys.exit("the protocol ended early: {}".format(error))
