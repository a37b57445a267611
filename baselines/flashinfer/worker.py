"""The `flashinfer` provider: FlashInfer's norm with its output made before. provider.toml says what is left out.

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


def witness():
    """What code was chosen."""
    return {"dispatch": architecture()}


FORMS = (rms_norm,)
OPERATORS = {form.__name__: (["F16", "BF16"], quietly(form)) for form in FORMS}

if __name__ == "__main__":
    packages = ("flashinfer-python", "apache-tvm-ffi", "torch")
    version = versions(packages)["flashinfer-python"]
    serve("flashinfer", OPERATORS, version, packages=packages, strided=False, witness=witness, devices=("cuda",))
