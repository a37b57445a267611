"""Operators in float64, written apart from the contract crate's oracle, and cases to try providers on.

A case is a dict: operator, dtype, dims, params and tensors, each tensor (role, dtype, array); arrays hold BF16 as
uint16 and F8_E4M3 as uint8. `expected` gives the written tensors.
"""

import numpy as np

import narrow

ACTIVATIONS = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}


def encode(values, dtype):
    """float64 to a dtype's storage: nearest even (through float32 for BF16)."""
    with np.errstate(over="ignore"):
        if dtype == "BF16":
            return narrow.f32_to_bf16(values.astype(np.float32))
        return values.astype(ACTIVATIONS[dtype])


def decode(array, dtype):
    """A dtype's storage to float64."""
    if dtype == "BF16":
        return narrow.bf16_to_f32(array).astype(np.float64)
    if dtype == "F8_E4M3":
        return narrow.f8_to_f32(array).astype(np.float64)
    return array.astype(np.float64)


def rounded(values, dtype):
    """Values as the dtype can hold them."""
    return decode(encode(values, dtype), dtype)


def make(operator, dtype, rows, width, seed=0, params=None, logits=None):
    """A case with normal activations, gains near one, spread logits and every kind of `p`."""
    random = np.random.default_rng(seed)
    normal = encode(random.standard_normal((rows, width)), dtype)
    other = encode(random.standard_normal((rows, width)), dtype)
    gains = encode(1 + 0.1 * random.standard_normal(width), dtype)
    if logits is None:
        logits = encode(4 * random.standard_normal((rows, width)), dtype)
    selected = ("in", "I64", random.integers(0, width, rows))
    f32, i64 = np.zeros(rows, np.float32), np.zeros(rows, np.int64)
    params = dict(params or {})
    if "norm" in operator:
        params.setdefault("eps", 1e-6)
    tensors = {}
    if operator == "rms_norm":
        tensors = {"x": ("in", dtype, normal), "w": ("in", dtype, gains), "y": ("out", dtype, np.zeros_like(normal))}
    elif operator == "add_rms_norm":
        tensors = {"x": ("in_out", dtype, normal), "residual": ("in_out", dtype, other), "w": ("in", dtype, gains)}
    elif operator == "rms_norm_dynamic_fp8":
        params.setdefault("add-residual", False)
        tensors = {"x": ("in", dtype, normal), "w": ("in", dtype, gains)}
        if params["add-residual"]:
            tensors["residual"] = ("in_out", dtype, other)
        tensors["q"] = ("out", "F8_E4M3", np.zeros((rows, width), np.uint8))
        tensors["scale"] = ("out", "F32", f32[:, None])
    elif operator == "silu_and_mul":
        wide = encode(3 * random.standard_normal((rows, 2 * width)), dtype)
        tensors = {"x": ("in", dtype, wide), "y": ("out", dtype, np.zeros_like(normal))}
    elif operator == "greedy_logprob":
        tensors = {"logits": ("in", dtype, logits), "token": ("out", "I64", i64)}
        tensors.update(logprob=("out", "F32", f32), rank=("out", "I64", i64))
    elif operator == "selected_logprob_rank":
        tensors = {"logits": ("in", dtype, logits), "selected": selected}
        tensors.update(logprob=("out", "F32", f32), rank=("out", "I64", i64))
    elif operator == "topk_logprobs":
        lists = (rows, params.setdefault("k", 8) + 1)
        tensors = {"logits": ("in", dtype, logits), "selected": selected}
        tensors["ids"] = ("out", "I64", np.zeros(lists, np.int64))
        tensors["logprobs"] = ("out", "F32", np.zeros(lists, np.float32))
        tensors["rank"] = ("out", "I64", i64)
    elif operator == "min_p":
        p = np.resize(np.array([0, 1, 1 / 16, 0.3], np.float32), rows)
        tensors = {"logits": ("in_out", dtype, logits), "p": ("in", "F32", p)}
    name = "vocab" if "logits" in tensors else "width" if operator == "silu_and_mul" else "hidden"
    dims = {"rows": rows, name: width}
    return {"operator": operator, "dtype": dtype, "dims": dims, "params": params, "tensors": tensors}


def expected(case):
    """What the written tensors must hold, as float64 (or int64) arrays by name."""
    values = {name: decode(array, dtype) for name, (_, dtype, array) in case["tensors"].items()}
    with np.errstate(all="ignore"):
        return globals()["_" + case["operator"]](case, values)


def _inverse(x, eps):
    return 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)


def _rms_norm(case, v):
    return {"y": v["x"] * _inverse(v["x"], case["params"]["eps"]) * v["w"]}


def _add_rms_norm(case, v):
    residual = rounded(v["x"] + v["residual"], case["dtype"])
    return {"residual": residual, "x": residual * _inverse(residual, case["params"]["eps"]) * v["w"]}


