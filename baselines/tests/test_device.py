"""Workers on a device, without one: the memory seam over a fake, graphs, and what ends a worker."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from supervisor import BASELINES, Supervisor

import numpy as np

import reference
from device import ALIGNMENT, Memory, same_uuid
from tensors import Tensor
from test_protocol import NUMPY, numpy_worker

FAKE = BASELINES / "tests" / "fake_device"
UUID = "GPU-0c0ffee0-1111-2222-3333-444455556666"
ODD = ("rms_norm", "F32", 5, 33)


def planted(kind, asked="cuda:" + UUID, found=UUID):
    """A worker on the fake device with a planted behavior."""
    variables = {"PLANTED": kind, "PROOFHOUSE_DEVICE": asked, "FAKE_UUID": found}
    return Supervisor("planted", FAKE / "worker.py", variables)


def fake_device():
    """The fake device itself, in this process."""
    sys.path.insert(0, str(FAKE))
    try:
        import torch_device
    finally:
        sys.path.remove(str(FAKE))
    assert pathlib.Path(torch_device.__file__).parent == FAKE
    return torch_device.Device({})


def started(script, variables):
    """The exit status and standard error of a worker that ends before its hello."""
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(BASELINES), "PROOFHOUSE_NONCE": "n"}
    environment.update(PROOFHOUSE_SOCKET="/nowhere", **variables)
    ended = subprocess.run([sys.executable, "-B", str(script)], env=environment, capture_output=True, timeout=120)
    return ended.returncode, ended.stderr.decode()


class Device(unittest.TestCase):
    def test_uuids_are_the_same_whatever_their_prefix_and_case(self):
        self.assertTrue(same_uuid(UUID, UUID[4:].upper()))
        self.assertTrue(same_uuid(UUID.lower(), UUID))
        for left, right in ((UUID, UUID[:-1] + "7"), ("", ""), ("GPU-", "")):
            self.assertFalse(same_uuid(left, right))

    def test_the_hello_names_the_device_and_says_that_it_captures(self):
        with planted("none") as worker:
            self.assertEqual(worker.hello["device"], {"kind": "cuda", "uuid": UUID, "name": "a fake"})
            self.assertTrue(worker.hello["capabilities"]["graph"])
            self.assertEqual(worker.end(), 0)
        with numpy_worker() as worker:
            self.assertNotIn("device", worker.hello)
            self.assertFalse(worker.hello["capabilities"]["graph"])

    def test_another_device_than_the_one_asked_for_ends_the_worker(self):
        variables = {"PLANTED": "none", "PROOFHOUSE_DEVICE": "cuda:" + UUID, "FAKE_UUID": "GPU-other"}
        status, said = started(FAKE / "worker.py", variables)
        self.assertEqual(status, 1)
        self.assertIn("asks for " + UUID, said)
        self.assertIn("GPU-other", said)

    def test_a_provider_runs_only_where_it_says(self):
        status, said = started(NUMPY, {"PROOFHOUSE_DEVICE": "cuda:" + UUID, "PYTHONPATH": str(FAKE)})
        self.assertEqual((status, said.strip()), (1, "numpy runs on cpu; PROOFHOUSE_DEVICE asks for cuda"))
        status, said = started(FAKE / "worker.py", {"PLANTED": "none"})
        self.assertEqual((status, said.strip()), (1, "planted runs on cuda; PROOFHOUSE_DEVICE asks for cpu"))
        status, said = started(NUMPY, {"PROOFHOUSE_DEVICE": "abacus:1"})
        self.assertEqual(status, 1)
        self.assertIn("'abacus'; accepted: cpu, cuda:UUID", said)


class Exchange(unittest.TestCase):
    def test_outputs_come_back_and_nothing_else_changes(self):
        with planted("none") as worker:
            for layout in ({}, {"pad": 3, "lead": 1}):
                for rows, width in ((1, 8), (5, 33)):
                    case = reference.make("rms_norm", "F32", rows, width)
                    answer, found = worker.run("c", case, **layout)
                    self.assertEqual(answer, {"verb": "checked", "case": "c"})
                    self.assertLessEqual(reference.worst(case, found)[1], 1)

    def test_what_a_call_does_out_of_bounds_comes_back(self):
        for kind in ("writes-its-input", "writes-in-front", "writes-between-rows"):
            with self.subTest(kind), planted(kind) as worker:
                with self.assertRaisesRegex(AssertionError, "outside the outputs"):
                    worker.run("c", reference.make(*ODD), pad=3, lead=1)

    def test_what_is_not_written_comes_back_as_the_poison_that_was_sent(self):
        with planted("writes-nothing") as worker:
            _, found = worker.run("c", reference.make(*ODD))
            self.assertEqual(set(found["y"].tobytes()), {0xA5})

    def test_new_contents_in_the_same_file_give_new_results(self):
        first, second = (reference.make(*ODD, seed=seed) for seed in (1, 2))
        with planted("none") as worker:
            worker.run("c", first)
            worker.pose("c", second)
            self.assertEqual(worker.ask("check", case="c", checked=False)["verb"], "checked")
            self.assertLessEqual(reference.worst(second, worker.outputs("c"))[1], 1)

    def test_a_tensor_beyond_its_storage_is_refused_by_name(self):
        with planted("none") as worker:
            for field, value in (("span", 4), ("offset", 1 << 40)):
                request = worker.pose("c", reference.make(*ODD))
                request["tensors"][2][field] = value
                answer = worker.ask("prepare", **request)
                self.assertEqual(answer["verb"], "refused", answer)
                self.assertEqual((answer["error"]["kind"], answer["error"]["argument"]), ("storage_too_short", "y"))

    def test_a_tensor_between_elements_is_unsupported(self):
        with planted("none") as worker:
            request = worker.pose("c", reference.make(*ODD))
            request["tensors"][0]["offset"] += 1
            request["tensors"][0]["span"] += 1
            answer = worker.ask("prepare", **request)
            self.assertEqual(answer["verb"], "unsupported", answer)
            self.assertIn("between elements", answer["reason"])


class Placement(unittest.TestCase):
    """Where tensors lie on the device, over the fake in this process."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name) / "case"
        self.path.write_bytes(np.random.default_rng(0).integers(0, 256, 8192, np.uint8).tobytes())
        self.device = fake_device()

    def tensor(self, name, role, offset, span, path=None):
        fields = {"name": name, "role": role, "file": str(path or self.path), "dtype": "F32", "guard": 256}
        return Tensor({**fields, "shape": [span // 4], "strides": [1], "offset": offset, "span": span})

    def test_addresses_keep_their_residue_and_their_distances(self):
        tensors = [self.tensor("x", "in", 832, 64), self.tensor("y", "out", 2052, 40)]
        memory = Memory(tensors, self.device)
        memory.stage()
        copies = memory.copies()
        for arrays in (memory.arrays, copies):
            for tensor in tensors:
                self.assertEqual((arrays[tensor.name].ctypes.data - tensor.offset) % ALIGNMENT, 0)
        apart = memory.arrays["y"].ctypes.data - memory.arrays["x"].ctypes.data
        self.assertEqual(apart, 2052 - 832)
        memory.load()
        raw = self.path.read_bytes()
        for arrays in (memory.arrays, copies):
            self.assertEqual(arrays["x"].tobytes(), raw[832 : 832 + 64])

    def test_tensors_that_overlap_in_a_file_overlap_on_the_device_by_any_name_of_it(self):
        other = self.path.with_name("again")
        os.link(self.path, other)
        tensors = [self.tensor("x", "in_out", 1024, 64), self.tensor("y", "out", 1056, 64, other)]
        memory = Memory(tensors, self.device)
        memory.load()
        memory.arrays["y"][0] = 5
        self.assertEqual(memory.arrays["x"][8], 5)
        memory.store()
        self.assertEqual(np.frombuffer(self.path.read_bytes(), np.float32, 1, 1056)[0], 5)

    def test_a_private_set_is_refilled_from_the_file_and_publishes_what_it_wrote(self):
        tensors = [self.tensor("x", "in", 1024, 64), self.tensor("y", "out", 2048, 64)]
        memory = Memory(tensors, self.device)
        memory.stage()
        copies = memory.copies()
        with open(self.path, "r+b") as file:
            file.seek(1024)
            file.write(np.arange(16, dtype=np.float32).tobytes())
        self.assertNotEqual(copies["x"][3], 3)
        copies["y"][...] = 7
        memory.refill(copies)
        self.assertNotEqual(copies["x"][3], 3, "what was staged before")
        memory.stage()
        memory.refill(copies)
        self.assertEqual((copies["x"][3], copies["y"][3]), (3, 7))
        memory.publish(copies)
        self.assertEqual(np.frombuffer(self.path.read_bytes(), np.float32, 16, 2048).tolist(), [7] * 16)

    def test_a_tensor_without_elements_has_its_shape_and_nothing_else(self):
        fields = {"name": "x", "role": "in", "file": str(self.path), "dtype": "F32", "guard": 256}
        empty = Tensor({**fields, "shape": [0, 8], "strides": [8, 1], "offset": 1024, "span": 0})
        memory = Memory([empty, self.tensor("y", "out", 2048, 64)], self.device)
        memory.load()
        memory.stage()
        self.assertEqual((memory.arrays["x"].shape, memory.copies()["x"].shape), ((0, 8), (0, 8)))

    def test_guards_at_the_ends_of_a_file_may_be_cut_short(self):
        memory = Memory([self.tensor("x", "in_out", 0, 64), self.tensor("y", "out", 8192 - 64, 64)], self.device)
        memory.load()
        before = self.path.read_bytes()
        memory.store()
        self.assertEqual(self.path.read_bytes(), before)


class Graphs(unittest.TestCase):
    def test_a_captured_call_is_replayed_on_new_contents(self):
        with planted("none") as worker:
            worker.run("c", reference.make(*ODD, seed=1))
            kernels = ["norm grid=(1,1,1) block=(32,1,1)"]
            captured = {"verb": "captured", "case": "c", "nodes": 2, "kernels": kernels}
            self.assertEqual(worker.ask("capture", case="c"), captured)
            self.assertEqual(worker.ask("witness")["kernels"], kernels)
            for seed in (2, 3):
                case = reference.make(*ODD, seed=seed)
                worker.pose("c", case)
                self.assertEqual(worker.ask("replay", case="c"), {"verb": "replayed", "case": "c"})
                self.assertLessEqual(reference.worst(case, worker.outputs("c"))[1], 1)

    def test_a_graph_that_remembers_its_first_input_shows(self):
        second = reference.make(*ODD, seed=2)
        with planted("remembers") as worker:
            worker.run("c", reference.make(*ODD, seed=1))
            worker.ask("capture", case="c")
            worker.pose("c", second)
            self.assertEqual(worker.ask("replay", case="c")["verb"], "replayed")
            self.assertGreater(reference.worst(second, worker.outputs("c"))[1], 1)

    def test_what_cannot_be_captured_is_unsupported_with_the_reason_and_not_replayed(self):
        with planted("reads-back") as worker:
            worker.run("c", reference.make(*ODD))
            answer = worker.ask("capture", case="c")
            self.assertEqual((answer["verb"], answer["case"]), ("unsupported", "c"))
            self.assertIn("reads a value back", answer["reason"])
            self.assertIn("before the capture", worker.ask("replay", case="c")["detail"])
            self.assertEqual(worker.ask("check", case="c", checked=False)["verb"], "checked")

    def test_a_worker_on_the_processor_captures_nothing(self):
        with numpy_worker() as worker:
            worker.run("c", reference.make(*ODD))
            for verb in ("capture", "replay"):
                answer = worker.ask(verb, case="c")
                self.assertEqual((answer["verb"], answer["case"]), ("unsupported", "c"))
                self.assertIn("needs a device", answer["reason"])
                self.assertEqual(worker.ask(verb, case="none")["verb"], "failed")
            self.assertEqual(worker.end(), 0)


class Errors(unittest.TestCase):
    def test_a_worker_goes_on_after_what_leaves_the_device_as_it_was(self):
        with planted("raises") as worker:
            self.assertEqual(worker.run("c", reference.make(*ODD))[0]["verb"], "failed")
            self.assertEqual(worker.ask("release", case="c")["verb"], "released")
            self.assertEqual(worker.end(), 0)

    def test_a_worker_ends_without_an_answer_when_its_device_is_lost(self):
        for kind in ("sticky", "sticky-declines"):
            with self.subTest(kind), planted(kind) as worker:
                worker.ask("prepare", **worker.pose("c", reference.make(*ODD)))
                with self.assertRaises(ValueError):  # the socket closes: there is no line
                    worker.ask("check", case="c", checked=False)
                status, said = worker.gives_up()
                self.assertEqual(status, 70)
                self.assertIn("the device is lost", said)

    def test_a_worker_that_cannot_time_on_its_device_says_so(self):
        with planted("none") as worker:
            self.assertFalse(worker.hello["capabilities"]["measure"])
            worker.run("c", reference.make(*ODD))
            self.assertIn("no device to time on", worker.measure("c", "warm")["reason"])


if __name__ == "__main__":
    unittest.main()
