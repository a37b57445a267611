"""The `onnxruntime` provider: each operator as an ONNX graph on the CPU, bound to the case's memory.

The graphs are the fastest of the forms that were tried on one core: the fused SimplifiedLayerNormalization for norms,
Add in front of it rather than SkipSimplifiedLayerNormalization (half its time), TopK with k = 1 rather than ArgMax,
Sub-Exp-ReduceSum-Log rather than ReduceLogSumExp (an eighth of its time), a float sum of the comparison for ranks
(exact below 2^24). Outputs of operators that work in place are bound to the inputs' memory; each such graph reads an
element before it writes it. NaN follows onnxruntime, not the contract's rule that NaN never wins a maximum.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from protocol import Unsupported, serve  # noqa: E402

import numpy as np  # noqa: E402
import onnxruntime  # noqa: E402
from graph import TYPES, Graph  # noqa: E402

PROVIDERS = ["CPUExecutionProvider"]
FUSED = "com.microsoft"
STORAGE = {"F32": np.float32, "F16": np.float16}


class Builder(Graph):
    """A graph over a case's tensors: a written tensor `t` that is also read has the output name `t_out`."""

    def __init__(self, case):
        super().__init__()
        self.dtype, self.params, self.case = case.dtype, case.params, case
        self.bound, self.shapes = [], {}

    def read(self, *names):
        """Declares inputs; gives their names."""
        for name in names:
            self.bound.append((name, name, True))
            self.shapes[name] = self.case.tensors[name].shape
            self.input(name, self.case.dtypes[name], self.shapes[name])
        return names[0] if len(names) == 1 else names

    def write(self, name, shape=None):
        """Declares an output; gives its name. `shape` where the graph's differs from the tensor's."""
        taken = any(graph_name == name for graph_name, _, _ in self.bound)
        output = name + "_out" if taken else name
        self.bound.append((output, name, False))
        self.shapes[output] = shape or self.case.tensors[name].shape
        return self.output(output, self.case.dtypes[name], self.shapes[output])

    def last_axis(self):
        """The axes input of a reduction."""
        return self.constant("I64", np.array([-1], np.int64))

    def number(self, value, dtype="F32"):
        """A scalar constant."""
        return self.constant(dtype, np.array(value, STORAGE[dtype]))

    def cast(self, value, dtype, outputs=1):
        """A conversion."""
        return self.node("Cast", [value], outputs, to=TYPES[dtype])

    def wide(self, value):
        """A value of the activation dtype as F32."""
        return value if self.dtype == "F32" else self.cast(value, "F32")

    def rounded(self, value):
        """A narrow value that stays rounded, with an axis of one in front.

        The optimizer takes a conversion to F16 and back out, and in some releases an addition into the norm behind
        it, and the rounding that the contract states with them; a node that costs nothing between prevents both.
        """
        return self.node("Unsqueeze", [value, self.constant("I64", np.array([0], np.int64))])

    def norm(self, x, w, outputs=1):
        """The fused norm over the last axis."""
        eps = float(self.params["eps"])
        return self.node("SimplifiedLayerNormalization", [x, w], outputs, axis=-1, epsilon=eps)

    def log_sum_exp(self, logits, largest):
        """ln(sum(exp(logits - largest))) of each row, [rows, 1]."""
        weights = self.node("Exp", [self.node("Sub", [logits, largest])])
        return self.node("Log", [self.node("ReduceSum", [weights, self.last_axis()], keepdims=1)])

    def rank(self, logits, value):
        """How many logits of each row are at least `value`, into the output `rank`."""
        counted = self.cast(self.node("GreaterOrEqual", [logits, value]), "F32")
        total = self.node("ReduceSum", [counted, self.last_axis()], keepdims=0)
        self.cast(total, "I64", [self.write("rank")])

    def column(self, value):
        """[rows] as [rows, 1]."""
        return self.node("Unsqueeze", [value, self.constant("I64", np.array([1], np.int64))])

    def squeeze(self, value, output):
        """[rows, 1] as the output [rows]."""
        self.node("Squeeze", [value, self.constant("I64", np.array([1], np.int64))], [self.write(output)])


