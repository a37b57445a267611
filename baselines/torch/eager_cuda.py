"""PyTorch's eager operators in the forms that are fastest on a GPU, where few kernels matter more than few bytes.

`rms_norm` has no `out=` form, and its one kernel and a copy are faster than the forms that have one: hence the copy
and the allocation that provider.toml names.
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

    def run():
        if residual is not None:
            residual.add_(x)
        v = fused_rms_norm(source, w.shape, None, eps).mul_(w)
        torch.linalg.vector_norm(v, float("inf"), dim=-1, keepdim=True, dtype=torch.float32, out=scale)
        scale.div_(F8_MAX).clamp_min_(SMALLEST_SCALE)
        torch.div(v, scale, out=quotient)
        q.copy_(quotient)

    return run


class LogProbabilities:
    """Log-probabilities of logits in one kernel, which widens them too, and ranks."""

    def __init__(self, case):
        (self.logits,) = over(case, "logits")
        self.all = empty(self.logits, *self.logits.shape)
        self.mask = empty(self.logits, *self.logits.shape, dtype=torch.bool)

    def compute(self):
        """All of them."""
        torch.log_softmax(self.logits, -1, dtype=torch.float32, out=self.all)

    def rank(self, value, rank):
        """How many logits are at least `value` ([rows, 1])."""
        torch.ge(self.logits, value, out=self.mask)
        torch.sum(self.mask, -1, out=rank)


def greedy_logprob(case):
    """The largest logit's place, log-probability and rank."""
    found, (token, logprob, rank) = LogProbabilities(case), over(case, "token", "logprob", "rank")
    largest = empty(found.logits, len(token), 1, dtype=found.logits.dtype)
    column, best = token[:, None], logprob[:, None]

    def run():
        torch.max(found.logits, -1, keepdim=True, out=(largest, column))
        found.compute()
        torch.gather(found.all, 1, column, out=best)
        found.rank(largest, rank)

    return run


def selected_logprob_rank(case):
    """Log-probability and rank of given ids."""
    found, (selected, logprob, rank) = LogProbabilities(case), over(case, "selected", "logprob", "rank")
    value = empty(found.logits, len(selected), 1, dtype=found.logits.dtype)
    column, given = selected[:, None], logprob[:, None]

    def run():
        found.compute()
        torch.gather(found.all, 1, column, out=given)
        torch.gather(found.logits, 1, column, out=value)
        found.rank(value, rank)

    return run


def topk_logprobs(case):
    """The selected id, then the k best; ties in PyTorch's own order, so F32 only."""
    found, (selected, ids, logprobs, rank) = LogProbabilities(case), over(case, "selected", "ids", "logprobs", "rank")
    k, column = int(case.params["k"]), selected[:, None]
    value = empty(found.logits, len(selected), 1, dtype=found.logits.dtype)
    values, places = empty(ids, len(selected), k), empty(ids, len(selected), k, dtype=torch.int64)

    def run():
        found.compute()
        torch.gather(found.logits, 1, column, out=value)
        torch.topk(found.logits, k, out=(values, places))
        torch.cat([column, places], 1, out=ids)
        torch.gather(found.all, 1, ids, out=logprobs)
        found.rank(value, rank)

    return run


FORMS = [rms_norm, add_rms_norm, rms_norm_dynamic_fp8, greedy_logprob, selected_logprob_rank, topk_logprobs]
