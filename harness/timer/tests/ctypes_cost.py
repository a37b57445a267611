"""What a Python callback costs inside a timed region, by the timer itself.

Usage: python3 harness/timer/tests/ctypes_cost.py [path of libproofhouse_timer.so]
Also the shortest complete example of a Python caller; it fails when the interface differs.
"""

import ctypes
import sys

U32, U64, F64 = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_double


class Plan(ctypes.Structure):
    _fields_ = [
        ("size", U32), ("sets", U32), ("samples", U32), ("rewarm_samples", U32), ("calls", U32),
        ("restore", U32), ("cache", U32), ("reserved", U32), ("reach_ns", U64),
        ("footprint_bytes", U64), ("evict_bytes", U64), ("last_level_cache_bytes", U64),
        ("warm_up_max_ns", U64), ("warm_up_drift", F64), ("warm_up_max_samples", U32),
        ("warm_up_window", U32),
    ]


class Sample(ctypes.Structure):
    _fields_ = [
        ("index", U32), ("phase", U32), ("first_set", U32), ("calls", U32), ("elapsed_ns", F64),
        ("region_ns", U64), ("event_reasons", U64),
    ]


class Report(ctypes.Structure):
    _fields_ = [
        ("size", U32), ("status", ctypes.c_int32), ("samples", U32), ("turn", U32), ("calls", U32),
        ("warm_up_samples", U32), ("step_ns", F64), ("empty_region_ns", F64), ("timed_ns", F64),
        ("region_ns", U64), ("untimed_ns", U64), ("wall_ns", U64), ("loaded_code", U64),
        ("message", ctypes.c_char * 1024),
    ]


def measure(library, function_type, function, restore=False):
    """Median nanoseconds of one call, or the status and text of a refusal."""
    callback = function_type(function)
    plan = Plan(
        size=ctypes.sizeof(Plan), sets=1, samples=31, calls=1 << 16, reach_ns=2_000_000,
        footprint_bytes=64, restore=restore,
    )
    samples, report = (Sample * 31)(), Report(size=ctypes.sizeof(Report))
    status = library.proofhouse_timer_measure(
        ctypes.byref(plan), callback, None, None, samples, 31, ctypes.byref(report)
    )
    if status != 0:
        return status, report.message.decode()
    return 0, sorted(sample.elapsed_ns / sample.calls for sample in samples)[15]


def raises(context, set_index):
    raise ValueError("planted")


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "target/release/libproofhouse_timer.so"
    for name, loader, maker in [
        ("PyDLL ", ctypes.PyDLL, ctypes.PYFUNCTYPE),
        ("CDLL  ", ctypes.CDLL, ctypes.CFUNCTYPE),
    ]:
        library = loader(path)
        assert library.proofhouse_timer_abi_version() == 2
        function_type = maker(ctypes.c_int32, ctypes.c_void_p, U32)
        status, found = measure(library, function_type, lambda context, set_index: 1)
        assert status == 0, found
        print(f"{name} empty callback: {found:.0f} ns a call")
    status, text = measure(library, function_type, lambda context, set_index: 0)
    assert status == 3 and "returned 0" in text, (status, text)
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    status, text = measure(library, function_type, raises)
    sys.unraisablehook = hook
    assert status == 3, (status, text)
    print("a callback that fails or raises gives no samples")


if __name__ == "__main__":
    main()
