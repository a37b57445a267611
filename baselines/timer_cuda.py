"""Timing on a GPU through the native timer, libproofhouse_timer_cuda.so: no provider times itself.

The library is the code that times Rust workers on a GPU, plans included (harness/timer-cuda). Its path is in
PROOFHOUSE_TIMER; without it a worker says that it cannot measure.

Everything runs on one stream of the timer's. Where the contract replays graphs, PyTorch captures the calls of a sample,
because what a call allocates must come from a pool that the graph keeps, and the timer replays the captured graph.
"""

import contextlib
import ctypes
import gc
import json
import math
import os
import sys
import time

import timer_abi
from refusals import Unsupported
from timer_abi import CALLBACK, CAPACITY, I32, JUDGED, OK, U32, U64, Plan, Report, Sample, Turn, sized

ABI_VERSION = 2
TURN_POISON = 0xA5
_TEXT_BYTES = 1 << 16
_CAPTURE = ctypes.PYFUNCTYPE(I32, ctypes.c_void_p, U32, U32, U32, U32, ctypes.POINTER(ctypes.c_void_p))
_FUNCTIONS = ("open", "plan", "warm", "warm_up", "turn", "told", "close")
_LAUNCH, _CACHE = {"eager": 0, "graph": 1}, {"hot": 0, "cold": 1}
_clock_ns = time.perf_counter_ns  # only accounts for a request as a whole; no sample comes from it

Setup = timer_abi.struct(
    "Setup",
    size=U32,
    launch=U32,
    stream=ctypes.c_void_p,
    l2_bytes=U64,
    enqueue=CALLBACK,
    restore=CALLBACK,
    capture=_CAPTURE,
    context=ctypes.c_void_p,
)
Cell = timer_abi.struct(
    "Cell",
    size=U32,
    in_place=U32,
    cache=U32,
    reserved=U32,
    footprint_bytes=U64,
    reuse_bytes=U64,
    min_sample_ns=timer_abi.F64,
)
_PATH = os.environ.get("PROOFHOUSE_TIMER", "")
_LIBRARY, _REASON = timer_abi.load(_PATH, "proofhouse_timer_cuda_", _FUNCTIONS, ABI_VERSION)


class _Loads:
    """Counts the kernels that Triton loads. It hands them to the driver, where the dynamic loader, whose count the timer
    takes, does not see them."""

    def __init__(self):
        self.count, self.watched = 0, False

    def watch(self):
        """Begins to count, once there is a Triton."""
        runtime = getattr(getattr(sys.modules.get("triton"), "knobs", None), "runtime", None)
        hooks = getattr(runtime, "kernel_load_start_hook", None)
        if not self.watched and hasattr(hooks, "add"):
            hooks.add(self.loaded)
            self.watched = True
        return self.count

    def loaded(self, *_facts, **_named):
        """One kernel more."""
        self.count += 1


_loads = _Loads()


def available():
    """Whether the native timer is here."""
    return _LIBRARY is not None


def reason():
    """Why it is not."""
    return _REASON


class _TorchStream:
    """A stream of PyTorch's, and what a measurement does on it."""

    def __init__(self):
        import torch

        self.torch, self.stream = torch, torch.cuda.Stream()
        self.raw = self.stream.cuda_stream

    def current(self):
        """A context in which calls enqueue on this stream."""
        return self.torch.cuda.stream(self.stream)

    def settle(self):
        """Waits for all work on the device."""
        self.torch.cuda.synchronize()

    @staticmethod
    def clone(tensor):
        """A copy of a tensor."""
        return tensor.clone()

    def fill(self, tensor, byte):
        """Fills a tensor's elements with a byte."""
        tensor.view(self.torch.uint8).fill_(byte)

    def capture(self, enqueue):
        """A graph of what `enqueue` enqueues, to be kept as long as it is replayed, and its address."""
        graph, failures = self.torch.cuda.CUDAGraph(keep_graph=True), []
        try:
            with self.torch.cuda.graph(graph, stream=self.stream):
                try:
                    enqueue()
                except Exception as error:
                    failures.append(error)
                    raise
        except Exception as error:
            first = (failures + [error])[0]  # the end of a broken capture fails, too, and hides why it broke
            if isinstance(first, self.torch.OutOfMemoryError):
                raise first from None
            line = (str(first).strip().splitlines() or [""])[0]
            raise Unsupported("calls cannot be captured: {}: {}".format(type(first).__name__, line)) from error
        return graph, graph.raw_cuda_graph()


