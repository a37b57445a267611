"""Measuring on a GPU, without one: timer_cuda.py over a timer and a stream that are fakes.

PROOFHOUSE_TIMER_CUDA names the real library, whose layout is then checked as far as it goes without a device.
"""

import ctypes
import gc
import json
import os
import sys
import types
import unittest
from unittest import mock

import supervisor  # noqa: F401  (puts the baselines on the path)

import numpy as np

import timer_abi
import timer_cuda
from refusals import Unsupported
from timer_abi import CAPACITY, DEVICE, I32, INVALID, OK, U32, U64, Plan, Report, Sample, Turn
from timer_cuda import Cell, Measurement, Setup

REAL = os.environ.get("PROOFHOUSE_TIMER_CUDA", "")
SETS, ROUNDS, WARM, REWARM = 3, 2, 4, 1
GUESSED = 2  # calls of the fake's guess
KERNEL = "norm grid=(1,1,1) block=(32,1,1)"
VOID = ctypes.c_void_p
P = ctypes.POINTER


class FakeTimer:
    """The C interface over callbacks, through ctypes on both sides; it calls as the timer does and times nothing.

    `fails`: the status and text that a function gives in place of its work, by name.
    """

    def __init__(self, fails=None, padding=0):
        self.fails, self.padding, self.closed, self.setup, self.graph = fails or {}, padding, 0, None, None
        self.dwell = 0
        shapes = {
            "open": (self.open, P(Setup), P(VOID), P(Report)),
            "plan": (self.plan, VOID, P(Cell), P(Plan), P(Report)),
            "warm": (self.warm, VOID, P(Report)),
            "warm_up": (self.warm_up, VOID, P(Sample), U32, P(Report)),
            "turn": (self.turn, VOID, P(Turn), P(Sample), U32, P(Report)),
            "told": (self.told, VOID, VOID, U64, P(U64), P(Report)),
        }
        self.functions = {
            name: ctypes.PYFUNCTYPE(I32, *shape)(self.reporting(name, function))
            for name, (function, *shape) in shapes.items()
        }
        self.functions["close"] = self.close

    def reporting(self, name, function):
        """The function as the interface has it: a size that is checked, a status, a report."""

        def call(*arguments):
            report = arguments[-1][0]
            assert report.size == ctypes.sizeof(Report), report.size
            report.message, report.samples = b"", 0
            status, text = self.fails[name] if name in self.fails else function(*arguments[:-1], report)
            report.status, report.message = status, text.encode()
            return status

        return call

    def called(self, callback, *arguments):
        """Whether a callback did its work."""
        return callback(None, *arguments) == 1

    def open(self, setup, handle, _report):
        assert setup[0].size == ctypes.sizeof(Setup) and setup[0].stream == 77
        self.setup, handle[0] = Setup.from_buffer_copy(setup[0]), 4711
        self.graphs = setup[0].launch == 1
        return OK, ""

    def run(self, sets, calls):
        """Captures once, then replays; or enqueues."""
        if not self.graphs:
            return all(self.called(self.setup.enqueue, call % sets) for call in range(calls))
        if self.graph is None or self.graph[0] != (sets, calls):
            address = VOID()
            if not self.called(self.setup.capture, 0, 0, sets, calls, ctypes.byref(address)):
                return False
            self.graph = (sets, calls), address.value
        FakeStream.replay(self.graph[1])
        return True

    def plan(self, handle, cell, plan, _report):
        assert (handle, cell[0].size) == (4711, ctypes.sizeof(Cell))
        self.cell = {name: getattr(cell[0], name) for name, _ in Cell._fields_}
        if not self.called(self.setup.enqueue, 0) or not self.run(1, GUESSED):
            return DEVICE, "the device failed: callback"
        plan[0].sets, plan[0].calls, plan[0].rewarm_samples = SETS, ROUNDS * SETS, REWARM
        plan[0].dwell = self.dwell
        return OK, ""

    def sample(self, index, phase):
        calls = ROUNDS * SETS
        return Sample(index=index, phase=phase, first_set=0, calls=calls, elapsed_ns=1000.0 + index, region_ns=2000)

    def region(self):
        """Restores and runs one sample's calls."""
        if self.cell["in_place"] and not all(self.called(self.setup.restore, index) for index in range(SETS)):
            return False
        return self.run(SETS, ROUNDS * SETS)

    def warm(self, _handle, report):
        report.calls, report.warm_up_samples = ROUNDS * SETS, WARM
        return (OK, "") if all(self.region() for _ in range(WARM)) else (DEVICE, "the device failed: callback")

    def warm_up(self, _handle, out, capacity, report):
        report.calls, report.samples = ROUNDS * SETS, WARM
        assert capacity == WARM
        for index in range(WARM):
            out[index] = self.sample(index, 0)
        return OK, ""

    def turn(self, _handle, turn, out, capacity, report):
        assert turn[0].size == ctypes.sizeof(Turn) and turn[0].one_set == timer_abi.ROTATING
        self.slowdown, self.count = turn[0].slowdown, turn[0].samples
        assert capacity == self.count + REWARM
        for index in range(capacity):
            if not self.region():
                return DEVICE, "the device failed: callback"
            out[index] = self.sample(index, 1 if index < REWARM else timer_abi.JUDGED)
        report.calls, report.samples, report.untimed_ns, report.loaded_code = ROUNDS * SETS, capacity, 500, 9
        return OK, ""

    def told(self, _handle, text, capacity, length, _report):
        count = getattr(self, "count", 0)
        telemetry = {"sm_mhz": [1980.0] * count, "reasons": [0] * count}
        told = {"enqueue_ns": [] if self.graphs else [50.0] * count, "telemetry": telemetry, "reuse": "rotated"}
        told.update(kernels=[KERNEL] if self.graphs else [], telemetry_missing=None, retaken=0, exposed_regions=0)
        whole = json.dumps(told).encode() + b" " * self.padding
        length[0] = len(whole)
        if len(whole) > capacity:
            return CAPACITY, "room"
        ctypes.memmove(text, whole, len(whole))
        return OK, ""

    def close(self, _handle):
        self.closed += 1


