"""The captured inputs under gates/inputs: whole, small, what their provenance says, and consistent."""

import hashlib
import json
import struct
import unittest

from supervisor import BASELINES

import numpy as np

INPUTS = BASELINES.parent / "gates" / "inputs"
KINDS = {"F32": np.float32, "I64": np.int64}


def tensors(raw):
    """The tensors of a safetensors file's bytes."""
    (length,) = struct.unpack_from("<Q", raw)
    found = {}
    for name, entry in json.loads(raw[8 : 8 + length]).items():
        start, end = (8 + length + offset for offset in entry["data_offsets"])
        found[name] = np.frombuffer(raw[start:end], KINDS[entry["dtype"]]).reshape(entry["shape"])
    return found


class SmolLM2(unittest.TestCase):
    def setUp(self):
        self.raw = (INPUTS / "smollm2.safetensors").read_bytes()
        self.facts = json.loads((INPUTS / "smollm2.json").read_text(encoding="utf-8"))
        self.tensors = tensors(self.raw)

    def test_the_provenance_names_the_files_digests(self):
        self.assertEqual(self.facts["sha256"], hashlib.sha256(self.raw).hexdigest())
        script = (INPUTS / self.facts["script"]["file"]).read_bytes()
        self.assertEqual(self.facts["script"]["sha256"], hashlib.sha256(script).hexdigest())
        self.assertLessEqual(len(self.raw), 4 << 20)

    def test_the_shapes_are_those_of_the_model(self):
        shapes = {name: array.shape for name, array in self.tensors.items()}
        listed = {name: tuple(entry["shape"]) for name, entry in self.facts["tensors"].items()}
        self.assertEqual(shapes, listed)
        chosen = [shapes[name] for name in ("logits", "hidden.15", "gate_up.15")]
        self.assertEqual(chosen, [(8, 49152), (16, 576), (16, 3072)])

    def test_the_values_fit_together_as_those_of_a_model_that_reads_english(self):
        self.assertTrue(all(np.isfinite(array).all() for array in self.tensors.values()))
        total = self.tensors["update.15"] + self.tensors["residual.15"]
        self.assertLess(np.abs(total - self.tensors["hidden.15"]).max(), 1e-4 * np.abs(total).max())
        logits, following = self.tensors["logits"], self.tensors["next_ids"]
        chosen = np.take_along_axis(logits, following[:, None], 1)
        ranks = (logits >= chosen).sum(axis=1)
        self.assertGreaterEqual((ranks <= 10).sum(), 5, ranks)


if __name__ == "__main__":
    unittest.main()
