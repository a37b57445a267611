"""A worker on the fake device, with one planted behavior of rms_norm, named by PLANTED."""

import os

from protocol import Unsupported, serve

import numpy as np
from numpy.lib.stride_tricks import as_strided
from torch_device import StickyError


def planted(case):
    """Binds the behavior."""
    x, w, y = case.arrays("x", "w", "y")
    kind, kept = os.environ["PLANTED"], []
    if kind == "declines":
        raise Unsupported("not here")

    def run():
        if kind == "sticky":
            raise StickyError("an illegal memory access was encountered")
        if kind == "sticky-declines":
            raise Unsupported("it cannot be captured") from StickyError("an illegal memory access was encountered")
        if kind == "raises":
            raise MemoryError("out of memory")
        if kind == "writes-nothing":
            return
        source = x
        if kind == "remembers":
            kept.append(x.copy())
            source = kept[0]
        inverse = 1 / np.sqrt((source * source).mean(-1, keepdims=True) + case.params["eps"])
        np.multiply(source * inverse, w, out=y)
        if kind == "writes-its-input":
            x[0, 0] += 1
        if kind == "writes-in-front":
            as_strided(y, (2,), (-y.itemsize,))[1] = 0
        if kind == "writes-between-rows":
            as_strided(y, (y.shape[1] + 1,), (y.itemsize,))[-1] = 0

    run = Call(run)
    run.refuses_capture = kind == "reads-back"
    return run


class Call:
    """A call that can say something about itself."""

    def __init__(self, run):
        self.run = run

    def __call__(self):
        self.run()


serve("planted", {"rms_norm": (["F32"], planted)}, version="1", devices=("cuda",))
