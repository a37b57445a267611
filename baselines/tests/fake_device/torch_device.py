"""A device that is no device, in the place of the real torch_device: its memory is NumPy's, apart from the files.

FAKE_UUID is the device that is here.
"""

import os
import sys

import numpy as np

from device import ALIGNMENT, Memory, same_uuid
from refusals import Unsupported

LOST = 70


class StickyError(RuntimeError):
    """An error after which the device does nothing any more."""


def open_cuda(asked):
    """The device, where it is the one that is asked for."""
    found = os.environ["FAKE_UUID"]
    if not same_uuid(found, asked):
        sys.exit("PROOFHOUSE_DEVICE asks for {}, and device 0 is {}".format(asked, found))
    return Device({"kind": "cuda", "uuid": asked, "name": "a fake"})


class Device:
    """The primitives that device.py asks for, and a graph that is the call itself."""

    graph = True

    def __init__(self, facts):
        self.facts, self.seen = facts, set()

    def memory(self, tensors):
        return Memory(tensors, self)

    def kernels(self):
        return sorted(self.seen)

    def allocate(self, size):
        memory = np.full(size + ALIGNMENT, 0xDD, np.uint8)
        return memory[-memory.ctypes.data % ALIGNMENT :][:size]

    def host(self, mapped, offset, size):
        return np.frombuffer(mapped, np.uint8, size, offset)

    def view(self, memory, tensor):
        return np.ndarray(tensor.shape, tensor.kind, memory.data if len(memory) else b"", 0, tensor.strides)

    def copy(self, target, source):
        np.copyto(target, source)

    def settle(self):
        pass

    def churn(self, sizes):
        self.churned = [np.full(size, 0x5A, np.uint8).sum() for size in sizes]

    def capture(self, run):
        run()
        if getattr(run, "refuses_capture", False):
            raise Unsupported("one call cannot be captured: it reads a value back")
        self.seen.add("norm grid=(1,1,1) block=(32,1,1)")
        return run, 2, ["norm grid=(1,1,1) block=(32,1,1)"]

    def replay(self, graph):
        graph()

    def examine(self, error):
        if isinstance(error, StickyError) or isinstance(error.__cause__, StickyError):
            print("the device is lost", file=sys.stderr, flush=True)
            os._exit(LOST)
