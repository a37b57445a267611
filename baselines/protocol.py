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
import importlib.metadata
import json
import mmap
import os
import platform
import socket
import sys
import traceback

import numpy as np

import timer as _timer

PROTOCOL = 1
MAX_LINE = 16 << 20
DTYPES = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(np.uint16),
    "F8_E4M3": np.dtype(np.uint8),
    "I32": np.dtype(np.int32),
    "I64": np.dtype(np.int64),
    "U8": np.dtype(np.uint8),
}

_dumps, _loads, _environ = json.dumps, json.loads, dict(os.environ)


class Unsupported(Exception):
    """The provider does not do this case; the reason is the exception's text."""


class Refused(Exception):
    """A typed refusal of an invalid input."""

    def __init__(self, kind, argument, found, accepted):
        super().__init__("{}: {}; found {}, accepted: {}".format(argument, kind, found, accepted))
        self.kind, self.argument, self.found, self.accepted = kind, argument, str(found), str(accepted)


class ProtocolError(Exception):
    """The other side broke the protocol; the worker ends."""


class Tensor:
    """A tensor as a request describes it."""

    def __init__(self, fields):
        self.name, self.role, self.file = fields["name"], fields["role"], fields["file"]
        self.dtype = fields["dtype"]
        self.kind = DTYPES[self.dtype]
        self.shape = tuple(fields["shape"])
        self.strides = tuple(step * self.kind.itemsize for step in fields["strides"])
        self.offset, self.span = fields["offset"], fields["span"]

    @property
    def written(self):
        """Whether the operator writes it."""
        return self.role != "in"

    def over(self, buffer, offset):
        """The tensor as an array over `buffer`, element 0 at byte `offset`; inputs are read-only."""
        reach = sum((extent - 1) * step for extent, step in zip(self.shape, self.strides)) + self.kind.itemsize
        available = min(self.span, len(buffer) - offset)
        if 0 not in self.shape and reach > available:
            found = "{} bytes for shape {}".format(available, list(self.shape))
            raise Refused("storage_too_short", self.name, found, "at least {} bytes".format(reach))
        array = np.ndarray(self.shape, self.kind, buffer, offset if self.span else 0, self.strides)
        array.flags.writeable = self.written
        return array


class Case:
    """One case, bound to one set of arrays.

    `name`, `operator`, `dtype`; `dims` and `params` by name; `dtypes` and `tensors` (numpy arrays with the layout of
    the case: BF16 as uint16, F8_E4M3 as uint8) by tensor name; `checked` tells whether values are to be checked;
    `shared` is a dict that all bindings of the case share, for what is compiled once; `threads` is the number of
    threads that the contract grants.
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
    """A prepared case: the mapped tensors, what runs on them, and the private buffer sets."""

    def __init__(self, request, bind):
        self.request, self.bind, self.shared = request, bind, {}
        self.tensors = [Tensor(fields) for fields in request["tensors"]]
        self.maps = {}
        for tensor in self.tensors:
            if tensor.file not in self.maps:
                with open(tensor.file, "r+b") as file:
                    self.maps[tensor.file] = mmap.mmap(file.fileno(), 0)
        arrays = {tensor.name: tensor.over(self.maps[tensor.file], tensor.offset) for tensor in self.tensors}
        self.case = Case(request, self.shared, arrays)
        self.run = bind(self.case)
        self.measurement = None

    def private_set(self):
        """A copy of all tensors in memory of our own with the same layout, and what runs on it."""
        arrays = {}
        for tensor in self.tensors:
            start = tensor.offset % 64
            memory = np.empty(start + tensor.span + 64, dtype=np.uint8)
            start += -memory.ctypes.data % 64
            mapped = np.frombuffer(self.maps[tensor.file], np.uint8, tensor.span, tensor.offset)
            memory[start : start + tensor.span] = mapped
            arrays[tensor.name] = tensor.over(memory.data, start)
        case = Case(self.request, self.shared, arrays)
        return case, self.bind(case)

    def close(self):
        """Lets go of what refers back to here."""
        if self.measurement is not None:
            self.measurement.close()
            self.measurement = None

    def refill(self, arrays):
        """Copies what the operator reads from the mapped file into a private set, same pointers."""
        for tensor in self.tensors:
            if tensor.role != "out":
                target = arrays[tensor.name]
                writeable, target.flags.writeable = target.flags.writeable, True
                np.copyto(target, self.case.tensors[tensor.name])
                target.flags.writeable = writeable

    @staticmethod
    def modules():
        """How many files are mapped as code."""
        return len(mapped_libraries())

    def publish(self, arrays):
        """Copies written tensors into the mapped file, for the checker."""
        for tensor in self.tensors:
            if tensor.written:
                np.copyto(self.case.tensors[tensor.name], arrays[tensor.name])


class _Worker:
    """The loop over requests."""

    def __init__(self, provider, operators, hello, witness):
        self.provider, self.operators, self.hello, self.witness = provider, operators, hello, witness
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
            return "unsupported", {"case": case, "reason": str(reason)}
        except Exception as error:
            traceback.print_exc()
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
        self.cases[request["case"]] = _Prepared(request, bind)
        return "prepared", {"case": request["case"]}

    def check(self, request):
        """Runs the operator once in the mapped tensors."""
        prepared = self.prepared(request)
        prepared.case.checked = request["checked"]
        prepared.run()
        return "checked", {"case": request["case"]}

    def measure(self, request):
        """Warms up or takes a turn, in the native timer."""
        prepared = self.prepared(request)
        if not _timer.available():
            raise Unsupported(_timer.reason())
        if request["phase"] == "warm":
            prepared.close()
            prepared.measurement = _timer.Measurement(prepared, request)
        if prepared.measurement is None:
            raise RuntimeError("a turn before the warm-up of case {!r}".format(request["case"]))
        measured = prepared.measurement.take(request)
        echo = {name: request[name] for name in ("case", "phase", "block", "position")}
        return "measured", {**echo, **measured}

    def say_witness(self, _request):
        """Says what is mapped and imported."""
        libraries = [{"name": os.path.basename(path), "sha256": self.digest(path)} for path in mapped_libraries()]
        fields = {"libraries": libraries, "packages": self.hello["packages"], "kernels": []}
        fields.update(self.witness())
        return "witnessed", fields

    def digest(self, path):
        """The sha256 of a mapped file; None where it cannot be read."""
        if path not in self.digests:
            try:
                with open(path, "rb") as file:
                    self.digests[path] = hashlib.sha256(file.read()).hexdigest()
            except OSError:
                self.digests[path] = None
        return self.digests[path]

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


def serve(provider, operators, version, packages=("numpy",), strided=True, refusals=False, witness=dict):
    """Connects, says hello and answers requests until bye; then the process ends with status 0.

    `provider`: the id of `provider.toml`. `operators`: name to (dtypes, bind). `packages`: distributions whose
    versions are reported. `strided`: whether `run` honors strides and offsets. `refusals`: whether invalid inputs
    raise `Refused`. `witness`: a function that gives further fields of `witnessed`, e.g. `dispatch`.
    """
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
        },
    }
    if not _timer.available():
        print("measure is off: " + _timer.reason(), file=sys.stderr)
    try:
        _Worker(provider, operators, hello, witness).loop()
    except (ProtocolError, OSError) as error:
        sys.exit("the protocol ended early: {}".format(error))
