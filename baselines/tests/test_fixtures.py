"""The fixtures of `proofhouse selftest --device cuda`, as far as they go without a GPU: each does its wrong, and no other."""

import ast
import os
import pathlib
import subprocess
import sys
import unittest

from supervisor import BASELINES
from test_providers import importable

FOLDER = BASELINES.parent / "harness" / "testkit" / "cuda"
# Run in a process of its own: there a worker's modules and variables stay apart from those of other tests.
SCRIPT = """
import sys
import protocol, torch
capture = [False]
torch.cuda.is_current_stream_capturing = lambda: capture[0]
torch.cuda._sleep = lambda cycles: None
import norm, worker
from torch_tensors import quietly

ROWS, WIDTH, LEAD = 5, 96, 64

class Case:
    def __init__(self):
        self.memory, self.shared, self.params = torch.zeros(2048), {}, {"eps": 1e-6}
        y = self.memory[LEAD : LEAD + ROWS * WIDTH].view(ROWS, WIDTH)
        self.tensors = {"x": torch.randn(ROWS, WIDTH), "w": torch.randn(WIDTH), "y": y}
        self.dtypes = dict.fromkeys(self.tensors, "F32")

def wrong(case, x):
    want = torch.nn.functional.rms_norm(x, (WIDTH,), case.tensors["w"], 1e-6)
    return int(((case.tensors["y"] - want).abs() > 1e-5).sum())

torch.manual_seed(1)
for name in sys.argv[1:]:
    case = Case()
    run = quietly(worker.BINDINGS.get(name, norm.honest))(case)
    x = case.tensors["x"].clone()
    run()
    first = wrong(case, x)
    changed = int((case.tensors["x"] != x).sum())
    behind = int(case.memory[LEAD + ROWS * WIDTH] != 0)
    case.tensors["x"].normal_()
    x = case.tensors["x"].clone()
    run()
    renewed = wrong(case, x)
    case.tensors["x"].normal_()
    x = case.tensors["x"].clone()
    capture[0] = True
    run()
    capture[0] = False
    print(name, first, changed, behind, int(renewed > 0), int(wrong(case, x) > 0))
print("names", *worker.names())
"""
# Elements wrong at first, inputs changed, bytes behind the output written, wrong on renewed contents, wrong when captured.
SEEN = {
    "none": (0, 0, 0, 0, 0),
    "unwritten-tail": (1, 0, 0, 1, 1),
    "out-of-bounds-write": (0, 0, 1, 0, 0),
    "mutates-input": (0, 1, 0, 0, 0),
    "memo-by-pointer": (0, 0, 0, 1, 1),
    "memo-by-shape": (0, 0, 0, 1, 1),
    "memo-by-content": (0, 0, 0, 0, 0),
    "empty-graph": (0, 0, 0, 0, 1),
    "idle-when-captured": (0, 0, 0, 0, 1),
    "stale-graph-inputs": (0, 0, 0, 0, 1),
    "reads-back": (0, 0, 0, 0, 0),
    "one-set": (0, 0, 0, 0, 0),
}


class Fixtures(unittest.TestCase):
    def test_every_module_says_what_it_is(self):
        modules = sorted(FOLDER.glob("*.py"))
        self.assertGreater(len(modules), 5)
        for path in modules:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            self.assertTrue(ast.get_docstring(tree), path.name)

    @unittest.skipUnless(importable("torch"), "torch is not installed")
    def test_each_does_its_wrong_and_no_other(self):
        environment = {"PATH": os.environ.get("PATH", ""), "PROOFHOUSE_DEVICE": "cuda:GPU-none"}
        environment["PYTHONPATH"] = os.pathsep.join([str(FOLDER), str(BASELINES)])
        command = [sys.executable, "-B", "-c", SCRIPT, *SEEN]
        ended = subprocess.run(command, env=environment, capture_output=True, timeout=300, cwd=str(pathlib.Path.cwd()))
        self.assertEqual(ended.returncode, 0, ended.stderr.decode())
        lines = [line.split() for line in ended.stdout.decode().splitlines()]
        found = {name: tuple(map(int, values)) for name, *values in lines[:-1]}
        self.assertEqual(found, SEEN)
        self.assertLessEqual(set(SEEN), set(lines[-1][1:]))


if __name__ == "__main__":
    unittest.main()
