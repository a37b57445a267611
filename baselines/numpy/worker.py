"""The `numpy` provider: what a careful numpy user writes, outputs and temporaries allocated before the timed region.

F32 is computed in place of arrays; F16 is widened to float32 and rounded once at the store, because numpy's own half
arithmetic is slower. NaN logits follow numpy, not the contract's rule that NaN never wins.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from protocol import serve  # noqa: E402

import narrow  # noqa: E402
import numpy as np  # noqa: E402

np.seterr(all="ignore")
F8_MAX = np.float32(448)
SMALLEST_SCALE = np.float32(1 / (448 * 512))


def row_sum_of_squares(x, out):
    """Sum of squares of each row into `out`."""
    if hasattr(np, "vecdot"):
        np.vecdot(x, x, out=out)
    else:
        np.einsum("ij,ij->i", x, x, out=out)


def normalizer(x, eps):
    """A function that gives 1 / sqrt(mean(x^2) + eps) of each row as a column; x is float32."""
    squares = np.empty(x.shape[0], dtype=np.float32)
    column, width, eps = squares[:, None], np.float32(x.shape[1]), np.float32(eps)

    def inverse():
        row_sum_of_squares(x, squares)
        np.divide(squares, width, out=squares)
        np.add(squares, eps, out=squares)
        np.sqrt(squares, out=squares)
        np.reciprocal(squares, out=squares)
        return column

    return inverse


def wide(array):
    """float32 memory for an array: itself where it is float32 already."""
    return array if array.dtype == np.float32 else np.empty(array.shape, dtype=np.float32)


def load(target, array):
    """Widens an array into its float32 memory."""
    if target is not array:
        np.copyto(target, array)


def store(array, source):
    """Rounds float32 memory into an array."""
    if source is not array:
        np.copyto(array, source, casting="unsafe")


def rms_norm(case):
    """y = x / rms(x) * w."""
    x, w, y = case.arrays("x", "w", "y")
    wide_x, wide_w, wide_y = wide(x), wide(w), wide(y)
    inverse = normalizer(wide_x, case.params["eps"])

    def run():
        load(wide_x, x)
        load(wide_w, w)
        np.multiply(wide_x, inverse(), out=wide_y)
        np.multiply(wide_y, wide_w, out=wide_y)
        store(y, wide_y)

    return run


def add_rms_norm(case):
    """residual += x, rounded; x = residual / rms(residual) * w."""
    x, residual, w = case.arrays("x", "residual", "w")
    wide_x, wide_residual, wide_w = wide(x), wide(residual), wide(w)
    inverse = normalizer(wide_residual, case.params["eps"])

    def run():
        load(wide_x, x)
        load(wide_residual, residual)
        load(wide_w, w)
        np.add(wide_residual, wide_x, out=wide_residual)
        if residual is not wide_residual:
            store(residual, wide_residual)
            load(wide_residual, residual)
        np.multiply(wide_residual, inverse(), out=wide_x)
        np.multiply(wide_x, wide_w, out=wide_x)
        store(x, wide_x)

    return run


def rms_norm_dynamic_fp8(case):
    """E4M3 bytes and one scale per row of the normed activations; with `add-residual`, residual += x in front."""
    x, w, q, scale = case.arrays("x", "w", "q", "scale")
    residual = case.tensors["residual"] if case.params["add-residual"] else None
    wide_x, wide_w, narrow_v = wide(x), wide(w), None if x.dtype == np.float32 else np.empty_like(x)
    source = wide_x if residual is None else wide(residual)
    inverse = normalizer(source, case.params["eps"])
    v = np.empty(x.shape, dtype=np.float32)
    temporaries = np.empty(x.shape, dtype=np.uint32), np.empty(x.shape, dtype=np.uint32)
    size, column = temporaries[0].view(np.float32), scale.reshape(-1)

    def rounded(values, through):
        if through is not None:
            store(through, values)
            load(values, through)

    def run():
        load(wide_x, x)
        load(wide_w, w)
        if residual is not None:
            load(source, residual)
            np.add(wide_x, source, out=source)
            if residual is not source:
                rounded(source, residual)
        np.multiply(source, inverse(), out=v)
        rounded(v, narrow_v)
        np.multiply(v, wide_w, out=v)
        rounded(v, narrow_v)
        np.abs(v, out=size)
        np.fmax.reduce(size, axis=1, out=column)
        np.divide(column, F8_MAX, out=column)
        np.fmax(column, SMALLEST_SCALE, out=column)
        np.divide(v, column[:, None], out=v)
        narrow.f32_to_f8(v, out=q, temporaries=temporaries)

    return run


def silu_and_mul(case):
    """y = round(g * sigmoid(g)) * u with g and u the halves of x."""
    x, y = case.arrays("x", "y")
    width = y.shape[-1]
    wide_x, wide_y = wide(x), wide(y)
    g, u = wide_x[..., :width], wide_x[..., width:]

    def run():
        load(wide_x, x)
        np.negative(g, out=wide_y)
        np.exp(wide_y, out=wide_y)
        np.add(wide_y, np.float32(1), out=wide_y)
        np.divide(g, wide_y, out=wide_y)
        if wide_y is not y:
            store(y, wide_y)
            load(wide_y, y)
        np.multiply(wide_y, u, out=wide_y)
        store(y, wide_y)

    return run


class Rows:
    """One row of logits at a time, widened, with the memory that the decode tail needs."""

    def __init__(self, logits):
        self.logits, width = logits, logits.shape[1]
        self.spare, self.mask = np.empty(width, dtype=np.float32), np.empty(width, dtype=bool)
        self.wide = None if logits.dtype == np.float32 else np.empty(width, dtype=np.float32)

    def __iter__(self):
        for index, row in enumerate(self.logits):
            if self.wide is not None:
                np.copyto(self.wide, row)
                row = self.wide
            yield index, row

    def log_sum_exp(self, row, largest):
        """ln(sum(exp(row - largest)))."""
        np.subtract(row, largest, out=self.spare)
        np.exp(self.spare, out=self.spare)
        return np.log(self.spare.sum())

    def rank(self, row, value):
        """How many logits are at least `value`."""
        np.greater_equal(row, value, out=self.mask)
        return np.count_nonzero(self.mask)


def greedy_logprob(case):
    """The largest logit's index, its log-probability and its rank."""
    logits, token, logprob, rank = case.arrays("logits", "token", "logprob", "rank")
    rows = Rows(logits)

    def run():
        for index, row in rows:
            best = row.argmax()
            largest = row[best]
            token[index] = best
            logprob[index] = -rows.log_sum_exp(row, largest)
            rank[index] = rows.rank(row, largest)

    return run