class FakeStream:
    """A stream of NumPy's memory: what is enqueued is done at once, and a graph is what was enqueued."""

    kept = {}
    raw = 77
    collects = None

    def __init__(self):
        self.depth = 0
        type(self).kept, type(self).collects = {}, []

    def current(self):
        return self

    def __enter__(self):
        self.depth += 1

    def __exit__(self, *_):
        self.depth -= 1

    def settle(self):
        assert self.depth == 1

    def clone(self, array):
        return array.copy()

    def fill(self, array, byte):
        array.view(np.uint8)[...] = byte

    def capture(self, enqueue):
        enqueue()
        address = 1000 + len(self.kept)
        self.kept[address] = enqueue
        return address, address

    @classmethod
    def replay(cls, address):
        cls.collects.append(gc.isenabled())
        cls.kept[address]()


class Prepared:
    """A case whose files hold `x` (input), `z` (changed in place: z += x) and `y` (output: z after that).

    `planted` is called with the set's number before each call.
    """

    def __init__(self, in_place=True, planted=lambda index: None):
        roles = {"x": "in", "z": "in_out", "y": "out"} if in_place else {"x": "in", "y": "out"}
        self.tensors = [types.SimpleNamespace(name=name, role=role, span=32) for name, role in roles.items()]
        self.files = {name: np.full(4, value, np.float64) for value, name in enumerate(roles, 1)}
        self.memory = types.SimpleNamespace(device=types.SimpleNamespace(copy=np.copyto))
        self.planted, self.made, self.order, self.mapped = planted, [], [], 7

    def stage(self):
        self.staged = {name: array.copy() for name, array in self.files.items()}

    def private_set(self):
        tensors, index = {name: array.copy() for name, array in self.staged.items()}, len(self.made)
        self.made.append(tensors)

        def run():
            self.planted(index)
            self.order.append(index)
            if "z" in tensors:
                tensors["z"] += tensors["x"]
            tensors["y"][...] = tensors["z"] if "z" in tensors else -tensors["x"]

        return types.SimpleNamespace(tensors=tensors), run

    def refill(self, tensors):
        for tensor in self.tensors:
            if tensor.role != "out":
                np.copyto(tensors[tensor.name], self.staged[tensor.name])

    def publish(self, tensors):
        for tensor in self.tensors:
            if tensor.role != "in":
                np.copyto(self.files[tensor.name], tensors[tensor.name])

    def modules(self):
        return self.mapped


def asked(phase, **fields):
    """A request."""
    request = {"phase": phase, "samples": 5, "min_sample_ns": 200e3, "cache": "cold", "launch": "graph"}
    return {**request, "footprint": 11, "publish": False, **fields}


