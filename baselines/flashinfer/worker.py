"""The `flashinfer` provider: FlashInfer's operators with outputs made before.

Its kernels begin before the one in front of them has ended (programmatic dependent launch), which is its default on
this hardware and stays so.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from protocol import serve, versions  # noqa: E402

import flashinfer  # noqa: E402
from torch_tensors import architecture, dense, quietly  # noqa: E402


def rms_norm(case):
    """y = x / rms(x) * w."""
    (x, w, y), eps = dense(case, "x", "w", "y"), case.params["eps"]
    return lambda: flashinfer.rmsnorm(x, w, eps, out=y)


def add_rms_norm(case):
    """residual += x; x = residual / rms(residual) * w."""
    (x, residual, w), eps = dense(case, "x", "residual", "w"), case.params["eps"]
    return lambda: flashinfer.fused_add_rmsnorm(x, residual, w, eps)


def silu_and_mul(case):
    """y = silu(g) * u."""
    x, y = dense(case, "x", "y")
    return lambda: flashinfer.silu_and_mul(x, out=y)


def witness():
    """What code was chosen."""
    return {"dispatch": architecture()}


FORMS = (rms_norm, add_rms_norm, silu_and_mul)
OPERATORS = {form.__name__: (["F16", "BF16"], quietly(form)) for form in FORMS}

if __name__ == "__main__":
    packages = ("flashinfer-python", "apache-tvm-ffi", "torch")
    version = versions(packages)["flashinfer-python"]
    serve("flashinfer", OPERATORS, version, packages=packages, strided=False, witness=witness, devices=("cuda",))
