"""What the `torch` and `inductor` providers share: PyTorch, found or refused, and tensors over a case's memory."""

import warnings

import numpy as np
import torch

if not hasattr(torch, "set_num_threads"):
    raise SystemExit("PyTorch is not installed in this Python")

warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
DTYPES = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "I64": torch.int64,
}
F8_MAX = 448.0
SMALLEST_SCALE = 1 / (448 * 512)


def over(case, *names):
    """Tensors over the memory of a case, in the order of the names."""
    return [_over(case.tensors[name], case.dtypes[name]) for name in names]


def _over(array, dtype):
    storage = {"BF16": np.int16, "F8_E4M3": np.uint8}.get(dtype)
    if storage is None:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(storage)).view(DTYPES[dtype])


def use_threads(count):
    """Grants threads to PyTorch's own pool."""
    if torch.get_num_threads() != count:
        torch.set_num_threads(count)