class Measurement:
    """A case under the native timer, over private buffer sets.

    `prepared` gives `stage()`, `private_set() -> (case, run)`, `refill(arrays)`, `publish(arrays)`, `modules()`,
    `memory.device`, and `tensors` with `name`, `role` and `span`. `run` enqueues one call on PyTorch's current stream.
    """

    def __init__(self, prepared, request, stream=_TorchStream):
        self.prepared, self.stream = prepared, stream()
        self.handle, self.failure = ctypes.c_void_p(), None
        self.cases, self.runs, self.graphs = [], [], []
        self.in_place = [tensor.name for tensor in prepared.tensors if tensor.role == "in_out"]
        self.outputs = [tensor.name for tensor in prepared.tensors if tensor.role == "out"]
        self.contents, self.calls, self.sets, self.dwell, self.rewarm = {}, 0, 1, 1, 0
        self.callbacks = CALLBACK(self.enqueue), CALLBACK(self.restore), _CAPTURE(self.capture)
        self.report = sized(Report)
        self.footprint = max(1, sum(tensor.span for tensor in prepared.tensors))
        self.launch = request.get("launch", "eager")
        self.silent = True

    def close(self):
        """Closes the native timer, then lets go of the graphs and sets that it used."""
        _LIBRARY["close"](self.handle)
        self.handle = ctypes.c_void_p()
        self.callbacks = None
        self.cases, self.runs, self.graphs, self.contents = [], [], [], {}

    # ---- what the timer calls back; 1 says that it was done

    def enqueue(self, _context, index):
        """One call on a set."""
        try:
            self.runs[index // self.dwell]()
            return 1
        except BaseException as error:
            self.failure = error
            return 0

    def restore(self, _context, index):
        """Gives a set the original contents of the tensors that are changed in place."""
        try:
            self.copy_contents(self.cases[index // self.dwell].tensors)
            return 1
        except BaseException as error:
            self.failure = error
            return 0

    def capture(self, _context, first, start, sets, calls, graph):
        """A graph of `calls` calls that go round the sets from `start` on and begin with `first`."""
        try:
            order = (start + (first - start + call) % sets for call in range(calls))
            rotation = [self.runs[index // self.dwell] for index in order]
            kept, graph[0] = self.stream.capture(lambda: [run() for run in rotation])
            self.graphs.append(kept)
            return 1
        except BaseException as error:
            self.failure = error
            return 0

    # ---- buffer sets

    def copy_contents(self, tensors):
        """Enqueues copies of the original contents."""
        for name, contents in self.contents.items():
            self.prepared.memory.device.copy(tensors[name], contents)

    def grow(self, count):
        """Makes private sets until there are `count`, each called once: what a set's first call loads, compiles or
        tunes must be done before calls are captured."""
        while len(self.runs) < count:
            case, run = self.prepared.private_set()
            if not self.cases:
                self.contents = {name: self.stream.clone(case.tensors[name]) for name in self.in_place}
            self.cases.append(case)
            self.runs.append(run)
            run()
            self.copy_contents(case.tensors)
        self.stream.settle()

    def ready(self, request):
        """Renews the contents of the sets, over which outputs are then those of the contents before; else poisons what
        will be published."""
        if request.get("refresh"):
            self.prepared.stage()
            for case in self.cases:
                self.prepared.refill(case.tensors)
            for name, contents in self.contents.items():
                self.prepared.memory.device.copy(contents, self.cases[0].tensors[name])
        elif request["publish"]:
            for case in self.cases:
                for name in self.outputs:
                    self.stream.fill(case.tensors[name], TURN_POISON)
        self.stream.settle()

    # ---- requests

    def take(self, request):
        """Answers a `measure` request."""
        start = _clock_ns()
        self.failure = None
        with self.stream.current(), _without_collection():
            if request["phase"] == "warm":
                gc.collect()
                taken = self.warm(request)
            else:
                self.ready(request)
                taken = self.turn(request)
            if self.failure is not None:
                raise self.failure
            last = taken.pop("last_set", None)
            if request["publish"] and last is not None:
                self.prepared.publish(self.cases[last // self.dwell].tensors)
        taken.update(calls=self.calls, sets=self.sets // self.dwell, timed=math.fsum(taken["elapsed_ns"]))
        taken["wall"] = _clock_ns() - start
        return taken

    def ask(self, function, *arguments):
        """A function of the library on this timer; gives the status."""
        return _LIBRARY[function](self.handle, *arguments, ctypes.byref(self.report))

    def warm(self, request):
        """Makes the sets of the plan, calibrates and warms."""
        before = self.prepared.modules()
        self.prepared.stage()
        self.grow(1)
        enqueue, restore, capture = self.callbacks
        setup = sized(Setup, launch=_LAUNCH[self.launch], stream=self.stream.raw)
        setup.enqueue, setup.restore, setup.capture = enqueue, restore, capture
        status = _LIBRARY["open"](ctypes.byref(setup), ctypes.byref(self.handle), ctypes.byref(self.report))
        if status == OK:
            status = self.choose(request)
        if status == OK:
            self.grow(self.sets // self.dwell)
            status = self.ask("warm")
            self.calls = self.report.calls
        samples = (Sample * max(1, self.report.warm_up_samples))()
        if status == OK:
            status = self.ask("warm_up", samples, len(samples))
        modules = [before, self.prepared.modules()]
        if status != OK:
            return self.untrusted(status, modules)
        settled = [sample for sample in samples if sample.calls == self.calls]
        return {**self.taken(settled, 0, modules), "reuse": self.told()["reuse"]}

    def choose(self, request):
        """Lets the timer choose a plan; gives the status."""
        cell, plan = sized(Cell, footprint_bytes=self.footprint, reuse_bytes=request["footprint"]), sized(Plan)
        cell.in_place, cell.cache = bool(self.in_place), _CACHE[request["cache"]]
        cell.min_sample_ns = request["min_sample_ns"]
        status = self.ask("plan", ctypes.byref(cell), ctypes.byref(plan))
        if status == OK:
            self.graphs.clear()  # the timer forgot those that it guessed with
            self.sets, self.dwell, self.rewarm = plan.sets, max(1, plan.dwell), plan.rewarm_samples
        return status

    def turn(self, request):
        """Takes one turn."""
        turn = sized(Turn, samples=request["samples"], one_set=timer_abi.ROTATING)
        turn.slowdown = request.get("slowdown", 0)
        samples = (Sample * (request["samples"] + self.rewarm))()
        before = _loads.watch()
        status = self.ask("turn", ctypes.byref(turn), samples, len(samples))
        # A turn during which the timer's count changes is invalid; Triton's loads are beside it.
        modules = [self.report.loaded_code + loads for loads in (before, _loads.watch())]
        if status != OK:
            return self.untrusted(status, modules)
        kept = samples[: self.report.samples]
        rewarm = math.fsum(sample.elapsed_ns for sample in kept if sample.phase != JUDGED)
        judged = [sample for sample in kept if sample.phase == JUDGED]
        taken = self.taken(judged, self.report.untimed_ns + rewarm, modules)
        told = self.told()
        taken.update((name, told[name]) for name in ("enqueue_ns", "telemetry", "kernels", "reuse", "retaken"))
        return taken

    def told(self):
        """What the timer tells of the last turn beside its samples."""
        report, length, room = sized(Report), U64(), _TEXT_BYTES
        while True:
            text = ctypes.create_string_buffer(room)
            status = _LIBRARY["told"](self.handle, text, U64(room), ctypes.byref(length), ctypes.byref(report))
            if status != CAPACITY:
                break
            room = length.value
        if status != OK:
            raise RuntimeError("native timer, status {}: {}".format(status, timer_abi.text_of(report)))
        told = json.loads(text.raw[: length.value])
        if told["telemetry_missing"] and self.silent:
            self.silent = False
            print("no telemetry: " + told["telemetry_missing"], file=sys.stderr)
        return told

    def taken(self, samples, untimed_ns, modules):
        """The answer's fields for samples that can be trusted."""
        last = samples[-1]
        return {
            "elapsed_ns": [sample.elapsed_ns for sample in samples],
            "untimed": untimed_ns,
            "modules": modules,
            "invalid": [],
            "last_set": (last.first_set + last.calls - 1) % self.sets,
        }

    def untrusted(self, status, modules):
        """The answer's fields when there is no sample: reasons as data, or the callback's own failure."""
        invalid = timer_abi.findings(status, timer_abi.text_of(self.report), self.failure is not None)
        return {"elapsed_ns": [], "untimed": 0, "modules": modules, "invalid": invalid}


@contextlib.contextmanager
def _without_collection():
    """Collects no garbage until the end. A warm-up has collected what there was; to do it in each turn would take longer
    than the turn, and hide from the supervisor's clock what else takes time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
