"""The `liger` provider: Liger-Kernel's Triton kernels, launched with its settings over the case's own memory.

Its functions allocate their outputs; their kernels take any address, so they are launched here as those functions do
and nothing is copied. The casting mode is the one that rounds once ("gemma"), as the contract says. The gate and the
value of silu_and_mul are read from the one tensor that holds both.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from protocol import Unsupported, serve, versions  # noqa: E402

import torch  # noqa: E402
from torch_tensors import architecture, empty, over, quietly  # noqa: E402

import triton  # noqa: E402
from liger_kernel.ops import fused_add_rms_norm as added  # noqa: E402
from liger_kernel.ops import rms_norm as normed  # noqa: E402
from liger_kernel.ops import swiglu  # noqa: E402
from liger_kernel.ops.utils import calculate_settings  # noqa: E402

WIDEST = 65536
ONCE_ROUNDED = normed._str_to_casting_mode["gemma"]
FEW_COLUMNS, MANY_ROWS, ROWS_A_BLOCK = 256, 4096 * 8, 16  # where Liger takes several rows a block


def settings(width):
    """Liger's block size and number of warps for a row."""
    if width > WIDEST:
        raise Unsupported("it takes rows of at most {} elements".format(WIDEST))
    block, warps = calculate_settings(width)
    return {"BLOCK_SIZE": block, "num_warps": warps}


def some_rows(tensor):
    """The number of rows, which must not be zero."""
    if not len(tensor):
        raise Unsupported("it takes at least one row")
    return len(tensor)


def rms_norm(case):
    """y = x / rms(x) * w."""
    x, w, y = over(case, "x", "w", "y")
    rows, width = some_rows(x), x.shape[1]
    chosen = {"elementwise_affine": True, **settings(width)}
    tensors = (y, y.stride(0), x, x.stride(0), w, w.stride(0), empty(x, rows), 1)
    numbers = (width, case.params["eps"], 0.0, ONCE_ROUNDED)
    if chosen["BLOCK_SIZE"] > FEW_COLUMNS or rows < MANY_ROWS:
        kernel = normed._rms_norm_forward_kernel[(rows,)]
        return lambda: kernel(*tensors, *numbers, **chosen)
    kernel = normed._block_rms_norm_forward_kernel[(triton.cdiv(rows, ROWS_A_BLOCK),)]
    return lambda: kernel(*tensors, rows, *numbers, BLOCK_ROW=ROWS_A_BLOCK, **chosen)


def add_rms_norm(case):
    """residual += x; x = residual / rms(residual) * w. A row is read whole before anything of it is written."""
    x, residual, w = over(case, "x", "residual", "w")
    rows, width = some_rows(x), x.shape[1]
    tensors = (x, x.stride(0), residual, residual.stride(0), x, x.stride(0), residual, residual.stride(0))
    tensors += (w, w.stride(0), empty(x, rows), 1)
    numbers, chosen = (width, case.params["eps"], 0.0, ONCE_ROUNDED), {"num_stages": 2, **settings(width)}
    kernel = added._fused_add_rms_norm_forward_kernel[(rows,)]
    return lambda: kernel(*tensors, *numbers, **chosen)


def silu_and_mul(case):
    """y = silu(g), rounded, times u."""
    x, y = over(case, "x", "y")
    chosen = {"ffn_size": y.shape[1], **settings(y.shape[1])}
    kernel = swiglu._swiglu_fused_gate_up_forward_kernel[(some_rows(x),)]
    return lambda: kernel(x, y, x.stride(0), y.stride(0), **chosen)


def witness():
    """What code was made for."""
    return {"dispatch": "{} triton {}".format(architecture(), triton.__version__)}


FORMS = (rms_norm, add_rms_norm, silu_and_mul)
OPERATORS = {form.__name__: (["F32", "F16", "BF16"], quietly(form)) for form in FORMS}

if __name__ == "__main__":
    packages = ("liger-kernel", "triton", "torch")
    version = versions(packages)["liger-kernel"]
    serve("liger", OPERATORS, version, packages=packages, witness=witness, devices=("cuda",))
