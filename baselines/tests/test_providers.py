"""Every provider whose package is importable here, over every operator, dtype and a spread of shapes."""

import importlib.util
import pathlib
import re
import sys
import unittest

from supervisor import BASELINES, TIMER, Supervisor

import numpy as np

import reference

SHAPES = ((1, 8), (3, 17), (16, 576), (2, 4099))
NEEDS = {"numpy": "numpy", "onnxruntime": "onnxruntime", "torch": "torch", "inductor": "torch"}


def importable(package):
    """Whether a package, and not only a folder of that name, is here."""
    found = importlib.util.find_spec(package)
    return found is not None and found.origin is not None


def toml(provider):
    """The text of a provider.toml."""
    return (BASELINES / provider / "provider.toml").read_text(encoding="utf-8")


def declared(provider):
    """The operators table of a provider.toml."""
    rows = re.findall(r"^(\w+) = \[(.*)\]$", toml(provider).split("[operators]")[1], re.MULTILINE)
    return {name: re.findall(r'"(\w+)"', dtypes) for name, dtypes in rows}


def variants(operator, width):
    """Parameters to try an operator with."""
    if operator == "rms_norm_dynamic_fp8":
        return ({"add-residual": False}, {"add-residual": True, "eps": 1e-5})
    if operator == "topk_logprobs":
        return ({"k": 1}, {"k": min(8, width)})
    return ({},)


class Provider:
    """The tests of one provider; `name` is set below."""

    name = ""

    def worker(self):
        return Supervisor(self.name, BASELINES / self.name / "worker.py")

    def cases(self, worker):
        for operator, dtypes in worker.hello["operators"].items():
            for dtype in dtypes:
                for rows, width in SHAPES:
                    for params in variants(operator, width):
                        yield reference.make(operator, dtype, rows, width, seed=rows * width, params=params)

    def agree(self, worker, case, **layout):
        answer, found = worker.run("c", case, **layout)
        told = {key: case[key] for key in ("operator", "dtype", "dims", "params")}
        with self.subTest(**told, **layout):
            self.assertEqual(answer["verb"], "checked", answer)
            self.assertLessEqual(reference.worst(case, found)[1], 1)

    def test_the_hello_declares_what_provider_toml_declares_or_less_with_other_versions(self):
        with self.worker() as worker:
            said, written = worker.hello["operators"], declared(self.name)
            for operator, dtypes in said.items():
                self.assertLessEqual(set(dtypes), set(written[operator]), operator)
            if 'packages = {{ {} = "{}"'.format(self.name, worker.hello["version"]) in toml(self.name):
                self.assertEqual(said, written)

    def test_outputs_agree_with_the_reference_and_nothing_else_is_written(self):
        with self.worker() as worker:
            for case in self.cases(worker):
                self.agree(worker, case)
            self.assertEqual(worker.end(), 0)

    def test_strided_and_shifted_tensors_are_honored_or_declined(self):
        with self.worker() as worker:
            for case in self.cases(worker):
                if worker.hello["capabilities"]["strided"]:
                    self.agree(worker, case, pad=3, lead=1)
                else:
                    answer, _ = worker.run("c", case, pad=3, lead=0)
                    whole = list(case["dims"].values())[0] == 1
                    self.assertIn(answer["verb"], ("unsupported", "checked") if whole else ("unsupported",))

    def test_ties_go_to_the_lowest_index_and_masked_rows_stay_masked(self):
        random = np.random.default_rng(5)
        tied = random.integers(-3, 3, (4, 300)).astype(np.float32)
        masked = np.where(random.random((4, 300)) < 0.9, -np.inf, tied).astype(np.float32)
        with self.worker() as worker:
            for operator in ("greedy_logprob", "selected_logprob_rank", "topk_logprobs", "min_p"):
                for logits in (tied, masked):
                    if operator == "topk_logprobs" and self.name in ("torch", "inductor"):
                        continue  # PyTorch leaves the order of ties open
                    case = reference.make(operator, "F32", 4, 300, logits=logits)
                    if "selected" in case["tensors"]:
                        case["tensors"]["selected"] = ("in", "I64", logits.argmax(axis=1))
                    self.agree(worker, case)

    @unittest.skipUnless(TIMER, "PROOFHOUSE_TIMER names no native timer")
    def test_timed_outputs_of_every_operator_agree(self):
        with self.worker() as worker:
            for operator, dtypes in worker.hello["operators"].items():
                case = reference.make(operator, dtypes[-1], 4, 512)
                worker.ask("prepare", **worker.pose("c", case))
                warm = worker.measure("c", "warm", samples=400)
                with self.subTest(operator):
                    self.assertEqual((warm["verb"], warm.get("invalid")), ("measured", []))
                    self.assertEqual(len(worker.measure("c", "turn", publish=True)["elapsed_ns"]), 8)
                    self.assertLessEqual(reference.worst(case, worker.outputs("c"))[1], 1)


def provider_tests(provider, package):
    """The test class of a provider."""
    made = type(provider.capitalize(), (Provider, unittest.TestCase), {"name": provider})
    return unittest.skipUnless(importable(package), "{} is not installed".format(package))(made)


for _provider, _package in NEEDS.items():
    globals()[_provider.capitalize()] = provider_tests(_provider, _package)


@unittest.skipUnless(importable("onnxruntime"), "onnxruntime is not installed")
class OnnxGraphs(unittest.TestCase):
    def test_the_bytes_are_onnx_models_as_the_onnx_package_reads_them(self):
        if not importable("onnx"):
            self.skipTest("onnx is not installed")
        import onnx

        sys.path.insert(0, str(BASELINES / "onnxruntime"))
        from graph import TYPES, Graph

        graph = Graph()
        x = graph.input("x", "F32", (2, 3))
        axes = graph.constant("I64", np.array([-1], np.int64))
        graph.node("ReduceMax", [x, axes], [graph.output("y", "F32", (2, 1))], keepdims=1)
        graph.node("Cast", [x], [graph.output("q", "F8_E4M3", (2, 3))], to=TYPES["F8_E4M3"], saturate=1)
        graph.node("LeakyRelu", [x], [graph.output("z", "F32", (2, 3))], alpha=0.5)
        model = onnx.load_from_string(graph.model())
        onnx.checker.check_model(model, full_check=True)
        self.assertEqual([node.op_type for node in model.graph.node], ["ReduceMax", "Cast", "LeakyRelu"])


class Locks(unittest.TestCase):
    def test_every_locked_package_has_a_version_and_hashes(self):
        for lock in sorted(pathlib.Path(BASELINES).glob("*/requirements.lock")):
            lines = [line for line in lock.read_text().splitlines() if line and not line.startswith("#")]
            names = [line for line in lines if not line.startswith(" ")]
            with self.subTest(lock.parent.name):
                self.assertTrue(names)
                self.assertTrue(all(re.match(r"[a-z0-9-]+==[0-9.]+ .*\\$", name) for name in names))
                hashes = set(lines) - set(names)
                self.assertTrue(all(re.match(r" +--hash=sha256:[0-9a-f]{64}( \\)?$", line) for line in hashes))


if __name__ == "__main__":
    unittest.main()