def rms_norm(b):
    """One fused node."""
    x, w = b.read("x", "w")
    b.norm(x, w, [b.write("y")])


def add_rms_norm(b):
    """The sum, stored, then the fused norm of what was stored."""
    x, residual, w = b.read("x", "residual", "w")
    total, shape = b.node("Add", [x, residual], [b.write("residual")]), b.case.tensors["x"].shape
    if b.dtype != "F32":
        total, shape = b.rounded(total), (1,) + shape
    b.norm(total, w, [b.write("x", shape)])


def rms_norm_dynamic_fp8(b):
    """Norm, gain (rounded apart from the norm in F16), largest magnitude, division, conversion."""
    x, w = b.read("x", "w")
    rows, width = b.case.tensors["q"].shape
    shape, scales = (rows, width), (rows, 1)
    if b.params["add-residual"]:
        x = b.node("Add", [x, b.read("residual")], [b.write("residual")])
    if b.params["add-residual"] and b.dtype != "F32":
        x, shape, scales = b.rounded(x), (1,) + shape, (1,) + scales
    if b.dtype == "F32":
        v = b.norm(x, w)
    else:
        ones = b.constant(b.dtype, np.ones(width, STORAGE[b.dtype]))
        v = b.wide(b.rounded(b.node("Mul", [b.norm(x, ones), w])))
        shape, scales = (1,) + shape, (1,) + scales
    largest = b.node("ReduceMax", [b.node("Abs", [v]), b.last_axis()], keepdims=1)
    scale = b.node("Div", [largest, b.number(448)])
    scale = b.node("Max", [scale, b.number(1 / (448 * 512))], [b.write("scale", scales)])
    b.node("Cast", [b.node("Div", [v, scale])], [b.write("q", shape)], to=TYPES["F8_E4M3"], saturate=1)


def silu_and_mul(b):
    """gate / (1 + exp(-gate)) * up: Sigmoid and QuickGelu lose too many digits of small results for the contract."""
    gate, up = b.node("Split", [b.read("x")], 2, axis=-1, num_outputs=2)
    wide = b.wide(gate)
    below = b.node("Add", [b.node("Exp", [b.node("Neg", [wide])]), b.number(1)])
    silu, shape = b.node("Div", [wide, below]), b.case.tensors["y"].shape
    if b.dtype != "F32":
        silu, shape = b.rounded(b.cast(silu, b.dtype)), (1,) + shape
    b.node("Mul", [silu, up], [b.write("y", shape)])


def best(b, logits, k):
    """The k largest logits and their places, ties by place."""
    return b.node("TopK", [logits, b.constant("I64", np.array([k], np.int64))], 2, axis=-1, largest=1, sorted=1)


def greedy_logprob(b):
    """The best logit, its place, and what is left of the sum of exponentials."""
    logits = b.wide(b.read("logits"))
    largest, token = best(b, logits, 1)
    b.squeeze(token, "token")
    b.squeeze(b.node("Neg", [b.log_sum_exp(logits, largest)]), "logprob")
    b.rank(logits, largest)


def selected_logprob_rank(b):
    """The selected logit less the largest and the rest."""
    logits, selected = b.read("logits", "selected")
    logits = b.wide(logits)
    value = b.node("GatherElements", [logits, b.column(selected)], axis=1)
    largest = b.node("ReduceMax", [logits, b.last_axis()], keepdims=1)
    above = b.node("Sub", [value, largest])
    b.squeeze(b.node("Sub", [above, b.log_sum_exp(logits, largest)]), "logprob")
    b.rank(logits, value)


