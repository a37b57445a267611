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

import timer_abi
from timer_abi import JUDGED, OK, TOO_SHORT, Plan, Report, Sample, Turn, sized

ABI_VERSION = 2
MOST_SETS = 2048
MOST_SET_BYTES = 2 << 30
MOST_CALLS = 1 << 24
REUSE_FACTOR = 5
GUESS_CALLS = 32
GUESS_NS = 20_000_000
HEADROOM = 1.5
WINDOW = 8
TURN_POISON = 0xA5
_clock_ns = time.perf_counter_ns  # only guesses how many buffer sets to make; no sample comes from it
_FUNCTIONS = ("open", "warm_up", "turn", "close")
_LIBRARY, _REASON = timer_abi.load(os.environ.get("PROOFHOUSE_TIMER", ""), "proofhouse_timer_", _FUNCTIONS, ABI_VERSION)


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
        self.callbacks = timer_abi.CALLBACK(self.call), timer_abi.CALLBACK(self.restore)
        self.report = sized(Report)
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
        plan = sized(Plan, footprint_bytes=footprint, samples=1, sets=1, calls=MOST_CALLS)
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
        """Renews the contents of the sets, over which outputs are then those of the contents before; else poisons what
        will be published."""
        if request.get("refresh"):
            mapped = self.prepared.case.tensors
            for name, contents in self.contents.items():
                np.copyto(contents, mapped[name])
            for case in self.cases:
                self.prepared.refill(case.tensors)
        elif request["publish"]:
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
        while status == TOO_SHORT and self.plan.sets < self.fit:  # the guess was too slow: more sets, more calls
            self.plan.sets = self.plan.calls = min(2 * self.plan.sets, self.fit)
            self.grow(self.plan.sets)
            status = _LIBRARY["open"](plan, call, restore, None, handle, report)
        samples = (Sample * max(1, self.report.warm_up_samples))()
        if status == OK:
            status = _LIBRARY["warm_up"](self.handle, samples, len(samples), report)
        modules = [before, self.prepared.modules()]
        if status != OK:
            return self.untrusted(status, modules)
        settled = [sample for sample in samples if sample.calls == self.report.calls]
        return self.taken(settled, 0, modules)

    def turn(self, request):
        """Takes one turn."""
        turn = sized(Turn, samples=request["samples"], one_set=timer_abi.ROTATING)
        turn.slowdown = request.get("slowdown", 0)
        samples = (Sample * (request["samples"] + self.plan.rewarm_samples))()
        report = ctypes.byref(self.report)
        status = _LIBRARY["turn"](self.handle, ctypes.byref(turn), samples, len(samples), report)
        modules = [self.report.loaded_code] * 2  # a turn during which it changes is invalid
        if status != OK:
            return self.untrusted(status, modules)
        kept = samples[: self.report.samples]
        rewarm = math.fsum(sample.elapsed_ns for sample in kept if sample.phase != JUDGED)
        judged = [sample for sample in kept if sample.phase == JUDGED]
        return self.taken(judged, self.report.untimed_ns + rewarm, modules)

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
        invalid = timer_abi.findings(status, timer_abi.text_of(self.report), self.failure is not None)
        return {"elapsed_ns": [], "untimed": 0, "modules": modules, "invalid": invalid}