class OverFakes(unittest.TestCase):
    def measuring(self, prepared, timer=None, **fields):
        """A measurement over the fakes."""
        self.timer = timer or FakeTimer()
        before, timer_cuda._LIBRARY = timer_cuda._LIBRARY, self.timer.functions
        self.addCleanup(setattr, timer_cuda, "_LIBRARY", before)
        return Measurement(prepared, asked("warm", **fields), FakeStream)

    def test_a_warm_up_and_a_turn_answer_in_the_protocols_words(self):
        measurement = self.measuring(Prepared(in_place=False))
        warm = measurement.take(asked("warm"))
        self.assertEqual((warm["elapsed_ns"], warm["reuse"]), ([1000.0, 1001.0, 1002.0, 1003.0], "rotated"))
        self.assertEqual((warm["calls"], warm["sets"], warm["modules"]), (ROUNDS * SETS, SETS, [7, 7]))
        turn = measurement.take(asked("turn", slowdown=0.25))
        self.assertEqual(turn["elapsed_ns"], [1001.0, 1002.0, 1003.0, 1004.0, 1005.0])
        self.assertEqual((turn["timed"], turn["untimed"]), (5015.0, 500 + 1000.0))
        self.assertEqual((turn["invalid"], turn["modules"], turn["reuse"]), ([], [9, 9], "rotated"))
        self.assertEqual((turn["kernels"], turn["enqueue_ns"]), ([KERNEL], []))
        self.assertEqual(turn["telemetry"], {"sm_mhz": [1980.0] * 5, "reasons": [0] * 5})
        self.assertEqual(self.timer.slowdown, 0.25)
        known = {"elapsed_ns", "untimed", "modules", "invalid", "enqueue_ns", "telemetry", "kernels", "reuse", "retaken"}
        self.assertEqual(set(turn), known | {"calls", "sets", "timed", "wall"})
        json.dumps(turn)

    def test_the_cell_is_described_and_a_graph_is_captured_once_and_goes_round_the_sets(self):
        prepared = Prepared(in_place=False)
        measurement = self.measuring(prepared)
        measurement.take(asked("warm", cache="hot", min_sample_ns=5.0))
        expected = {"in_place": 0, "cache": 0, "footprint_bytes": 64, "reuse_bytes": 11, "min_sample_ns": 5.0}
        self.assertEqual({name: self.timer.cell[name] for name in expected}, expected)
        self.assertEqual(len(FakeStream.kept), 2)  # the guess and the sample
        self.assertEqual(len(measurement.graphs), 1)  # what was guessed with is gone
        self.assertEqual(prepared.order[-ROUNDS * SETS :], [0, 1, 2, 0, 1, 2])
        measurement.take(asked("turn"))
        self.assertEqual(len(FakeStream.kept), 2)

    def test_every_set_is_called_before_it_is_captured_and_has_its_contents_back(self):
        prepared = Prepared()
        measurement = self.measuring(prepared)
        seen = {}

        def capture(enqueue, kept=FakeStream.capture):
            seen[len(seen)] = (sorted(set(prepared.order)), [tensors["z"][0] for tensors in prepared.made])
            return kept(measurement.stream, enqueue)

        measurement.stream.capture = capture
        measurement.take(asked("warm"))
        self.assertEqual(seen[1][0], [0, 1, 2])
        self.assertEqual(seen[1][1][1:], [2.0, 2.0])

    def test_eager_calls_tell_the_hosts_time_and_no_kernels(self):
        measurement = self.measuring(Prepared(), launch="eager")
        measurement.take(asked("warm", launch="eager"))
        turn = measurement.take(asked("turn", launch="eager"))
        self.assertEqual((turn["enqueue_ns"], turn["kernels"]), ([50.0] * 5, []))
        self.assertEqual(FakeStream.kept, {})

    def test_what_is_published_is_of_the_last_call_over_restored_inputs(self):
        prepared = Prepared()
        measurement = self.measuring(prepared)
        measurement.take(asked("warm"))
        measurement.take(asked("turn", publish=True))
        self.assertEqual(prepared.files["z"].tolist(), [2.0 + ROUNDS * 1.0] * 4)
        self.assertEqual(prepared.files["y"].tolist(), prepared.files["z"].tolist())

    def test_what_is_not_written_while_timed_shows_as_poison(self):
        prepared = Prepared(in_place=False)
        measurement = self.measuring(prepared, launch="eager")
        measurement.take(asked("warm", launch="eager"))
        measurement.runs = [lambda: None] * SETS
        measurement.take(asked("turn", launch="eager", publish=True))
        self.assertEqual(set(prepared.files["y"].tobytes()), {timer_cuda.TURN_POISON})

    def test_calls_stay_on_a_buffer_set_as_long_as_the_plan_says(self):
        timer = FakeTimer()
        timer.dwell = SETS
        prepared = Prepared(in_place=False)
        measurement = self.measuring(prepared, timer)
        warm = measurement.take(asked("warm"))
        self.assertEqual((len(prepared.made), warm["sets"]), (1, 1))
        prepared.files["x"][...] = 5.0
        turn = measurement.take(asked("turn", refresh=True, publish=True))
        self.assertEqual((turn["calls"], turn["sets"]), (ROUNDS * SETS, 1))
        self.assertEqual(set(prepared.order), {0})
        self.assertEqual(prepared.files["y"].tolist(), [-5.0] * 4)
        order, measurement.dwell = [], 2
        measurement.runs = [lambda index=index: order.append(index) for index in range(3)]
        measurement.capture(None, 0, 0, 6, 8, [None])
        self.assertEqual(order, [0, 0, 1, 1, 2, 2, 0, 0])

    def test_a_refresh_renews_the_contents_that_sets_are_restored_to(self):
        prepared = Prepared()
        measurement = self.measuring(prepared)
        measurement.take(asked("warm"))
        before = [id(array) for tensors in prepared.made for array in tensors.values()]
        prepared.files["x"][...], prepared.files["z"][...] = 10.0, 100.0
        measurement.take(asked("turn", refresh=True, publish=True))
        self.assertEqual(prepared.files["y"].tolist(), [100.0 + ROUNDS * 10.0] * 4)
        self.assertEqual([id(array) for tensors in prepared.made for array in tensors.values()], before)

    def test_a_call_that_fails_is_raised_as_itself_and_gives_no_sample(self):
        def planted(index):
            if index == 1:
                raise ValueError("planted")

        for launch in ("eager", "graph"):
            prepared = Prepared(planted=lambda index: None)
            measurement = self.measuring(prepared, launch=launch)
            if launch == "graph":
                with self.assertRaisesRegex(ValueError, "planted"):
                    prepared.planted = planted
                    measurement.take(asked("warm", launch=launch))
                continue
            measurement.take(asked("warm", launch=launch))
            prepared.planted = planted
            with self.assertRaisesRegex(ValueError, "planted"):
                measurement.take(asked("turn", launch=launch))
            self.assertTrue(gc.isenabled())

    def test_calls_that_cannot_be_captured_are_unsupported(self):
        measurement = self.measuring(Prepared())

        def capture(_enqueue):
            raise Unsupported("calls cannot be captured: it reads a value back")

        measurement.stream.capture = capture
        with self.assertRaisesRegex(Unsupported, "reads a value back"):
            measurement.take(asked("warm"))

    def test_a_restore_that_fails_is_raised_as_itself(self):
        prepared = Prepared()
        measurement = self.measuring(prepared)
        measurement.take(asked("warm"))
        measurement.contents["z"] = np.zeros(3)
        with self.assertRaises(ValueError):
            measurement.take(asked("turn"))

    def test_reasons_of_the_timer_are_data(self):
        text = "no-kernels: 0 kernels for 6 calls\nzero-time: no time"
        expected = [{"code": "no-kernels", "detail": "0 kernels for 6 calls"}]
        expected.append({"code": "zero-time", "detail": "no time"})
        for function in ("plan", "warm"):
            measurement = self.measuring(Prepared(), FakeTimer({function: (INVALID, text)}))
            warm = measurement.take(asked("warm"))
            self.assertEqual((warm["elapsed_ns"], warm["timed"], warm["invalid"]), ([], 0, expected))
        measurement = self.measuring(Prepared(), FakeTimer({"turn": (INVALID, text)}))
        measurement.take(asked("warm"))
        turn = measurement.take(asked("turn", publish=True))
        self.assertEqual((turn["elapsed_ns"], turn["invalid"]), ([], expected))
        measurement = self.measuring(Prepared(), FakeTimer({"warm": (6, "it drifts")}))
        found = measurement.take(asked("warm"))["invalid"]
        self.assertEqual(found, [{"code": "unsettled", "detail": "it drifts"}])

    def test_a_device_that_fails_is_an_error_and_no_finding(self):
        for function in ("open", "plan", "warm", "warm_up", "told"):
            timer = FakeTimer({function: (DEVICE, "cuGraphLaunch gave CUDA_ERROR_LAUNCH_FAILED (719)")})
            with self.subTest(function), self.assertRaisesRegex(RuntimeError, "719"):
                self.measuring(Prepared(), timer).take(asked("warm"))
            self.assertTrue(gc.isenabled())
        measurement = self.measuring(Prepared(), FakeTimer({"turn": (DEVICE, "code 719")}))
        measurement.take(asked("warm"))
        with self.assertRaisesRegex(RuntimeError, "719"):
            measurement.take(asked("turn"))

    def test_no_garbage_is_collected_while_it_is_timed(self):
        measurement = self.measuring(Prepared())
        measurement.take(asked("warm"))
        measurement.take(asked("turn"))
        self.assertEqual(set(FakeStream.collects), {False})
        self.assertTrue(gc.isenabled())

    def test_kernels_that_triton_loads_in_a_turn_count_as_modules(self):
        hooks, late = [], []
        runtime = types.SimpleNamespace(kernel_load_start_hook=types.SimpleNamespace(add=hooks.append))
        triton = types.SimpleNamespace(knobs=types.SimpleNamespace(runtime=runtime))
        prepared = Prepared(planted=lambda _index: late and late.pop()("module", "function", name="norm"))
        with mock.patch.dict(sys.modules, triton=triton), mock.patch.object(timer_cuda, "_loads", timer_cuda._Loads()):
            measurement = self.measuring(prepared, launch="eager")
            measurement.take(asked("warm", launch="eager"))
            self.assertEqual(measurement.take(asked("turn", launch="eager"))["modules"], [9, 9])
            late.append(hooks[0])
            self.assertEqual(measurement.take(asked("turn", launch="eager"))["modules"], [9, 10])
            self.assertEqual(measurement.take(asked("turn", launch="eager"))["modules"], [10, 10])
            self.assertEqual(len(hooks), 1)

    def test_a_long_text_is_asked_for_again_with_room(self):
        measurement = self.measuring(Prepared(), FakeTimer(padding=timer_cuda._TEXT_BYTES))
        measurement.take(asked("warm"))
        self.assertEqual(measurement.take(asked("turn"))["kernels"], [KERNEL])

    def test_closing_ends_the_timer_before_graphs_and_sets(self):
        measurement = self.measuring(Prepared())
        measurement.take(asked("warm"))
        held = []
        self.timer.functions["close"] = lambda handle: held.append((handle.value, len(measurement.graphs)))
        measurement.close()
        self.assertEqual(held, [(4711, 1)])
        self.assertEqual((measurement.graphs, measurement.cases, measurement.handle.value), ([], [], None))


