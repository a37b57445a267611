"""A worker with one planted behavior of rms_norm, named by PLANTED; the tests of the tests and of the loop."""

import os
import time

from protocol import Refused, Unsupported, serve

import numpy as np


def norm(case):
    """The right answer."""
    x, w, y = case.arrays("x", "w", "y")
    return x, w, y, lambda: np.copyto(y, x / np.sqrt((x * x).mean(-1, keepdims=True) + case.params["eps"]) * w)


def planted(case):
    """Binds the behavior."""
    x, w, y, right = norm(case)
    kind = os.environ["PLANTED"]
    if kind == "unsupported":
        raise Unsupported("rows of this kind are not done here")

    def run():
        if kind == "raises":
            raise ValueError("planted")
        if kind == "refuses" or (kind == "refuses-when-checked" and case.checked):
            raise Refused("not_finite", "x", "NaN", "numbers")
        if kind == "writes-nothing" or (kind == "idle-when-timed" and case is not case.shared["first"]):
            return
        right()
        if kind == "writes-its-input":
            x[...] = 0
        elif kind == "prints":
            print("noise", flush=True)
        elif kind == "scales":
            np.multiply(y, np.float32(1.01), out=y)
        elif kind == "shifts-a-row":
            y[...] = np.roll(y, 1, axis=0)
        elif kind == "one-nan":
            y[-1, -1] = np.nan
        elif kind == "drifts":
            case.shared["calls"] = case.shared.get("calls", 0) + 1
            time.sleep(1e-3 * 2 ** min(case.shared["calls"], 9))  # far more than a busy machine adds or hides
        elif kind == "fails-when-timed" and case is not case.shared["first"]:
            raise ValueError("planted in the timed region")

    case.shared.setdefault("first", case)
    return run


serve("planted", {"rms_norm": (["F32"], planted)}, version="1", refusals=True)
