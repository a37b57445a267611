"""How the `inductor` provider compiles and chooses, over a stand-in for PyTorch: what a failure leaves behind."""

import os
import subprocess
import sys
import textwrap
import unittest

from supervisor import BASELINES

PREPARED = """
import sys
from types import SimpleNamespace
from unittest.mock import MagicMock
torch = MagicMock()
class AcceleratorError(RuntimeError):
    pass
torch.AcceleratorError = AcceleratorError
torch.compile = lambda function, **ways: function
for name in ("_dynamo", "_inductor", "_inductor.config", "_inductor.runtime", "_inductor.runtime.benchmarking"):
    sys.modules["torch." + name] = MagicMock()
sys.modules["torch"], sys.modules["torch_tensors"] = torch, MagicMock()
import worker
worker.dynamo.utils.counters = {"stats": {"unique_graphs": 0}}
worker.over = lambda case, *names: [MagicMock(shape=(1,), dtype=n, **{"stride.return_value": (1,)}) for n in names]
CASE = SimpleNamespace(threads=1, operator="silu_and_mul", params={})

def told(function, *arguments):
    try:
        return function(*arguments)
    except Exception as error:
        return str(error)

def fails(*tensors):
    raise ValueError("no code")

def breaks(*tensors):
    raise AcceleratorError("the device is gone")
"""


def said(device, script):
    """The lines that a script prints over the stand-in."""
    environment = {"PATH": os.environ.get("PATH", ""), "PROOFHOUSE_DEVICE": device}
    environment["PYTHONPATH"] = os.pathsep.join([str(BASELINES / "inductor"), str(BASELINES)])
    command = [sys.executable, "-B", "-c", PREPARED + textwrap.dedent(script)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    if ended.returncode:
        raise AssertionError(ended.stderr)
    return ended.stdout.splitlines()


class Compiling(unittest.TestCase):
    def test_only_one_process_at_a_time_times_what_it_compiled(self):
        script = """
            import multiprocessing, os, time
            spans = multiprocessing.get_context("fork").Queue()
            @worker.alone
            def timed(depth):
                begun = time.monotonic()
                time.sleep(0.05)
                if depth:
                    timed(0)
                spans.put((begun, time.monotonic()))
            children = [multiprocessing.get_context("fork").Process(target=timed, args=(1,)) for _ in range(4)]
            [child.start() for child in children]
            found = sorted(spans.get(timeout=60) for _ in range(8))
            [child.join() for child in children]
            outer = [span for span in found if span[1] - span[0] > 0.09]
            print(len(outer), all(left[1] <= right[0] for left, right in zip(outer, outer[1:])))
            print(worker.benchmarking.benchmarker.benchmark_gpu.__name__)
        """
        self.assertEqual(said("cuda:GPU-none", script), ["4 True", "locked"])

    def test_a_case_for_which_nothing_is_compiled_is_an_error_each_time(self):
        for device in ("cpu", "cuda:GPU-none"):
            script = """
                bind = worker.binder(lambda x, y: None, ("x", "y"), ())
                worker.graph_time = lambda run: 1.0
                for _ in range(2):
                    print(str(told(bind, CASE)).partition(" for ")[0])
            """
            self.assertEqual(said(device, script), ["torch.compile compiled nothing"] * 2, device)

    def test_a_form_that_is_compiled_is_kept(self):
        script = """
            calls = []
            def compiled(x, y):
                calls.append(1)
                worker.dynamo.utils.counters["stats"]["unique_graphs"] = 1
            bind = worker.binder(compiled, ("x", "y"), ())
            for _ in range(3):
                bind(CASE)
            print(len(calls))
        """
        self.assertEqual(said("cpu", script), ["1"])


class Choosing(unittest.TestCase):
    def test_the_fastest_form_is_taken_and_one_that_fails_is_left_out(self):
        script = """
            times = {}
            def form(name, ms):
                def run(*tensors):
                    times["last"] = ms
                run.__name__ = name
                return run
            worker.graph_time = lambda run: times["last"]
            slow, fast = form("slow", 2.0), form("fast", 1.0)
            for forms in ([slow, fast], [fast, slow], [fails, slow], [slow, fails], [fast, form("even", 1.0)]):
                print(worker.fastest(forms, [MagicMock()], {}).__name__)
            print(told(worker.fastest, [fails, fails], [], {}))
            print(told(worker.fastest, [slow, breaks], [], {}))
        """
        expected = ["fast", "fast", "slow", "slow", "fast", "no code", "the device is gone"]
        self.assertEqual(said("cuda:GPU-none", script), expected)

    def test_a_form_for_which_there_is_no_memory_is_left_out(self):
        script = """
            copies = []
            def copy_of(tensor):
                copies.append(tensor)
                if len(copies) > 1:
                    raise MemoryError("no room")
            worker.copy_of, worker.graph_time = copy_of, lambda run: 1.0
            def first(*tensors): pass
            def second(*tensors): pass
            found = told(worker.fastest, [first, second], [MagicMock()], {})
            print(getattr(found, "__name__", found))
        """
        self.assertEqual(said("cuda:GPU-none", script), ["first"])

    def test_what_other_streams_do_is_waited_for_before_a_form_runs_on_a_stream_of_its_own(self):
        script = """
            order = []
            torch.cuda.synchronize = lambda: order.append("wait")
            torch.cuda.Event.return_value.elapsed_time.return_value = 1.0
            worker.graph_time(lambda: order.append("run"))
            print(*order[:2])
        """
        self.assertEqual(said("cuda:GPU-none", script), ["wait run"])


if __name__ == "__main__":
    unittest.main()
