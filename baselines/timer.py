"""Timing through the native timer, libproofhouse_timer.so: no provider times itself.

The library is the one that times Rust workers. Its path is in PROOFHOUSE_TIMER; without it a worker says that it
cannot measure. How many buffer sets a case gets follows the same rules as in Rust workers (harness/worker).
"""

import ctypes
import gc
import glob
import math
import os
import time

import numpy as np

ABI_VERSION = 1
MOST_SETS = 2048
MOST_SET_BYTES = 2 << 30
MOST_CALLS = 1 << 24
REUSE_FACTOR = 5
GUESS_CALLS = 32
GUESS_NS = 20_000_000
HEADROOM = 1.5
WINDOW = 8
TURN_POISON = 0xA5
_ROTATING = 0xFFFFFFFF
_OK, _INVALID, _DEVICE, _TOO_SHORT = 0, 1, 3, 5
_CODES = {
    2: "plan-refused",
    4: "clock",
    _TOO_SHORT: "sample-too-short",
    6: "unsettled",
    7: "device-poisoned",
    8: "no-samples",
}
_U32, _U64, _F64 = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_double
_clock_ns = time.perf_counter_ns  # only guesses how many buffer sets to make; no sample comes from it


def _struct(name, **fields):
    """A C struct whose first field is its own size."""
    made = type(name, (ctypes.Structure,), {"_fields_": list(fields.items())})
    return made


_Plan = _struct(
    "_Plan",
    size=_U32,
    sets=_U32,
    samples=_U32,
    rewarm_samples=_U32,
    calls=_U32,
    restore=_U32,
    cache=_U32,
    reserved=_U32,
    reach_ns=_U64,
    footprint_bytes=_U64,
    evict_bytes=_U64,
    last_level_cache_bytes=_U64,
    warm_up_max_ns=_U64,
    warm_up_drift=_F64,
    warm_up_max_samples=_U32,
    warm_up_window=_U32,
)
_Turn = _struct("_Turn", size=_U32, samples=_U32, one_set=_U32, reserved=_U32, slowdown=_F64)
_Sample = _struct(
    "_Sample",
    index=_U32,
    phase=_U32,
    first_set=_U32,
    calls=_U32,
    elapsed_ns=_F64,
    region_ns=_U64,
    event_reasons=_U64,
)
_Report = _struct(
    "_Report",
    size=_U32,
    status=ctypes.c_int32,
    samples=_U32,
    turn=_U32,
    calls=_U32,
    warm_up_samples=_U32,
    step_ns=_F64,
    empty_region_ns=_F64,
    timed_ns=_F64,
    region_ns=_U64,
    untimed_ns=_U64,
    wall_ns=_U64,
    loaded_code=_U64,
    message=ctypes.c_char * 1024,
)
_CALLBACK = ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, _U32)


def _load():
    """The library and why there is none; PyDLL, so that the interpreter's lock is held over a timed region."""
    path = os.environ.get("PROOFHOUSE_TIMER", "")
    if not path:
        return None, "PROOFHOUSE_TIMER is not set; accepted: the path of libproofhouse_timer.so"
    try:
        library = ctypes.PyDLL(path)
        found = library.proofhouse_timer_abi_version()
        functions = ("open", "warm_up", "turn", "close")
        library = {name: getattr(library, "proofhouse_timer_" + name) for name in functions}
    except (OSError, AttributeError) as error:
        return None, "the native timer {!r} cannot be loaded: {}".format(path, error)
    if found != ABI_VERSION:
        return None, "the native timer {!r} has interface {}, accepted: {}".format(path, found, ABI_VERSION)
    library["close"].restype = None
    library["close"].argtypes = [ctypes.c_void_p]
    return library, ""


_LIBRARY, _REASON = _load()


def available():
    """Whether the native timer is here."""
    return _LIBRARY is not None


def reason():
    """Why it is not."""
    return _REASON


