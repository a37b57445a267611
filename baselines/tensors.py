"""Tensors as requests describe them, and the files that they lie in."""

import mmap
import os

import numpy as np

from refusals import Refused

DTYPES = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(np.uint16),
    "F8_E4M3": np.dtype(np.uint8),
    "I32": np.dtype(np.int32),
    "I64": np.dtype(np.int64),
    "U8": np.dtype(np.uint8),
}


class Tensor:
    """A tensor as a request describes it; `steps` are its strides in elements, `strides` in bytes."""

    def __init__(self, fields):
        self.name, self.role, self.file = fields["name"], fields["role"], fields["file"]
        self.dtype = fields["dtype"]
        self.kind = DTYPES[self.dtype]
        self.shape, self.steps = tuple(fields["shape"]), tuple(fields["strides"])
        self.strides = tuple(step * self.kind.itemsize for step in self.steps)
        self.offset, self.span, self.guard = fields["offset"], fields["span"], fields["guard"]

    @property
    def written(self):
        """Whether the operator writes it."""
        return self.role != "in"

    @property
    def empty(self):
        """Whether it has no element."""
        return 0 in self.shape

    @property
    def reach(self):
        """Bytes from element 0 to the end of the last element."""
        if self.empty:
            return 0
        return sum((extent - 1) * step for extent, step in zip(self.shape, self.strides)) + self.kind.itemsize

    def fit(self, available):
        """Refuses storage that is too short for the shape and strides."""
        available = min(self.span, available)
        if self.reach > available:
            found = "{} bytes for shape {}".format(available, list(self.shape))
            raise Refused("storage_too_short", self.name, found, "at least {} bytes".format(self.reach))

    def over(self, buffer, offset):
        """The tensor as a NumPy array over `buffer`, element 0 at byte `offset`; inputs are read-only."""
        self.fit(len(buffer) - offset)
        array = np.ndarray(self.shape, self.kind, buffer, offset if self.span else 0, self.strides)
        array.flags.writeable = self.written
        return array


def map_files(tensors):
    """The files of tensors by path, mapped; two paths of one file share a mapping."""
    maps, known = {}, {}
    for tensor in tensors:
        if tensor.file in maps:
            continue
        with open(tensor.file, "r+b") as file:
            facts = os.fstat(file.fileno())
            identity = facts.st_dev, facts.st_ino
            if identity not in known:
                known[identity] = mmap.mmap(file.fileno(), 0)
            maps[tensor.file] = known[identity]
    return maps
