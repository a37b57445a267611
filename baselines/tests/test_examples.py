"""The examples of docs/workers.md: they run, and the page shows what runs."""

import pathlib
import shutil
import tempfile
import unittest

from supervisor import BASELINES, TIMER, Supervisor

import reference

DOCS = BASELINES.parent / "docs"
EXAMPLE = DOCS / "examples" / "my_provider"
JAVASCRIPT = DOCS / "examples" / "my_provider_js"


class Examples(unittest.TestCase):
    def agree(self, worker):
        for rows, width in ((1, 8), (3, 17), (16, 576)):
            for layout in ({}, {"pad": 3, "lead": 1}):
                case = reference.make("rms_norm", "F32", rows, width)
                answer, found = worker.run("c", case, **layout)
                self.assertEqual(answer, {"verb": "checked", "case": "c"})
                self.assertLessEqual(reference.worst(case, found)[1], 1)
        self.assertEqual(worker.ask("release", case="c")["verb"], "released")
        self.assertEqual(worker.ask("witness")["verb"], "witnessed")

    def test_the_python_example_runs_from_a_folder_beside_protocol(self):
        with tempfile.TemporaryDirectory() as folder:
            baselines = pathlib.Path(folder)
            for module in BASELINES.glob("*.py"):
                shutil.copy(module, baselines)
            copied = shutil.copytree(EXAMPLE, baselines / "my_provider")
            with Supervisor("my_provider", copied / "worker.py", {"PYTHONPATH": ""}) as worker:
                self.agree(worker)
                if TIMER:
                    case = reference.make("rms_norm", "F32", 4, 256)
                    worker.ask("prepare", **worker.pose("m", case))
                    worker.measure("m", "warm", samples=200)
                    self.assertTrue(worker.measure("m", "turn", publish=True)["elapsed_ns"])
                    self.assertLessEqual(reference.worst(case, worker.outputs("m"))[1], 1)
                self.assertEqual(worker.end(), 0)

    def test_the_example_has_under_thirty_lines_and_the_lock_of_numpy(self):
        self.assertLess(len((EXAMPLE / "worker.py").read_text().splitlines()), 30)
        lock = "requirements.lock"
        self.assertEqual((EXAMPLE / lock).read_bytes(), (BASELINES / "numpy" / lock).read_bytes())

    @unittest.skipUnless(shutil.which("node"), "node is not installed")
    def test_the_javascript_example_runs(self):
        with Supervisor("my_provider_js", JAVASCRIPT / "worker.mjs", python=shutil.which("node")) as worker:
            self.agree(worker)
            self.assertEqual(worker.end(), 0)

    def test_the_page_shows_the_files_as_they_are(self):
        page = (DOCS / "workers.md").read_text(encoding="utf-8")
        for path in (EXAMPLE / "worker.py", EXAMPLE / "provider.toml", JAVASCRIPT / "worker.mjs"):
            self.assertIn(path.read_text(encoding="utf-8"), page, path.name)


if __name__ == "__main__":
    unittest.main()