def selected_logprob_rank(case):
    """The log-probability and rank of given ids."""
    logits, selected, logprob, rank = case.arrays("logits", "selected", "logprob", "rank")
    rows = Rows(logits)

    def run():
        for index, row in rows:
            value, largest = row[selected[index]], row.max()
            logprob[index] = value - largest - rows.log_sum_exp(row, largest)
            rank[index] = rows.rank(row, value)

    return run


def topk_logprobs(case):
    """The selected id, then the k best by value descending, id ascending."""
    logits, selected, ids, logprobs, rank = case.arrays("logits", "selected", "ids", "logprobs", "rank")
    rows, k = Rows(logits), int(case.params["k"])
    vocab = logits.shape[1]
    sorted_row = np.empty(vocab, dtype=np.float32)

    def run():
        for index, row in rows:
            np.copyto(sorted_row, row)
            sorted_row.partition(vocab - k)
            np.greater_equal(row, sorted_row[vocab - k], out=rows.mask)
            best = np.flatnonzero(rows.mask)
            best = best[np.argsort(-row[best], kind="stable")[:k]]
            largest, value = row[best[0]], row[selected[index]]
            ids[index, 0] = selected[index]
            ids[index, 1:] = best
            logprobs[index] = row[ids[index]] - largest - rows.log_sum_exp(row, largest)
            rank[index] = rows.rank(row, value)

    return run


def min_p(case):
    """Logits below max + ln(p) become -inf, in place; p = 0 leaves the row alone."""
    logits, p = case.arrays("logits", "p")
    wide_logits = wide(logits)
    below = np.empty(logits.shape, dtype=bool)
    lowest = logits.dtype.type(-np.inf)

    def run():
        load(wide_logits, logits)
        exact = wide_logits.max(axis=1) + np.log(p.astype(np.float64))
        least = exact.astype(np.float32)
        np.nextafter(least, np.float32(np.inf), out=least, where=least < exact)
        np.less(wide_logits, least[:, None], out=below)
        np.copyto(logits, lowest, where=below)

    return run


def witness():
    """The instruction sets that numpy found."""
    module = getattr(np, "_core", None) or np.core
    features = module._multiarray_umath.__cpu_features__
    return {"dispatch": " ".join(sorted(name for name, found in features.items() if found))}


if __name__ == "__main__":
    half = ["F32", "F16"]
    operators = {
        "rms_norm": (half, rms_norm),
        "add_rms_norm": (half, add_rms_norm),
        "rms_norm_dynamic_fp8": (half, rms_norm_dynamic_fp8),
        "silu_and_mul": (half, silu_and_mul),
        "greedy_logprob": (half, greedy_logprob),
        "selected_logprob_rank": (half, selected_logprob_rank),
        "topk_logprobs": (half, topk_logprobs),
        "min_p": (half, min_p),
    }
    serve("numpy", operators, version=np.__version__, witness=witness)
