"""Defects of time: code that is loaded or compiled while it is timed, and clocks and a timer that are replaced."""

import ctypes
import os
import shutil
import tempfile
import time

import timer_cuda
import torch

from norm import Parts, capturing

LATE = 3  # the turn, counted from 1, in which something new is loaded
_turns = [0]


def count_turns():
    """Counts the turns of this process, as code beside the timer can."""
    turn = timer_cuda.Measurement.turn

    def counted(self, request):
        _turns[0] += 1
        return turn(self, request)

    timer_cuda.Measurement.turn = counted


def once_late(act):
    """A function that acts once, in the turn LATE."""
    done = []

    def call():
        if _turns[0] == LATE and not done and not capturing():
            done.append(True)
            act()

    return call


def loads_code(case):
    """Loads a shared object in the middle of a turn."""
    parts = Parts(case)
    copy = os.path.join(tempfile.mkdtemp(), "late.so")
    shutil.copy(os.environ["PROOFHOUSE_TIMER"], copy)  # any library does that was not loaded from there
    late = once_late(lambda: ctypes.CDLL(copy))

    def run():
        late()
        parts.write()

    return run


def compiles(case):
    """Compiles a kernel in the middle of a turn, when its compiler and its launcher have been there for long."""
    import late_kernel

    parts = Parts(case)
    scratch = torch.zeros(1, dtype=torch.int32, device=parts.x.device)
    late_kernel.store(scratch, 1)
    late = once_late(lambda: late_kernel.store(scratch, 2))

    def run():
        late()
        parts.write()

    return run


def patch_clocks():
    """Replaces the clocks that a timer in Python would have: no sample comes from them."""
    for name in ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns"):
        setattr(time, name, lambda: 0)
    torch.cuda.Event.elapsed_time = lambda self, other: 1e-6


def scale_samples(factor):
    """A function that replaces the native timer's turn by one that scales every sample."""

    def plant():
        turn = timer_cuda._LIBRARY["turn"]

        def scaled(handle, asked, samples, capacity, report):
            status = turn(handle, asked, samples, capacity, report)
            for sample in samples:
                sample.elapsed_ns *= factor
            return status

        timer_cuda._LIBRARY["turn"] = scaled

    return plant


BINDINGS = {"loads-code-on-call-n": loads_code, "jit-on-call-n": compiles}
PLANTED = {
    "loads-code-on-call-n": count_turns,
    "jit-on-call-n": count_turns,
    "clocks-patched": patch_clocks,
    "timer-patched": scale_samples(0.02),
    "zero-time": scale_samples(0.0),
    "impossible-time": scale_samples(0.01),
}
