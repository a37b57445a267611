"""The `inductor` provider: each operator as one function under torch.compile, compiled for the case's shape when it is
prepared. The whole function must compile: a break in the graph is an error, and so is a case for which nothing was
compiled. Outputs are stored by the compiled code itself. provider.toml says which operators and dtypes are left out.

On a GPU each operator is compiled twice when it is prepared, as by default and as the mode max-autotune-no-cudagraphs
does, and the form whose calls in a graph take less time is kept: the mode's own choice rests on single launches, which at
a few microseconds say little, and was seen ten times slower than the default; elsewhere it is 12 % faster. It takes up to
25 seconds a shape, once: what was tuned is kept in the cache of kernels. Several processes do that side by side before
anything is measured; they compile at the same time, and what they compiled is timed by one of them at a time.
"""

import fcntl
import functools
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from protocol import DEVICE, serve  # noqa: E402

import statistics  # noqa: E402

import torch  # noqa: E402
import torch._dynamo as dynamo  # noqa: E402
import torch._inductor.config as inductor  # noqa: E402
from torch._inductor.runtime import benchmarking  # noqa: E402
from torch_tensors import F8_MAX, SMALLEST_SCALE, architecture, empty, over, use_threads  # noqa: E402

SHAPES = 4096  # specializations of one function; the default of 8 is fewer than a gate has cells
dynamo.config.recompile_limit = dynamo.config.cache_size_limit = SHAPES
dynamo.config.accumulated_recompile_limit = dynamo.config.accumulated_cache_size_limit = 8 * SHAPES
inductor.emulate_precision_casts = True  # roundings to the activation dtype stay, where the CPU code generator heeds it


def normed(x, eps):
    """x / rms(x) in float32."""
    wide = x.float()
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)


def rms_norm(x, w, y, *, eps):
    """y = x / rms(x) * w."""
    y.copy_(normed(x, eps) * w.float())


def add_rms_norm(x, residual, w, *, eps):
    """residual += x; x = residual / rms(residual) * w."""
    total = residual + x
    residual.copy_(total)
    x.copy_(normed(total, eps) * w.float())


def rms_norm_dynamic_fp8(x, w, q, scale, limit, residual=None, *, eps):
    """E4M3 values and one scale per row. `limit` holds 448: on a GPU a constant would become its rounded reciprocal."""
    if residual is not None:
        x = x + residual
        residual.copy_(x)
    v = (normed(x, eps).to(x.dtype) * w).float()
    largest = (v.abs().amax(-1, keepdim=True) / limit).clamp_min(SMALLEST_SCALE)
    scale.copy_(largest)
    q.copy_((v / largest).to(q.dtype))


def silu_and_mul(x, y):
    """y = silu(g), rounded, times u."""
    gate, up = x.chunk(2, dim=-1)
    y.copy_(torch.nn.functional.silu(gate) * up)


def log_sum_exp(x, largest):
    """ln(sum(exp(x - largest))) of each row."""
    return (x - largest).exp().sum(-1, keepdim=True).log()


def greedy_logprob(logits, token, logprob, rank):
    """The largest logit's place, log-probability and rank."""
    x = logits.float()
    largest, place = x.max(-1, keepdim=True)
    token.copy_(place[:, 0])
    logprob.copy_(-log_sum_exp(x, largest)[:, 0])
    rank.copy_((x >= largest).sum(-1))


def greedy_logprob_on_gpu(logits, token, logprob, rank):
    """The same with the place from a reduction of its own: one that finds value and place is not split over blocks."""
    x = logits.float()
    largest, width = x.amax(-1, keepdim=True), x.shape[-1]
    places = torch.where(x >= largest, torch.arange(width, device=x.device), width - 1)
    token.copy_(places.amin(-1))
    logprob.copy_(-log_sum_exp(x, largest)[:, 0])
    rank.copy_((x >= largest).sum(-1))


def selected_logprob_rank(logits, selected, logprob, rank):
    """Log-probability and rank of given ids."""
    x = logits.float()
    value, largest = x.gather(1, selected[:, None]), x.amax(-1, keepdim=True)
    logprob.copy_((value - largest - log_sum_exp(x, largest))[:, 0])
    rank.copy_((x >= value).sum(-1))


def topk_logprobs(logits, selected, ids, logprobs, rank, *, k):
    """The selected id, then the k best; ties in PyTorch's own order, so F32 only."""
    x = logits.float()
    value = x.gather(1, selected[:, None])
    values, places = x.topk(k)
    largest = values[:, :1]
    ids.copy_(torch.cat([selected[:, None], places], 1))
    logprobs.copy_(torch.cat([value, values], 1) - largest - log_sum_exp(x, largest))
    rank.copy_((x >= value).sum(-1))


def min_p(logits, p):
    """Logits below max + ln(p) become -inf, in place."""
    x = logits.float()
    least = x.amax(-1, keepdim=True) + p.log()[:, None]
    logits.copy_(torch.where(x < least, float("-inf"), logits))


