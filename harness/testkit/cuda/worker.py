"""A worker with one planted defect on a GPU: `worker.py --defect NAME`, for `proofhouse selftest --device cuda`.

It is a provider like those in baselines/, with the project's own host code, and runs a plain rms_norm: with the defect
`none` it is an honest control. What each name stands for, and what it must come to, is in harness/testkit/src/cuda.rs.
"""

import argparse
import os

from protocol import serve  # takes hold of the clock, the socket and the native timer before anything planted

import graphs
import norm
import outputs
import process
import tampering
from torch_tensors import quietly

BINDINGS = {
    **outputs.BINDINGS,
    **graphs.BINDINGS,
    **process.BINDINGS,
    **tampering.BINDINGS,
}
PLANTED = {**process.PLANTED, **tampering.PLANTED}
HONEST = ("none", "foreign-process", "silent-fallback")  # for two of them the wrong is not in the worker


def names():
    """Every defect that this worker plays."""
    return sorted({*HONEST, *BINDINGS, *PLANTED})


def main():
    """Plants the defect and serves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--defect", choices=names(), default="none")
    defect = parser.parse_args().defect
    if defect in PLANTED:
        PLANTED[defect]()
    bind = quietly(BINDINGS.get(defect, norm.honest))
    provider = os.environ.get("PROOFHOUSE_FAKE_ID", "fake")
    packages = ("torch", "numpy")
    serve(provider, {"rms_norm": (["F32", "BF16"], bind)}, version="1", packages=packages, devices=("cuda",))


if __name__ == "__main__":
    main()
