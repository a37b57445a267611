"""The `quack` provider: QuACK's norm, compiled ahead into one library for some hidden sizes; provider.toml lists them.

The library has no metadata of a package, so its version is known by its digest.
"""

import hashlib
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from protocol import Unsupported, serve  # noqa: E402

import tvm_ffi  # noqa: E402
from torch_tensors import architecture, dense, quietly  # noqa: E402

LIBRARY = "quack_sm90.so"
BUILDS = {"2f7f5a5e41db4bbea611d7a6aa116cbb3449d5243951d14ce7a09c05b15abb7f": "0.6.5"}
DTYPES = {"F16": "fp16", "BF16": "bf16"}


def found():
    """The library, somewhere on the Python path."""
    places = [pathlib.Path(folder) / LIBRARY for folder in sys.path]
    for place in places:
        if place.is_file():
            return place
    raise SystemExit("{} lies in no folder of the Python path".format(LIBRARY))


PATH = found()
kernels = tvm_ffi.load_module(str(PATH))


def kernel(case):
    """The function for a hidden size, where there is one."""
    hidden = case.dims["hidden"]
    try:
        return kernels["quack_rmsnorm_{}_{}".format(DTYPES[case.dtype], hidden)]
    except AttributeError as error:
        raise Unsupported("no kernel was compiled for a hidden size of {}".format(hidden)) from error


def rms_norm(case):
    """y = x / rms(x) * w."""
    (x, w, y), eps, call = dense(case, "x", "w", "y"), case.params["eps"], kernel(case)
    return lambda: call(x, w, None, None, y, None, None, None, eps)


def witness():
    """What code was chosen."""
    return {"dispatch": architecture()}


FORMS = (rms_norm,)
OPERATORS = {form.__name__: (["F16", "BF16"], quietly(form)) for form in FORMS}

if __name__ == "__main__":
    digest = hashlib.sha256(PATH.read_bytes()).hexdigest()
    version = BUILDS.get(digest, "build " + digest[:12])
    packages = ("apache-tvm-ffi", "torch")
    serve("quack", OPERATORS, version, packages=packages, strided=False, witness=witness, devices=("cuda",))
