"""Defects that cost a worker its device or its process, and a worker on another device than the one it was given."""

import ctypes

import torch

from norm import Parts

FREED_BYTES = 64 << 20  # so large that the driver gives the addresses back, too
ANOTHER = "GPU-00000000-0000-0000-0000-000000000000"


class Memory:
    """Device memory by its address, as PyTorch takes it."""

    def __init__(self, address, size):
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 2}


def freed_memory():
    """A tensor over memory that the driver has back."""
    driver, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
    for status in (
        driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(FREED_BYTES)),
        0 if address.value else 1,
    ):
        if status:
            raise MemoryError("cuMemAlloc gave {}".format(status))
    tensor = torch.as_tensor(Memory(address.value, FREED_BYTES), device="cuda")
    if tensor.data_ptr() != address.value:
        raise RuntimeError("PyTorch copied memory that was to be shared")
    if driver.cuMemFree_v2(address):
        raise RuntimeError("cuMemFree failed")
    return tensor


def illegal_access(case):
    """Writes to memory that was freed."""
    parts = Parts(case)

    def run():
        freed_memory().fill_(1)
        parts.write()

    return run


def device_assert(case):
    """Fails an assertion in a kernel: an index out of range."""
    parts = Parts(case)

    def run():
        few = torch.zeros(4, device=parts.x.device)
        few[torch.full((1,), 1 << 20, dtype=torch.int64, device=parts.x.device)] += 1
        parts.write()

    return run


def hung_kernel(case):
    """Enqueues a kernel that runs for years."""
    parts = Parts(case)

    def run():
        torch.cuda._sleep(1 << 60)
        parts.write()

    return run


def device_index_swap():
    """Says, as it would be, that the first device is another one than was asked for."""
    import torch_device

    opened = torch_device.open_cuda

    def another(asked):
        place = opened(asked)
        place.facts = {**place.facts, "uuid": ANOTHER}
        return place

    torch_device.open_cuda = another


BINDINGS = {"illegal-access": illegal_access, "device-assert": device_assert, "hung-kernel": hung_kernel}
PLANTED = {"device-index-swap": device_index_swap}
