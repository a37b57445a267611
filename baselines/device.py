"""A case's memory on a device.

The files stay the exchange. Each file's part that holds a case's tensors, guards and gaps included, is mirrored on
the device, at addresses with the same residue, so that tensors keep their distances and what a call does out of
bounds comes back with the rest: the checker sees red zones, poison and changed inputs as it does on the processor.

`Memory` says what is copied when. The device itself (`torch_device.Cuda`) gives these primitives:
`allocate(size)` flat bytes that begin at a multiple of ALIGNMENT; `host(mapped, offset, size)` flat bytes of a mapped
file; `view(bytes, tensor)` the tensor with element 0 at the first byte; `copy(target, source)` of bytes or of views;
`settle()` waits for all work; `capture(run)`, `replay(graph)` and `churn(sizes)`.
"""

from refusals import Unsupported
from tensors import map_files

ALIGNMENT = 256
CHURNED = (1 << 10, 1 << 20, 32 << 20)  # also allocated, filled and freed between a capture and its replay


def same_uuid(left, right):
    """Whether two texts name one device: `GPU-` in front and the case of letters do not matter."""
    bare = [text.strip().lower() for text in (left, right)]
    bare = [text[4:] if text.startswith("gpu-") else text for text in bare]
    return bare[0] == bare[1] and bare[0] != ""


class Mirror:
    """A part of a mapped file, and the same bytes on the device. It begins at a multiple of ALIGNMENT, `low`."""

    def __init__(self, device, mapped, low, high):
        self.low = low - low % ALIGNMENT
        self.host = device.host(mapped, self.low, high - self.low)
        self.device = device.allocate(high - self.low)

    def of(self, side, tensor):
        """The bytes from a tensor's element 0 on, on one side."""
        return side[tensor.offset - self.low :]


def mirrors(tensors, device):
    """The mirror of each file, by path; a file has one however many tensors lie in it, or overlap there."""
    maps = map_files(tensors)
    found = {}
    for mapped in {id(mapped): mapped for mapped in maps.values()}.values():
        inside = [tensor for tensor in tensors if maps[tensor.file] is mapped]
        for tensor in inside:
            tensor.fit(len(mapped) - tensor.offset)
            if tensor.offset % tensor.kind.itemsize:
                raise Unsupported("{} lies at byte {}, between elements".format(tensor.name, tensor.offset))
        low = min(max(tensor.offset - tensor.guard, 0) for tensor in inside)
        high = max(tensor.offset + tensor.span + tensor.guard for tensor in inside)
        mirror = Mirror(device, mapped, min(low, len(mapped)), min(high, len(mapped)))
        found.update({path: mirror for path, other in maps.items() if other is mapped})
    return found


class Memory:
    """The tensors of a case, mirrored on the device."""

    def __init__(self, tensors, device):
        self.tensors, self.device, self.graph = tensors, device, None
        self.mirrors = mirrors(tensors, device)
        self.arrays, self.mapped, self.staged = {}, {}, {}
        for tensor in tensors:
            mirror = self.mirrors[tensor.file]
            self.arrays[tensor.name] = device.view(mirror.of(mirror.device, tensor), tensor)
            self.mapped[tensor.name] = device.view(mirror.of(mirror.host, tensor), tensor)

    def settle(self):
        """Waits for all work on the device."""
        self.device.settle()

    def sides(self):
        """Both sides of each mirror, once."""
        return [(mirror.device, mirror.host) for mirror in set(self.mirrors.values())]

    def load(self):
        """Brings the files' contents to the device: inputs, poison, gaps and guards."""
        for device, host in self.sides():
            self.device.copy(device, host)
        self.device.settle()

    def store(self):
        """Waits for the device and brings all of its contents to the files."""
        self.device.settle()
        for device, host in self.sides():
            self.device.copy(host, device)

    def stage(self):
        """Brings the files' contents to the device once, for all copies and refills that follow."""
        for mirror in set(self.mirrors.values()):
            if mirror not in self.staged:
                self.staged[mirror] = self.device.allocate(len(mirror.host))
            self.device.copy(self.staged[mirror], mirror.host)

    def original(self, tensor):
        """The staged bytes of a tensor, from its element 0 on."""
        mirror = self.mirrors[tensor.file]
        return mirror.of(self.staged[mirror], tensor)

    def copies(self):
        """Copies of all staged tensors in one allocation, in the order of the request and each with its residue, so that
        they lie alike in every process."""
        places, end = {}, 0
        for tensor in self.tensors:
            start = -(-end // ALIGNMENT) * ALIGNMENT + tensor.offset % ALIGNMENT
            places[tensor.name], end = start, start + tensor.span
        memory, arrays = self.device.allocate(end + ALIGNMENT), {}
        for tensor in self.tensors:
            start = places[tensor.name]
            self.device.copy(memory[start : start + tensor.span], self.original(tensor)[: tensor.span])
            arrays[tensor.name] = self.device.view(memory[start:], tensor)
        return arrays

    def refill(self, arrays):
        """Copies what the operator reads and was staged into private arrays, same pointers."""
        for tensor in self.tensors:
            if tensor.role != "out":
                self.device.copy(arrays[tensor.name], self.device.view(self.original(tensor), tensor))

    def publish(self, arrays):
        """Copies what was written in private arrays into the files, for the checker."""
        self.device.settle()
        for tensor in self.tensors:
            if tensor.written:
                self.device.copy(self.mapped[tensor.name], arrays[tensor.name])

    def capture(self, run):
        """Captures one call over the arrays; gives the number of nodes and the kernels."""
        self.graph = None
        self.load()
        self.graph, nodes, kernels = self.device.capture(run)
        return nodes, kernels

    def replay(self):
        """Replays the captured call on the files' contents; what else was allocated and freed must not matter."""
        if self.graph is None:
            raise RuntimeError("a replay before the capture")
        self.load()
        self.device.churn([len(device) for device, _ in self.sides()] + list(CHURNED))
        self.device.replay(self.graph)
        self.store()

    def close(self):
        """Lets go of the graph, which holds device memory of its own."""
        self.graph = None
