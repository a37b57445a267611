"""The contract's own rule for outputs in F16, BF16 and E4M3: the one rounding of a number within the error of F32.

reference.worst allows a step of the output's dtype; this allows a second value only next to a midpoint, as the checker
does, so that a library that rounds once more or once less than the contract shows.
"""

import numpy as np

import reference

F32_FLOOR = 8 * 2.0**-149


def outside(case, found):
    """How many elements lie outside, by tensor; only tensors that this rule is for."""
    operator, narrow = case["operator"], case["dtype"] != "F32"
    values = {name: reference.decode(array, dtype) for name, (_, dtype, array) in case["tensors"].items()}
    with np.errstate(all="ignore"):
        if operator == "rms_norm" and narrow:
            return {"y": _norm(case, values["x"], values["w"], _decoded(case, found, "y"))}
        if operator == "add_rms_norm":
            total = reference.rounded(values["x"] + values["residual"], case["dtype"])
            counts = {"residual": int((_decoded(case, found, "residual") != total).sum())}
            if narrow:
                counts["x"] = _norm(case, total, values["w"], _decoded(case, found, "x"))
            return counts
        if operator == "rms_norm_dynamic_fp8":
            return _quantized(case, values, found)
        if operator == "silu_and_mul" and narrow:
            return {"y": int(reference.worst(case, found)[1])}  # the same rule there: 0, or one more than are outside
    return {}


def _decoded(case, found, name):
    return reference.decode(found[name], case["tensors"][name][1])


def _slack(width):
    return (8 + width // 32) * 2.0**-24


def _between(low, high, got):
    return int((~((low <= got) & (got <= high))).sum())


def _norm(case, source, gains, got):
    exact = source * reference._inverse(source, case["params"]["eps"]) * gains
    slack = np.abs(exact) * _slack(source.shape[-1]) + F32_FLOOR
    ends = [reference.rounded(exact + sign * slack, case["dtype"]) for sign in (-1, 1)]
    return _between(*ends, got)


def _quantized(case, values, found):
    dtype, source, counts = case["dtype"], values["x"], {}
    if case["params"]["add-residual"]:
        source = reference.rounded(source + values["residual"], dtype)
        counts["residual"] = int((_decoded(case, found, "residual") != source).sum())
    normed = source * reference._inverse(source, case["params"]["eps"])
    slack = _slack(source.shape[-1])
    ends = [reference.rounded(normed * (1 + sign * slack), dtype) for sign in (-1, 1)]
    ends = [reference.rounded(end * values["w"], dtype) for end in ends]
    low, high = np.minimum(*ends), np.maximum(*ends)
    scale = _decoded(case, found, "scale")
    quotients = [reference.narrow.f32_to_f8((end / scale).astype(np.float32)) for end in (low, high)]
    counts["q"] = _between(*[reference.decode(code, "F8_E4M3") for code in quotients], _decoded(case, found, "q"))
    least = np.where((low <= 0) & (high >= 0), 0, np.minimum(np.abs(low), np.abs(high)))
    most = np.maximum(np.abs(low), np.abs(high))
    scales = [_scale(size.max(axis=-1, keepdims=True)) for size in (least, most)]
    counts["scale"] = _between(*scales, scale)
    return counts


def _scale(largest):
    return np.maximum((largest / 448).astype(np.float32), np.float32(1 / (448 * 512))).astype(np.float64)
