"""A case's memory on the processor: its arrays lie in the mapped files themselves."""

import numpy as np

from refusals import Unsupported
from tensors import map_files

LINE = 64  # private copies keep their place within a cache line


class Host:
    """The processor, where no device is asked for."""

    facts, graph = None, False

    @staticmethod
    def memory(tensors):
        """The memory of a case."""
        return Memory(tensors)

    @staticmethod
    def kernels():
        """Kernels seen in device graphs: none."""
        return []

    @staticmethod
    def examine(_error):
        """An error leaves the processor as it was."""


class Memory:
    """The tensors of a case, in the mapped files."""

    def __init__(self, tensors):
        self.tensors, self.maps = tensors, map_files(tensors)
        self.arrays = {tensor.name: tensor.over(self.maps[tensor.file], tensor.offset) for tensor in tensors}

    def load(self):
        """Brings the files' contents to the arrays: they are the same memory."""

    def store(self):
        """Brings the arrays' contents to the files: they are the same memory."""

    def settle(self):
        """Waits for nothing: calls on the processor have ended when they return."""

    def copies(self):
        """Copies of all tensors in memory of our own, with the same layout."""
        arrays = {}
        for tensor in self.tensors:
            start = tensor.offset % LINE
            memory = np.empty(start + tensor.span + LINE, dtype=np.uint8)
            start += -memory.ctypes.data % LINE
            mapped = np.frombuffer(self.maps[tensor.file], np.uint8, tensor.span, tensor.offset)
            memory[start : start + tensor.span] = mapped
            arrays[tensor.name] = tensor.over(memory.data, start)
        return arrays

    def refill(self, arrays):
        """Copies what the operator reads from the files into private arrays, same pointers."""
        for tensor in self.tensors:
            if tensor.role != "out":
                target = arrays[tensor.name]
                writeable, target.flags.writeable = target.flags.writeable, True
                np.copyto(target, self.arrays[tensor.name])
                target.flags.writeable = writeable

    def publish(self, arrays):
        """Copies what was written in private arrays into the files, for the checker."""
        for tensor in self.tensors:
            if tensor.written:
                np.copyto(self.arrays[tensor.name], arrays[tensor.name])

    def capture(self, _run=None):
        """There is no graph on a processor."""
        raise Unsupported("a graph needs a device; this worker runs on the processor")

    replay = capture

    def close(self):
        """Lets go of nothing: the arrays end with the case."""
