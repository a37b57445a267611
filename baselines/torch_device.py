"""The CUDA device through PyTorch: what device.py asks of a device, graphs included.

Only workers of which PROOFHOUSE_DEVICE asks for a device import this.
"""

import os
import sys
import traceback

import torch

import graph_nodes
from device import ALIGNMENT, Memory, same_uuid
from refusals import Unsupported

LOST = 70  # exit status of a worker whose device is lost
_CHURN_BYTE = 0x5A
DTYPES = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "I32": torch.int32,
    "I64": torch.int64,
    "U8": torch.uint8,
}
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def open_cuda(asked):
    """The device that has this UUID, which must be the only one that the process was given, or the first."""
    if not torch.cuda.is_available():
        sys.exit("PROOFHOUSE_DEVICE asks for {}, and PyTorch {} finds no CUDA device".format(asked, torch.__version__))
    found = torch.cuda.get_device_properties(0)
    if not same_uuid(str(found.uuid), asked):
        sys.exit("PROOFHOUSE_DEVICE asks for {}, and device 0 is {} ({})".format(asked, found.uuid, found.name))
    torch.cuda.set_device(0)
    return Cuda(torch.device("cuda", 0), {"kind": "cuda", "uuid": asked, "name": found.name})


class Cuda:
    """An open device."""

    graph = True

    def __init__(self, place, facts):
        self.place, self.facts, self.seen = place, facts, set()

    def memory(self, tensors):
        """The memory of a case."""
        return Memory(tensors, self)

    def kernels(self):
        """Kernels of every graph that was captured so far."""
        return sorted(self.seen)

    def allocate(self, size):
        """Flat bytes on the device; PyTorch begins each allocation at a multiple of 512."""
        memory = torch.empty(size, dtype=torch.uint8, device=self.place)
        if memory.data_ptr() % ALIGNMENT:
            raise RuntimeError("device memory begins at {:#x}, no multiple of {}".format(memory.data_ptr(), ALIGNMENT))
        return memory

    @staticmethod
    def host(mapped, offset, size):
        """Flat bytes of a mapped file."""
        return torch.frombuffer(mapped, dtype=torch.uint8, count=size, offset=offset)

    @staticmethod
    def view(memory, tensor):
        """A tensor with element 0 at the first byte of `memory`."""
        dtype = DTYPES[tensor.dtype]
        if tensor.empty:
            return torch.empty(tensor.shape, dtype=dtype, device=memory.device)
        return memory[: tensor.reach].view(dtype).as_strided(tensor.shape, tensor.steps)

    @staticmethod
    def copy(target, source):
        """Copies bits, whatever they mean as numbers."""
        bits = _BITS[target.element_size()]
        target.view(bits).copy_(source.view(bits))

    def settle(self):
        """Waits for all work on the device."""
        torch.cuda.synchronize(self.place)

    def churn(self, sizes):
        """Takes, fills and frees memory, and gives what is free back to the driver: a graph that depends on memory
        that nobody keeps for it fails afterwards."""
        taken = [torch.full((size,), _CHURN_BYTE, dtype=torch.uint8, device=self.place) for size in sizes]
        self.settle()
        del taken
        torch.cuda.empty_cache()

    def capture(self, run):
        """A graph of one call, the number of its nodes, and its kernels; `Unsupported` where capturing is refused."""
        stream = torch.cuda.Stream(self.place)
        with torch.cuda.stream(stream):
            run()  # what loads, compiles or tunes on a first call does so here
        self.settle()
        graph, failures = torch.cuda.CUDAGraph(keep_graph=True), []
        try:
            with torch.cuda.graph(graph, stream=stream):
                try:
                    run()
                except Exception as error:
                    failures.append(error)
                    raise
        except Exception as error:
            first = (failures + [error])[0]  # the end of a broken capture fails, too, and hides why it broke
            if isinstance(first, torch.OutOfMemoryError):
                raise first from None
            self.examine(error)
            line = (str(first).strip().splitlines() or [""])[0]
            raise Unsupported("one call cannot be captured: {}: {}".format(type(first).__name__, line)) from error
        nodes, kernels = graph_nodes.listing(graph.raw_cuda_graph())
        self.seen.update(kernels)
        graph.instantiate()
        self.settle()
        return graph, nodes, kernels

    def replay(self, graph):
        """Replays a graph."""
        graph.replay()
        self.settle()

    def examine(self, error):
        """Ends the process when an error left the device unusable: nothing that it says afterwards would be the fault
        of the case at hand."""
        if isinstance(error, torch.OutOfMemoryError):
            torch.cuda.empty_cache()
        try:
            self.settle()
            right = torch.ones(ALIGNMENT, device=self.place).sum().item() == ALIGNMENT
        except Exception:
            traceback.print_exc()
            right = False
        if not right:
            print("the device is lost after {}: {}".format(type(error).__name__, error), file=sys.stderr, flush=True)
            sys.stdout.flush()
            os._exit(LOST)  # an orderly end would run destructors against a dead context, which can hang
