"""The `torch` provider: PyTorch's eager operators, with `out=` and in-place forms over memory made before.

These forms are the fastest on the CPU; eager_cuda.py has those that differ on a GPU. Those of the logits' operators do
not: over few rows a kernel for each step fills the device, and one softmax does not. NaN follows PyTorch: it wins a
maximum and a row's largest magnitude.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from protocol import DEVICE, serve  # noqa: E402

import torch  # noqa: E402
from torch_tensors import F8_MAX, SMALLEST_SCALE, architecture, empty, over, quietly, use_threads  # noqa: E402


def wide(tensor):
    """float32 memory for a tensor: itself where it is float32 already."""
    return tensor if tensor.dtype == torch.float32 else empty(tensor, *tensor.shape)


def normalizer(x, eps):
    """A function that gives 1 / sqrt(mean(x^2) + eps) of each row, [rows, 1] in float32."""
    column, width = empty(x, x.shape[0], 1), x.shape[1]

    def inverse():
        torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32, out=column)
        return column.square_().div_(width).add_(eps).rsqrt_()

    return inverse


def scaled(x, inverse, w, y):
    """A function that stores x * inverse() * w, rounded once, into y."""
    between = y if y.dtype == torch.float32 else wide(y)

    def run():
        torch.mul(x, inverse(), out=between)
        torch.mul(between, w, out=y)

    return run


def rms_norm(case):
    """y = x / rms(x) * w."""
    x, w, y = over(case, "x", "w", "y")
    return scaled(x, normalizer(x, case.params["eps"]), w, y)


def add_rms_norm(case):
    """residual += x; x = residual / rms(residual) * w."""
    x, residual, w = over(case, "x", "residual", "w")
    norm = scaled(residual, normalizer(residual, case.params["eps"]), w, x)

    def run():
        residual.add_(x)
        norm()

    return run


def rms_norm_dynamic_fp8(case):
    """E4M3 values and one scale per row."""
    x, w, q, scale = over(case, "x", "w", "q", "scale")
    residual = over(case, "residual")[0] if case.params["add-residual"] else None
    source = x if residual is None else residual
    inverse, v = normalizer(source, case.params["eps"]), torch.empty_like(x)
    quotient = empty(x, *x.shape)

    def run():
        if residual is not None:
            residual.add_(x)
        torch.mul(source, inverse(), out=v)
        v.mul_(w)
        torch.linalg.vector_norm(v, float("inf"), dim=-1, keepdim=True, dtype=torch.float32, out=scale)
        scale.div_(F8_MAX).clamp_min_(SMALLEST_SCALE)
        torch.div(v, scale, out=quotient)
        q.copy_(quotient)

    return run


def silu_and_mul(case):
    """y = silu(g), rounded, times u."""
    x, y = over(case, "x", "y")
    gate, up = x.chunk(2, dim=-1)

    def run():
        torch._C._nn.silu(gate, out=y)
        y.mul_(up)

    return run


class Logits:
    """Logits in float32 with the memory that the decode tail needs."""

    def __init__(self, case):
        (self.narrow,) = over(case, "logits")
        logits, rows = self.narrow, self.narrow.shape[0]
        self.wide, self.weights = wide(logits), empty(logits, *logits.shape)
        self.mask = empty(logits, *logits.shape, dtype=torch.bool)
        self.largest, self.sum = empty(logits, rows, 1), empty(logits, rows, 1)
        self.place = empty(logits, rows, 1, dtype=torch.int64)

    def load(self):
        """Widens the logits."""
        if self.wide is not self.narrow:
            self.wide.copy_(self.narrow)

    def log_sum_exp(self, largest):
        """ln(sum(exp(logits - largest))), [rows, 1]."""
        torch.sub(self.wide, largest, out=self.weights)
        return torch.sum(self.weights.exp_(), -1, keepdim=True, out=self.sum).log_()

    def rank(self, value, rank):
        """How many logits are at least `value` ([rows, 1])."""
        torch.ge(self.wide, value, out=self.mask)
        torch.sum(self.mask, -1, out=rank)


def greedy_logprob(case):
    """The largest logit's place, log-probability and rank."""
    logits, (token, logprob, rank) = Logits(case), over(case, "token", "logprob", "rank")

    def run():
        logits.load()
        torch.max(logits.wide, -1, keepdim=True, out=(logits.largest, logits.place))
        token.copy_(logits.place[:, 0])
        torch.neg(logits.log_sum_exp(logits.largest)[:, 0], out=logprob)
        logits.rank(logits.largest, rank)

    return run


def selected_logprob_rank(case):
    """Log-probability and rank of given ids."""
    logits, (selected, logprob, rank) = Logits(case), over(case, "selected", "logprob", "rank")
    value, column = torch.empty_like(logits.largest), selected[:, None]

    def run():
        logits.load()
        torch.gather(logits.wide, 1, column, out=value)
        torch.amax(logits.wide, -1, keepdim=True, out=logits.largest)
        logits.rank(value, rank)
        value.sub_(logits.largest).sub_(logits.log_sum_exp(logits.largest))
        logprob.copy_(value[:, 0])

    return run


def topk_logprobs(case):
    """The selected id, then the k best; ties in PyTorch's own order, so F32 only."""
    logits, (selected, ids, logprobs, rank) = Logits(case), over(case, "selected", "ids", "logprobs", "rank")
    k, column = int(case.params["k"]), selected[:, None]
    values, places = empty(ids, ids.shape[0], k), empty(ids, ids.shape[0], k, dtype=torch.int64)
    value = torch.empty_like(logits.largest)

    def run():
        logits.load()
        torch.gather(logits.wide, 1, column, out=value)
        torch.topk(logits.wide, k, out=(values, places))
        logits.rank(value, rank)
        torch.cat([column, places], 1, out=ids)
        torch.cat([value, values], 1, out=logprobs)
        largest = values[:, :1]
        logprobs.sub_(largest).sub_(logits.log_sum_exp(largest))

    return run


def min_p(case):
    """Logits below max + ln(p) become -inf, in place."""
    logits, (p,) = Logits(case), over(case, "p")
    least = torch.empty_like(logits.largest)

    def run():
        logits.load()
        torch.amax(logits.wide, -1, keepdim=True, out=logits.largest)
        torch.log(p[:, None], out=least).add_(logits.largest)
        torch.lt(logits.wide, least, out=logits.mask)
        logits.narrow.masked_fill_(logits.mask, float("-inf"))

    return run


def granted(bind):
    """A binding with the contract's threads, which records nothing for a backward pass."""

    def with_threads(case):
        use_threads(case.threads)
        return quietly(bind)(case)

    return with_threads


def witness():
    """The instruction set that PyTorch dispatches to."""
    return {"dispatch": torch.backends.cpu.get_cpu_capability() if DEVICE == "cpu" else architecture()}


FORMS = [rms_norm, add_rms_norm, rms_norm_dynamic_fp8, silu_and_mul]
FORMS += [greedy_logprob, selected_logprob_rank, topk_logprobs, min_p]
BINDS = {form.__name__: form for form in FORMS}
if DEVICE == "cuda":
    import eager_cuda

    BINDS.update({form.__name__: form for form in eager_cuda.FORMS})
DTYPES = {"topk_logprobs": ["F32"]}
OPERATORS = {name: (DTYPES.get(name, ["F32", "F16", "BF16"]), granted(bind)) for name, bind in BINDS.items()}

if __name__ == "__main__":
    packages, devices = ("torch", "numpy"), ("cpu", "cuda")
    serve("torch", OPERATORS, torch.__version__, packages=packages, witness=witness, devices=devices)