class Library(unittest.TestCase):
    def test_a_library_that_is_not_there_is_told(self):
        load = timer_abi.load
        self.assertIn("PROOFHOUSE_TIMER is not set", load("", "proofhouse_timer_cuda_", ("open",), 1)[1])
        self.assertIn("libproofhouse_timer_cuda.so", load("", "proofhouse_timer_cuda_", ("open",), 1)[1])
        self.assertIn("cannot be loaded", load("/nowhere.so", "proofhouse_timer_cuda_", ("open",), 1)[1])

    @unittest.skipUnless(REAL, "PROOFHOUSE_TIMER_CUDA names no library")
    def test_the_real_one_knows_these_structs_and_says_what_is_missing(self):
        library, why = timer_abi.load(REAL, "proofhouse_timer_cuda_", timer_cuda._FUNCTIONS, timer_cuda.ABI_VERSION)
        self.assertEqual(why, "")
        self.assertIn("accepted: 2", timer_abi.load(REAL, "proofhouse_timer_cuda_", (), 2)[1])
        report, handle = timer_abi.sized(Report), VOID()
        setup = timer_abi.sized(Setup, launch=1, stream=77)
        setup.enqueue = timer_abi.CALLBACK(lambda context, index: 1)

        def opened():
            status = library["open"](ctypes.byref(setup), ctypes.byref(handle), ctypes.byref(report))
            return status, timer_abi.text_of(report), handle.value

        setup.launch = 2
        self.assertEqual(opened(), (10, "`launch` is 2; accepted: 0 eager, 1 graph", None))
        setup.launch, setup.stream = 1, None
        self.assertEqual(opened(), (10, "`stream` is null; accepted: a stream of the caller's own", None))
        setup.stream = 77
        status, text, opened_handle = opened()
        self.assertEqual((status, opened_handle), (DEVICE, None))
        self.assertRegex(text, "libcuda is not found|no context is current|the device cannot be opened")
        for name, structs in (("plan", (Cell, Plan)), ("turn", (Turn,))):
            pointers = [ctypes.byref(timer_abi.sized(made)) for made in structs]
            rest = [None, U32(0)] if name == "turn" else []
            self.assertEqual(library[name](None, *pointers, *rest, ctypes.byref(report)), 10)
            self.assertEqual(timer_abi.text_of(report), "`timer` is null")
        library["close"](None)


if __name__ == "__main__":
    unittest.main()