NORM, LOGITS = ("eps",), ("logits", "token", "logprob", "rank")
FORMS = {
    "rms_norm": (rms_norm, ("x", "w", "y"), NORM),
    "rms_norm_dynamic_fp8": (rms_norm_dynamic_fp8, ("x", "w", "q", "scale"), NORM),
    "silu_and_mul": (silu_and_mul, ("x", "y"), ()),
    "greedy_logprob": (greedy_logprob, LOGITS, ()),
    "selected_logprob_rank": (selected_logprob_rank, ("logits", "selected", "logprob", "rank"), ()),
    "topk_logprobs": (topk_logprobs, ("logits", "selected", "ids", "logprobs", "rank"), ("k",)),
    "min_p": (min_p, ("logits", "p"), ()),
}
DTYPES = {"topk_logprobs": ["F32"]}
TUNED = {"max_autotune": True, "coordinate_descent_tuning": True}  # what the mode stands for
CALLS, REPLAYS = 20, 7  # of a graph by which two compiled forms are compared
KEPT = [0, 0]  # how often the default form was kept, and the tuned one
HELD = []  # the lock for timing, while this process has it
OPTIONS = {}
if DEVICE == "cuda":
    # Quotients are rounded to E4M3, where many lie on midpoints: the approximate division would decide those.
    OPTIONS["rms_norm_dynamic_fp8"] = {"eager_numerics.division_rounding": True}
    FORMS["add_rms_norm"] = add_rms_norm, ("x", "residual", "w"), NORM
    FORMS["greedy_logprob"] = greedy_logprob_on_gpu, LOGITS, ()
else:
    DTYPES.update(rms_norm_dynamic_fp8=["F32"], silu_and_mul=["F32"])


def compiled_graphs():
    """How many graphs were compiled so far."""
    return dynamo.utils.counters["stats"]["unique_graphs"]


def copy_of(tensor):
    """A tensor of its own with the same layout."""
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor)


def alone(function):
    """The function, in one process at a time: what another one runs on the device would be in its times."""
    folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or tempfile.gettempdir()

    @functools.wraps(function)
    def locked(*args, **kwargs):
        if HELD:  # what is timed may time something itself
            return function(*args, **kwargs)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "timing.lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            HELD.append(lock)
            try:
                return function(*args, **kwargs)
            finally:
                HELD.clear()

    return locked


@alone
def graph_time(run):
    """Milliseconds of a graph of some calls, the median of several replays."""
    stream, graph, times = torch.cuda.Stream(), torch.cuda.CUDAGraph(), []
    torch.cuda.synchronize()  # the tensors may still be written on the stream that the caller uses
    with torch.cuda.stream(stream):
        run()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(CALLS):
                run()
        for _ in range(REPLAYS):
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            graph.replay()
            last.record()
            torch.cuda.synchronize()
            times.append(first.elapsed_time(last))
    return statistics.median(times)


def fastest(forms, tensors, chosen):
    """The compiled form whose calls in a graph take the least time on copies of the tensors; a form that cannot be
    compiled for them, or for which there is no memory, is left out, unless none can."""
    timed, failures = [], []
    for index, form in enumerate(forms):
        copies = []  # of one form at a time
        try:
            copies.extend(copy_of(tensor) for tensor in tensors)
            with torch.inference_mode():
                form(*copies, **chosen)
                timed.append((graph_time(lambda: form(*copies, **chosen)), index, form))
        except Exception as error:
            if isinstance(error, torch.AcceleratorError):
                raise
            failures.append(error)
    if not timed:
        raise failures[0]
    _, index, form = min(timed)
    KEPT[index] += 1
    return form


def binder(function, names, params, options=None):
    """The function that binds a case to the compiled form of `function`, of several to the fastest."""
    ways = [options or {}] + ([{**(options or {}), **TUNED}] if DEVICE == "cuda" else [])
    forms = [torch.compile(function, fullgraph=True, dynamic=False, options=way or None) for way in ways]
    known = {}

    def bind(case):
        use_threads(case.threads)
        tensors = over(case, *names)
        if case.operator == "rms_norm_dynamic_fp8":
            tensors.append(empty(tensors[0], 1).fill_(F8_MAX))
            tensors += over(case, "residual") if case.params["add-residual"] else []
        chosen = {name: case.params[name] for name in params}

        signature = repr([(t.shape, t.stride(), t.dtype) for t in tensors] + sorted(chosen.items()))
        if signature not in known:
            before = compiled_graphs()
            if len(forms) == 1:
                with torch.inference_mode():
                    forms[0](*[copy_of(tensor) for tensor in tensors], **chosen)
                form = forms[0]
            else:
                form = fastest(forms, tensors, chosen)
            if compiled_graphs() == before:
                raise RuntimeError("torch.compile compiled nothing for " + signature)
            known[signature] = form
        compiled = known[signature]

        def run():
            compiled(*tensors, **chosen)

        return torch.inference_mode()(run)

    return bind


def witness():
    """What code was made for, and how much of it."""
    target = torch.backends.cpu.get_cpu_capability() if DEVICE == "cpu" else architecture()
    kept = " default={} tuned={}".format(*KEPT) if DEVICE == "cuda" else ""
    return {"dispatch": "{} graphs={}{}".format(target, compiled_graphs(), kept)}


if DEVICE == "cuda":
    # The one object by which Inductor times what it compiled; each candidate of a tuning is timed through this method.
    benchmarking.benchmarker.benchmark_gpu = alone(benchmarking.benchmarker.benchmark_gpu)
BINDS = {name: binder(*form, options=OPTIONS.get(name)) for name, form in FORMS.items()}
OPERATORS = {name: (DTYPES.get(name, ["F32", "F16", "BF16"]), bind) for name, bind in BINDS.items()}

if __name__ == "__main__":
    packages, devices = ("torch", "numpy"), ("cpu", "cuda")
    serve("inductor", OPERATORS, torch.__version__, packages=packages, witness=witness, devices=devices)