def _rms_norm_dynamic_fp8(case, v):
    x, dtype, found = v["x"], case["dtype"], {}
    if case["params"]["add-residual"]:
        x = found["residual"] = rounded(x + v["residual"], dtype)
    normed = rounded(rounded(x * _inverse(x, case["params"]["eps"]), dtype) * v["w"], dtype)
    scale = np.maximum(np.abs(normed).max(axis=-1, keepdims=True) / 448, 1 / (448 * 512)).astype(np.float32)
    found["q"] = decode(narrow.f32_to_f8((normed / scale).astype(np.float32)), "F8_E4M3")
    found["scale"] = scale.astype(np.float64)
    return found


def _silu_and_mul(case, v):
    gate, up = np.split(v["x"], 2, axis=-1)
    return {"y": rounded(gate / (1 + np.exp(-gate)), case["dtype"]) * up}


def _log_softmax(x):
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def _greedy_logprob(_case, v):
    x = v["logits"]
    token = np.array([min(np.flatnonzero(row == row.max())) for row in x], dtype=np.int64)
    logprob = np.take_along_axis(_log_softmax(x), token[:, None], 1)[:, 0]
    return {"token": token, "logprob": logprob, "rank": (x == x.max(axis=-1, keepdims=True)).sum(axis=-1)}


def _selected_logprob_rank(case, v):
    x, selected = v["logits"], case["tensors"]["selected"][2][:, None]
    logprob = np.take_along_axis(_log_softmax(x), selected, 1)[:, 0]
    return {"logprob": logprob, "rank": (x >= np.take_along_axis(x, selected, 1)).sum(axis=-1)}


def _topk_logprobs(case, v):
    x, selected = v["logits"], case["tensors"]["selected"][2][:, None]
    k = case["params"]["k"]
    order = np.array([sorted(range(len(row)), key=lambda i: (-row[i], i))[:k] for row in x], dtype=np.int64)
    ids = np.concatenate([selected, order], axis=1)
    logprobs = np.take_along_axis(_log_softmax(x), ids, 1)
    return {"ids": ids, "logprobs": logprobs, "rank": _selected_logprob_rank(case, v)["rank"]}


def _min_p(_case, v):
    x = v["logits"]
    least = x.max(axis=-1, keepdims=True) + np.log(v["p"])[:, None]
    return {"logits": np.where(x < least, -np.inf, x)}


def worst(case, found):
    """The tensor that is furthest from what it must be, as (name, distance in units of its tolerance).

    At most 1 is right. Integers and -inf must be equal. Elements are compared in steps of their own dtype: 1 for
    F16, BF16 and E4M3 values, width / 32 + 8 for F32, and an absolute floor for log-probabilities. silu_and_mul in
    F16 and BF16 must lie between what the two ends of a slightly wrong sigmoid give, both roundings done.
    """
    distances = {}
    for name, right in expected(case).items():
        dtype = case["tensors"][name][1]
        if dtype == "I64":
            distances[name] = 0.0 if np.array_equal(found[name], right) else np.inf
            continue
        values = decode(found[name], dtype)
        if not np.array_equal(np.isneginf(values), np.isneginf(right)) or np.isnan(values).any():
            distances[name] = np.inf
            continue
        if case["operator"] == "silu_and_mul" and dtype != "F32":
            distances[name] = _outside_the_ends(case, values)
            continue
        finite = np.isfinite(right)
        error = np.abs(values[finite] - right[finite])
        allowed = _allowed(case, name, dtype, right)[finite]
        distances[name] = float((error / allowed).max()) if error.size else 0.0
    return max(distances.items(), key=lambda item: item[1])


def _allowed(case, name, dtype, right):
    size = np.abs(right)
    if case["operator"] == "min_p" or name == "residual":
        return np.spacing(size.astype(np.float32)) * 1e-3 + 1e-30  # bit for bit
    if dtype == "F32":
        width = list(case["dims"].values())[1]
        floor = (32 + min(width, 1024)) * 2.0**-24 if name.startswith("logprob") else 1e-37
        return (width / 32 + 8) * np.spacing(size.astype(np.float32)).astype(np.float64) + floor
    digits, least = {"F16": (10, -24), "BF16": (7, -133), "F8_E4M3": (3, -9)}[dtype]
    exponent = np.floor(np.log2(np.maximum(size, 2.0**least)))
    return np.maximum(2.0 ** (exponent - digits), 2.0**least) * 1.01


def _outside_the_ends(case, values):
    _, dtype, x = case["tensors"]["x"]
    gate, up = np.split(decode(x, dtype), 2, axis=-1)
    silu, slack = gate / (1 + np.exp(-gate)), 2.0**-21
    ends = [rounded(rounded(silu * factor, dtype) * up, dtype) for factor in (1 - slack, 1 + slack)]
    inside = (values >= np.minimum(*ends)) & (values <= np.maximum(*ends))
    return 0.0 if inside.all() else float((~inside).sum() + 1)
