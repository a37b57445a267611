"""What providers on PyTorch's tensors share: PyTorch, found or refused, and tensors over a case's memory."""

import warnings

import numpy as np
import torch

from refusals import Unsupported

if not hasattr(torch, "set_num_threads"):
    raise SystemExit("PyTorch is not installed in this Python")

warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
DTYPES = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "I32": torch.int32,
    "I64": torch.int64,
    "U8": torch.uint8,
}
F8_MAX = 448.0
SMALLEST_SCALE = 1 / (448 * 512)


def over(case, *names):
    """Tensors over the memory of a case, in the order of the names."""
    return [_over(case.tensors[name], case.dtypes[name]) for name in names]


def dense(case, *names):
    """The same, for a library that takes rows without gaps and at least one of them."""
    tensors = over(case, *names)
    if not all(tensor.is_contiguous() for tensor in tensors):
        raise Unsupported("it takes contiguous tensors")
    if any(tensor.numel() == 0 for tensor in tensors):
        raise Unsupported("it takes at least one row")
    return tensors


def empty(beside, *shape, dtype=torch.float32):
    """Memory on the device of another tensor."""
    return torch.empty(shape, dtype=dtype, device=beside.device)


def architecture():
    """What a GPU's code was built for, e.g. `sm_90`."""
    return "sm_{}{}".format(*torch.cuda.get_device_capability())


def quietly(bind):
    """A binding whose calls record nothing for a backward pass."""

    def bind_quietly(case):
        with torch.inference_mode():
            return torch.inference_mode()(bind(case))

    return bind_quietly


def _over(array, dtype):
    if isinstance(array, torch.Tensor):
        return array
    storage = {"BF16": np.int16, "F8_E4M3": np.uint8}.get(dtype)
    if storage is None:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(storage)).view(DTYPES[dtype])


def use_threads(count):
    """Grants threads to PyTorch's own pool."""
    if torch.get_num_threads() != count:
        torch.set_num_threads(count)
