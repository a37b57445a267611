"""The C interface that both native timers share: structs, statuses, and what a status means in an answer.

Field by field as harness/timer/src/ffi describes it. Each struct begins with its size, and the timer refuses another.
"""

import ctypes
import os

OK, INVALID, DEVICE, TOO_SHORT, CAPACITY = 0, 1, 3, 5, 9
ROTATING = 0xFFFFFFFF
JUDGED = 2  # the phase of a sample that counts
CODES = {
    2: "plan-refused",
    4: "clock",
    TOO_SHORT: "sample-too-short",
    6: "unsettled",
    7: "device-poisoned",
    8: "no-samples",
}
I32, U32, U64, F64 = ctypes.c_int32, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_double


def struct(name, **fields):
    """A C struct."""
    return type(name, (ctypes.Structure,), {"_fields_": list(fields.items())})


def sized(made, **fields):
    """A struct that says its own size."""
    return made(size=ctypes.sizeof(made), **fields)


Plan = struct(
    "Plan",
    size=U32,
    sets=U32,
    samples=U32,
    rewarm_samples=U32,
    calls=U32,
    restore=U32,
    cache=U32,
    dwell=U32,
    reach_ns=U64,
    footprint_bytes=U64,
    evict_bytes=U64,
    last_level_cache_bytes=U64,
    warm_up_max_ns=U64,
    warm_up_drift=F64,
    warm_up_max_samples=U32,
    warm_up_window=U32,
)
Turn = struct("Turn", size=U32, samples=U32, one_set=U32, reserved=U32, slowdown=F64)
Sample = struct(
    "Sample", index=U32, phase=U32, first_set=U32, calls=U32, elapsed_ns=F64, region_ns=U64, event_reasons=U64
)
Report = struct(
    "Report",
    size=U32,
    status=I32,
    samples=U32,
    turn=U32,
    calls=U32,
    warm_up_samples=U32,
    step_ns=F64,
    empty_region_ns=F64,
    timed_ns=F64,
    region_ns=U64,
    untimed_ns=U64,
    wall_ns=U64,
    loaded_code=U64,
    message=ctypes.c_char * 1024,
)
CALLBACK = ctypes.PYFUNCTYPE(I32, ctypes.c_void_p, U32)


def load(path, prefix, functions, accepted):
    """Functions of the library by name, and why there are none; `accepted`: the version of the interface.

    PyDLL, so that the interpreter's lock is held over a timed region.
    """
    file = "lib{}.so".format(prefix.rstrip("_"))
    if not path:
        return None, "PROOFHOUSE_TIMER is not set; accepted: the path of {}".format(file)
    try:
        library = ctypes.PyDLL(os.fspath(path))
        found = getattr(library, prefix + "abi_version")()
        library = {name: getattr(library, prefix + name) for name in functions}
    except (OSError, AttributeError) as error:
        return None, "the native timer {!r} cannot be loaded: {}".format(path, error)
    if found != accepted:
        return None, "the native timer {!r} has interface {}, accepted: {}".format(path, found, accepted)
    library["close"].restype = None
    library["close"].argtypes = [ctypes.c_void_p]
    return library, ""


def text_of(report):
    """A report's text."""
    return report.message.decode("utf-8", "replace")


def findings(status, text, called_back):
    """Why there is no sample, as data; a failure of the timer or its device is raised.

    `called_back`: whether a callback failed, whose own exception tells more.
    """
    if status == DEVICE and not called_back:
        raise RuntimeError(text)
    if status == INVALID:
        pairs = [line.partition(": ") for line in text.splitlines()]
        return [{"code": code, "detail": detail} for code, _, detail in pairs]
    if status in CODES or status == DEVICE:
        return [{"code": CODES.get(status, "device"), "detail": text}]
    raise RuntimeError("native timer, status {}: {}".format(status, text))