def topk_logprobs(b):
    """The selected token in front of the k best."""
    logits, selected = b.read("logits", "selected")
    logits, selected = b.wide(logits), b.column(selected)
    value = b.node("GatherElements", [logits, selected], axis=1)
    values, places = best(b, logits, int(b.params["k"]))
    ends = [b.constant("I64", np.array([end], np.int64)) for end in (0, 1, 1)]
    largest = b.node("Slice", [values] + ends)
    listed = b.node("Sub", [b.node("Concat", [value, values], axis=1), largest])
    b.node("Sub", [listed, b.log_sum_exp(logits, largest)], [b.write("logprobs")])
    b.node("Concat", [selected, places], [b.write("ids")], axis=1)
    b.rank(logits, value)


def min_p(b):
    """The threshold in F32 and a selection over the input's own memory."""
    logits, p = b.read("logits", "p")
    wide = b.wide(logits)
    largest = b.node("ReduceMax", [wide, b.last_axis()], keepdims=1)
    least = b.node("Add", [largest, b.column(b.node("Log", [p]))])
    lowest = b.number(-np.inf, b.dtype)
    b.node("Where", [b.node("Less", [wide, least]), lowest, logits], [b.write("logits")])


def session(case, build):
    """The session and bound names of a case, built once for all its buffer sets."""
    if "session" not in case.shared:
        builder = Builder(case)
        build(builder)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = case.threads, 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.force_spinning_stop", "1")
        try:
            made = onnxruntime.InferenceSession(builder.model(), options, providers=PROVIDERS)
        except Exception as error:
            if "NOT_IMPLEMENTED" in str(error):
                raise Unsupported("onnxruntime {}: {}".format(onnxruntime.__version__, error)) from error
            raise
        if made.get_providers() != PROVIDERS:
            raise RuntimeError("asked for {}, got {}".format(PROVIDERS, made.get_providers()))
        case.shared["session"] = made, [(*bound, builder.shapes[bound[0]]) for bound in builder.bound]
    return case.shared["session"]


def element_type(dtype):
    """How a binding names a dtype: numpy's type where there is one, else ONNX's number (later releases only)."""
    return {"I64": np.int64, **STORAGE}.get(dtype, TYPES[dtype])


def binder(build):
    """The function that binds a case to the graph that `build` makes."""

    def bind(case):
        if not all(array.flags.c_contiguous for array in case.tensors.values()):
            raise Unsupported("onnxruntime takes contiguous tensors")
        made, bound = session(case, build)
        binding = made.io_binding()
        for graph_name, name, is_input, shape in bound:
            place = ("cpu", 0, element_type(case.dtypes[name]), shape, case.tensors[name].ctypes.data)
            try:
                (binding.bind_input if is_input else binding.bind_output)(graph_name, *place)
            except RuntimeError as error:
                reason = "onnxruntime {} cannot bind {} memory: {}"
                raise Unsupported(reason.format(onnxruntime.__version__, case.dtypes[name], error)) from error

        def run(arrays=case.tensors):  # the arrays stay alive as long as what runs on their addresses
            made.run_with_iobinding(binding)

        return run

    return bind


def witness():
    """Where the graphs run."""
    return {"dispatch": " ".join(PROVIDERS)}


if __name__ == "__main__":
    half = ["F32", "F16"]
    dtypes = {build: half for build in (rms_norm, add_rms_norm, rms_norm_dynamic_fp8, silu_and_mul, greedy_logprob)}
    dtypes.update({build: half for build in (selected_logprob_rank, topk_logprobs, min_p)})
    release = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])
    if release >= (1, 24):
        dtypes[rms_norm] = ["F32", "F16", "BF16"]
    if release < (1, 23):
        dtypes[add_rms_norm] = ["F32"]  # the sum is not rounded in front of the norm there
        del dtypes[rms_norm_dynamic_fp8]  # E4M3 memory cannot be bound there
    operators = {build.__name__: (types, binder(build)) for build, types in dtypes.items()}
    version, packages = onnxruntime.__version__, ("onnxruntime", "numpy")
    serve("onnxruntime", operators, version, packages=packages, strided=False, witness=witness)
