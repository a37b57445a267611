"""The `vllm` provider: the operators that vLLM's engine calls, from its compiled library, without the engine.

They are found where the distribution `vllm` is installed; only the library is loaded, so nothing else of it runs.
"""

import importlib.metadata
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from protocol import Unsupported, serve, versions  # noqa: E402

import torch  # noqa: E402
from torch_tensors import architecture, dense, quietly  # noqa: E402

LIBRARY = "vllm/_C_stable_libtorch.abi3.so"

torch.ops.load_library(str(importlib.metadata.distribution("vllm").locate_file(LIBRARY)))
operators = torch.ops._C


def rms_norm(case):
    """y = x / rms(x) * w."""
    (x, w, y), eps = dense(case, "x", "w", "y"), case.params["eps"]
    return lambda: operators.rms_norm(y, x, w, eps)


def add_rms_norm(case):
    """residual += x; x = residual / rms(residual) * w."""
    (x, residual, w), eps = dense(case, "x", "residual", "w"), case.params["eps"]
    return lambda: operators.fused_add_rms_norm(x, residual, w, eps)


def rms_norm_dynamic_fp8(case):
    """E4M3 values and one scale per row."""
    (x, w, q, scale), eps = dense(case, "x", "w", "q", "scale"), case.params["eps"]
    residual = dense(case, "residual")[0] if case.params["add-residual"] else None
    if residual is not None and case.dtype != "F32":
        raise Unsupported("with a residual in F16 or BF16 it normalizes the sum before that is rounded")
    return lambda: operators.rms_norm_dynamic_per_token_quant(q, x, w, scale, eps, None, residual)


def silu_and_mul(case):
    """y = silu(g), rounded, times u."""
    x, y = dense(case, "x", "y")
    return lambda: operators.silu_and_mul(y, x)


def witness():
    """What code was chosen."""
    return {"dispatch": architecture()}


FORMS = (rms_norm, add_rms_norm, rms_norm_dynamic_fp8, silu_and_mul)
OPERATORS = {form.__name__: (["F32", "F16", "BF16"], quietly(form)) for form in FORMS}

if __name__ == "__main__":
    packages = ("vllm", "torch")
    version = versions(packages)["vllm"]
    serve("vllm", OPERATORS, version, packages=packages, strided=False, witness=witness, devices=("cuda",))
