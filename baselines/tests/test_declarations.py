"""The files provider.toml, read as data: whole, within the catalog, and what the workers bind; no library is needed."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from supervisor import BASELINES

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11
    tomllib = None

REQUIRED = {"id", "about", "command", "environment", "operators"}
KNOWN = REQUIRED | {"lock", "packages", "devices", "refusals", "strided", "includes", "expect-libraries"}
KNOWN |= {"expect-kernels", "tunes", "thread-variables", "variables"}
EVERY = ["F32", "F16", "BF16"]
UUID = "GPU-0c0ffee0-1111-2222-3333-444455556666"

# Prints the operators of a worker as JSON: every library that it imports is a stand-in that has whatever is asked for.
BOUND = """
import importlib.abc, importlib.machinery, importlib.metadata, json, os, runpy, sys
from unittest.mock import MagicMock

STOOD_IN = {"torch", "triton", "liger_kernel", "flashinfer", "tvm_ffi", "torch_device"}

class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in STOOD_IN:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return MagicMock(__spec__=spec, __path__=[])

    def exec_module(self, module):
        pass

sys.meta_path.insert(0, Finder())
importlib.metadata.distribution = MagicMock()
sys.path.insert(0, os.path.dirname(sys.argv[1]))
made = runpy.run_path(sys.argv[1], run_name="worker")
print(json.dumps({name: list(dtypes) for name, (dtypes, _) in made["OPERATORS"].items()}))
"""


def providers():
    """Every provider.toml, by folder."""
    found = {path.parent: tomllib.loads(path.read_text(encoding="utf-8")) for path in BASELINES.glob("*/provider.toml")}
    assert len(found) > 8, found.keys()
    return found


def bound(folder, variables):
    """What a worker would say that it runs."""
    with tempfile.TemporaryDirectory() as place:
        pathlib.Path(place, "quack_sm90.so").touch()
        folders = [str(BASELINES), place] + [part for part in sys.path if part.endswith("-packages")]  # NumPy's
        environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(folders), **variables}
        command = [sys.executable, "-B", "-c", BOUND, str(folder / "worker.py")]
        ended = subprocess.run(command, env=environment, capture_output=True, timeout=120)
    if ended.returncode:
        raise AssertionError(ended.stderr.decode())
    return json.loads(ended.stdout)


@unittest.skipIf(tomllib is None, "Python has no tomllib")
class Declarations(unittest.TestCase):
    def test_every_key_is_known_and_none_is_missing(self):
        for folder, toml in providers().items():
            with self.subTest(folder.name):
                self.assertEqual(toml["id"], folder.name)
                self.assertLessEqual(REQUIRED, set(toml))
                self.assertLessEqual(set(toml), KNOWN)
                self.assertLessEqual(set(toml.get("devices", ["cpu"])), {"cpu", "cuda"})
                self.assertLessEqual(set(toml.get("includes", [])), {"allocation", "copy"})
                self.assertFalse([name for name in toml.get("variables", {}) if name.startswith("PROOFHOUSE")])

    def test_operators_and_dtypes_are_those_of_the_catalog(self):
        catalog = json.loads((BASELINES.parent / "gates" / "catalog.json").read_text(encoding="utf-8"))
        dtypes = {name: operator["dtypes"] for name, operator in catalog["operators"].items()}
        for folder, toml in providers().items():
            for operator, found in toml["operators"].items():
                with self.subTest(folder.name, operator=operator):
                    self.assertTrue(found)
                    self.assertEqual(len(set(found)), len(found))
                    self.assertLessEqual(set(found), set(dtypes[operator]))

    def test_what_must_be_there_is_named(self):
        for folder, toml in providers().items():
            with self.subTest(folder.name):
                self.assertTrue(toml["expect-libraries"])
                kinds = toml["environment"].partition(":")
                self.assertIn(kinds[0], ("venv", "host", "path", "binary"))
                if kinds[0] == "path":
                    for part in kinds[2].split(":"):
                        self.assertRegex(part, r"^\{set\}/\w+$")
                if kinds[0] == "venv":
                    self.assertTrue((folder / toml["lock"]).is_file())
                if "cuda" in toml.get("devices", []):
                    self.assertTrue(toml["expect-kernels"])
                    self.assertTrue(kinds[0] == "binary" or "torch" in toml["packages"])

    def test_workers_bind_what_is_declared_on_a_device(self):
        device = {"PROOFHOUSE_DEVICE": "cuda:" + UUID}
        tried = 0
        for folder, toml in providers().items():
            if toml["command"][0] == "{python}" and "cuda" in toml.get("devices", []):
                tried += 1
                with self.subTest(folder.name):
                    self.assertEqual(bound(folder, device), toml["operators"])
        self.assertEqual(tried, 6)

    def test_the_table_of_the_documentation_says_what_the_files_say(self):
        text = (BASELINES.parent / "docs" / "workers.md").read_text(encoding="utf-8")
        rows = [[cell.strip(" `") for cell in row.split("|")[1:-1]] for row in text.splitlines() if row[:1] == "|"]
        (head,) = [row for row in rows if row[0] == "operator" and "quack" in row]
        named = re.compile(r"[a-z0-9]+(_[a-z0-9]+)+")
        table = {row[0]: row[1:] for row in rows if len(row) == len(head) and named.fullmatch(row[0])}
        short = {"all": EVERY, "": []}
        for column, provider in enumerate(head[1:]):
            toml = tomllib.loads((BASELINES / provider / "provider.toml").read_text(encoding="utf-8"))
            told = {name: row[column].partition(",")[0] for name, row in table.items()}
            told = {name: short.get(cell, cell.split()) for name, cell in told.items()}
            self.assertEqual({name: dtypes for name, dtypes in told.items() if dtypes}, toml["operators"], provider)


if __name__ == "__main__":
    unittest.main()
