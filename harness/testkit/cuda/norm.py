"""The operator without a defect: PyTorch's fused rms_norm, one block a row, and a copy into the case's memory."""

import torch
from torch.nn.functional import rms_norm
from torch_tensors import over


class Parts:
    """The tensors of a case, and a function that gives the right output of any contents of `x`."""

    def __init__(self, case):
        self.x, self.w, self.y = over(case, "x", "w", "y")
        self.eps = case.params["eps"]

    def of(self, x):
        """The right output for `x`, in memory of its own."""
        return rms_norm(x, self.w.shape, self.w, self.eps)

    def write(self):
        """One honest call."""
        self.y.copy_(self.of(self.x))


def honest(case):
    """Binds the honest call."""
    return Parts(case).write


def capturing():
    """Whether the calls of this moment go into a graph."""
    return torch.cuda.is_current_stream_capturing()


def decoy(parts):
    """A function that enqueues a kernel which computes nothing that was asked for."""
    scratch = torch.zeros(64, device=parts.x.device)
    return lambda: scratch.add_(1)
