"""PyTorch's eager operators where a form other than worker.py's is faster on a GPU: the norms, by their fused kernel.

That kernel has no `out=` form, and with a copy behind it is still faster than what has one: hence the copy and the
allocation that provider.toml names.
"""

import torch
from torch.nn.functional import rms_norm as fused_rms_norm
from torch_tensors import F8_MAX, SMALLEST_SCALE, empty, over


def rms_norm(case):
    """y = x / rms(x) * w."""
    (x, w, y), eps = over(case, "x", "w", "y"), case.params["eps"]
    return lambda: y.copy_(fused_rms_norm(x, w.shape, w, eps))


def add_rms_norm(case):
    """residual += x; x = residual / rms(residual) * w."""
    (x, residual, w), eps = over(case, "x", "residual", "w"), case.params["eps"]

    def run():
        residual.add_(x)
        x.copy_(fused_rms_norm(residual, w.shape, w, eps))

    return run


def rms_norm_dynamic_fp8(case):
    """E4M3 values and one scale per row."""
    x, w, q, scale = over(case, "x", "w", "q", "scale")
    residual = over(case, "residual")[0] if case.params["add-residual"] else None
    source = x if residual is None else residual
    eps, quotient = case.params["eps"], empty(x, *x.shape)
    limit = empty(x, 1).fill_(F8_MAX)  # dividing by a number would multiply by its rounded reciprocal

    def run():
        if residual is not None:
            residual.add_(x)
        v = fused_rms_norm(source, w.shape, None, eps).mul_(w)
        torch.linalg.vector_norm(v, float("inf"), dim=-1, keepdim=True, dtype=torch.float32, out=scale)
        scale.div_(limit).clamp_min_(SMALLEST_SCALE)
        torch.div(v, scale, out=quotient)
        q.copy_(quotient)

    return run


FORMS = [rms_norm, add_rms_norm, rms_norm_dynamic_fp8]