def last_level_cache_bytes():
    """Bytes of the last-level cache; 0 when the system does not tell."""
    levels = [(0, 0)]
    for folder in glob.glob("/sys/devices/system/cpu/cpu0/cache/index*"):
        try:
            text = {name: open(os.path.join(folder, name)).read().strip() for name in ("type", "level", "size")}
        except OSError:
            continue
        if text["type"] != "Instruction":
            units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
            number, scale = text["size"].rstrip("KMG"), units.get(text["size"][-1:], 1)
            levels.append((int(text["level"]), int(number) * scale))
    return max(levels)[1]


class Measurement:
    """A case under the native timer, over private buffer sets.

    `prepared` gives `private_set() -> (case, run)`, `publish(arrays)`, and `tensors` with `name`, `role` and `span`.
    """

    def __init__(self, prepared, request):
        self.prepared = prepared
        self.handle = ctypes.c_void_p()
        self.failure = None
        self.fit = 0  # the most sets that may be made when each is used once a sample; 0 when calls rotate
        self.cases, self.runs = [], []
        self.in_place = [tensor.name for tensor in prepared.tensors if tensor.role == "in_out"]
        self.outputs = [tensor.name for tensor in prepared.tensors if tensor.role == "out"]
        self.grow(1)
        self.contents = {name: self.cases[0].tensors[name].copy() for name in self.in_place}
        self.callbacks = _CALLBACK(self.call), _CALLBACK(self.restore)
        self.report = _Report(size=ctypes.sizeof(_Report))
        self.plan = self.choose(request)
        self.grow(self.plan.sets)

    def close(self):
        """Closes the native timer and lets go of the sets, whose callbacks refer back to here."""
        _LIBRARY["close"](self.handle)
        self.handle = ctypes.c_void_p()
        self.callbacks = None
        self.cases, self.runs, self.contents = [], [], {}

    def grow(self, count):
        """Makes private sets until there are `count`."""
        while len(self.runs) < count:
            case, run = self.prepared.private_set()
            self.cases.append(case)
            self.runs.append(run)

    def call(self, _context, index):
        """The timed callback: one call on a set; 1 says that it was done."""
        try:
            self.runs[index]()
            return 1
        except BaseException as error:
            self.failure = error
            return 0

    def restore(self, _context, index):
        """Gives a set the original contents of the tensors that are changed in place."""
        try:
            tensors = self.cases[index].tensors
            for name, contents in self.contents.items():
                np.copyto(tensors[name], contents)
            return 1
        except BaseException as error:
            self.failure = error
            return 0

    def guess_call_ns(self):
        """A guess of one call's duration: the least of a few, because the first ones are slow."""
        least, begun = math.inf, _clock_ns()
        for _ in range(GUESS_CALLS):
            self.restore(None, 0)
            start = _clock_ns()
            self.runs[0]()
            end = _clock_ns()
            least = min(least, end - start)
            if end - begun > GUESS_NS:
                break
        return max(least, 1)

    def choose(self, request):
        """The plan: how many sets and calls, from the contract and the guess."""
        footprint = max(1, sum(tensor.span for tensor in self.prepared.tensors))
        cache = last_level_cache_bytes()
        reach = max(1, math.ceil(request["min_sample_ns"]))
        plan = _Plan(size=ctypes.sizeof(_Plan), footprint_bytes=footprint, samples=1, sets=1, calls=MOST_CALLS)
        plan.reach_ns, plan.restore = reach, bool(self.in_place)
        plan.warm_up_max_samples, plan.warm_up_window = max(request["samples"], WINDOW), WINDOW
        hot = request["cache"] == "hot"
        plan.cache, plan.rewarm_samples = (0, 1) if hot else (1, 0)
        if hot and not self.in_place:
            return plan
        needed = 0 if hot else max(request["footprint"], REUSE_FACTOR * cache)
        rotation = needed // footprint + 2
        if not hot and not self.in_place and rotation <= MOST_SETS and rotation * footprint <= MOST_SET_BYTES:
            plan.sets = rotation
            return plan
        room = cache if hot else MOST_SET_BYTES
        self.fit = min(max(room // footprint, 1), MOST_SETS)
        wanted = max(1, math.ceil(HEADROOM * reach / self.guess_call_ns()))
        plan.sets = plan.calls = min(wanted, self.fit)
        if wanted > self.fit:
            plan.reach_ns = 0
        plan.evict_bytes = needed
        return plan

    def take(self, request):
        """Answers a `measure` request."""
        start = _clock_ns()
        self.failure = None
        if request["phase"] == "turn":
            self.ready(request)
        gc.disable()
        try:
            taken = self.warm(request) if request["phase"] == "warm" else self.turn(request)
        finally:
            gc.enable()
        if self.failure is not None:
            raise self.failure
        elapsed = taken["elapsed_ns"]
        if request["publish"] and elapsed:
            self.prepared.publish(self.cases[taken.pop("last_set")].tensors)
        taken.pop("last_set", None)
        taken.update(calls=self.report.calls, sets=self.plan.sets, timed=math.fsum(elapsed))
        taken["wall"] = _clock_ns() - start
        return taken

    def ready(self, request):
        """Renews the contents of the sets and poisons what will be published."""
        if request.get("refresh"):
            mapped = self.prepared.case.tensors
            for name, contents in self.contents.items():
                np.copyto(contents, mapped[name])
            for case in self.cases:
                self.prepared.refill(case.tensors)
        if request["publish"]:
            for case in self.cases:
                for name in self.outputs:
                    case.tensors[name].view(np.uint8)[...] = TURN_POISON

    def warm(self, request):
        """Calibrates and warms."""
        gc.collect()
        before = self.prepared.modules()
        call, restore = self.callbacks
        report = ctypes.byref(self.report)
        handle, plan = ctypes.byref(self.handle), ctypes.byref(self.plan)
        status = _LIBRARY["open"](plan, call, restore, None, handle, report)
        while status == _TOO_SHORT and self.plan.sets < self.fit:  # the guess was too slow: more sets, more calls
            self.plan.sets = self.plan.calls = min(2 * self.plan.sets, self.fit)
            self.grow(self.plan.sets)
            status = _LIBRARY["open"](plan, call, restore, None, handle, report)
        samples = (_Sample * max(1, self.report.warm_up_samples))()
        if status == _OK:
            status = _LIBRARY["warm_up"](self.handle, samples, len(samples), report)
        modules = [before, self.prepared.modules()]
        if status != _OK:
            return self.untrusted(status, modules)
        settled = [sample for sample in samples if sample.calls == self.report.calls]
        return self.taken(settled, 0, modules)

    def turn(self, request):
        """Takes one turn."""
        turn = _Turn(size=ctypes.sizeof(_Turn), samples=request["samples"], one_set=_ROTATING)
        turn.slowdown = request.get("slowdown", 0)
        samples = (_Sample * (request["samples"] + self.plan.rewarm_samples))()
        report = ctypes.byref(self.report)
        status = _LIBRARY["turn"](self.handle, ctypes.byref(turn), samples, len(samples), report)
        modules = [self.report.loaded_code] * 2  # a turn during which it changes is invalid
        if status != _OK:
            return self.untrusted(status, modules)
        kept = samples[: self.report.samples]
        rewarm = math.fsum(sample.elapsed_ns for sample in kept if sample.phase != 2)
        return self.taken([sample for sample in kept if sample.phase == 2], self.report.untimed_ns + rewarm, modules)

    def taken(self, samples, untimed_ns, modules):
        """The answer's fields for samples that can be trusted."""
        last = samples[-1]
        return {
            "elapsed_ns": [sample.elapsed_ns for sample in samples],
            "untimed": untimed_ns,
            "modules": modules,
            "invalid": [],
            "last_set": (last.first_set + last.calls - 1) % self.plan.sets,
        }

    def untrusted(self, status, modules):
        """The answer's fields when there is no sample: reasons as data, or the callback's own failure."""
        text = self.report.message.decode("utf-8", "replace")
        if status == _DEVICE and self.failure is None:
            raise RuntimeError(text)
        if status == _INVALID:
            pairs = [line.partition(": ") for line in text.splitlines()]
            invalid = [{"code": code, "detail": detail} for code, _, detail in pairs]
        elif status in _CODES or status == _DEVICE:
            invalid = [{"code": _CODES.get(status, "device"), "detail": text}]
        else:
            raise RuntimeError("native timer, status {}: {}".format(status, text))
        return {"elapsed_ns": [], "untimed": 0, "modules": modules, "invalid": invalid}
