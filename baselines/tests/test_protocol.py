"""The loop of protocol.py: what it answers, and what ends it."""

import json
import unittest

import supervisor
from supervisor import BASELINES, Supervisor

import protocol
import reference

NUMPY = BASELINES / "numpy" / "worker.py"
PLANTED = BASELINES / "tests" / "planted_worker.py"
ODD = ("rms_norm", "F32", 5, 33)


def numpy_worker():
    """The numpy provider."""
    return Supervisor("numpy", NUMPY)


def planted(kind):
    """A worker with a planted behavior."""
    return Supervisor("planted", PLANTED, {"PLANTED": kind})


class Answers(unittest.TestCase):
    def test_hello_says_who_it_is_and_what_it_can_do(self):
        with numpy_worker() as worker:
            self.assertEqual((worker.hello["verb"], worker.hello["protocol"]), ("hello", protocol.PROTOCOL))
            self.assertEqual(worker.hello["pid"], worker.process.pid)
            self.assertTrue(worker.hello["language"].startswith("python 3."))
            self.assertIn("numpy", worker.hello["packages"])
            self.assertEqual(worker.end(), 0)

    def test_a_case_is_prepared_checked_and_released(self):
        case = reference.make(*ODD)
        with numpy_worker() as worker:
            answer, found = worker.run("c", case)
            self.assertEqual(answer, {"verb": "checked", "case": "c"})
            self.assertLessEqual(reference.worst(case, found)[1], 1)
            self.assertEqual(worker.ask("release", case="c"), {"verb": "released", "case": "c"})
            self.assertEqual(worker.ask("check", case="c", checked=False)["verb"], "failed")

    def test_new_contents_in_the_same_file_give_new_results(self):
        first, second = reference.make(*ODD, seed=1), reference.make(*ODD, seed=2)
        with numpy_worker() as worker:
            worker.run("c", first)
            worker.pose("c", second)
            worker.ask("check", case="c", checked=False)
            self.assertLessEqual(reference.worst(second, worker.outputs("c"))[1], 1)

    def test_a_failed_request_does_not_end_the_worker(self):
        with numpy_worker() as worker:
            self.assertIn("unknown verb", worker.ask("dance")["detail"])
            self.assertIn("not prepared", worker.ask("release", case="none")["detail"])
            self.assertEqual(worker.end(), 0)

    def test_an_undeclared_dtype_is_unsupported(self):
        with numpy_worker() as worker:
            answer = worker.ask("prepare", **worker.pose("c", reference.make("rms_norm", "BF16", 2, 8)))
            self.assertEqual((answer["verb"], answer["case"]), ("unsupported", "c"))
            self.assertIn("BF16", answer["reason"])

    def test_a_tensor_beyond_its_storage_is_refused_by_name(self):
        with numpy_worker() as worker:
            for field, value in (("span", 4), ("offset", 1 << 40)):
                request = worker.pose("c", reference.make(*ODD))
                request["tensors"][2][field] = value
                answer = worker.ask("prepare", **request)
                self.assertEqual(answer["verb"], "refused", answer)
                self.assertEqual((answer["error"]["kind"], answer["error"]["argument"]), ("storage_too_short", "y"))

    def test_the_witness_names_mapped_libraries_with_their_digests(self):
        with numpy_worker() as worker:
            witness = worker.ask("witness")
            names = {library["name"]: library["sha256"] for library in witness["libraries"]}
            found = [digest for name, digest in names.items() if "_multiarray_umath" in name]
            self.assertEqual([len(digest) for digest in found], [64])
            self.assertTrue(witness["dispatch"])


class PlantedBehavior(unittest.TestCase):
    def answer(self, kind, checked=False):
        case = reference.make(*ODD)
        with planted(kind) as worker:
            answer, found = worker.run("c", case, checked=checked)
            return answer, reference.worst(case, found)[1]

    def test_exceptions_become_typed_answers(self):
        self.assertEqual(self.answer("raises")[0], {"verb": "failed", "detail": "ValueError: planted"})
        self.assertEqual(self.answer("unsupported")[0]["reason"], "rows of this kind are not done here")
        error = {"kind": "not_finite", "operator": "rms_norm", "argument": "x", "found": "NaN", "accepted": "numbers"}
        self.assertEqual(self.answer("refuses")[0], {"verb": "refused", "case": "c", "error": error})

    def test_checked_mode_reaches_the_provider(self):
        self.assertEqual(self.answer("refuses-when-checked", checked=True)[0]["verb"], "refused")
        self.assertEqual(self.answer("refuses-when-checked", checked=False)[0]["verb"], "checked")

    def test_inputs_cannot_be_written(self):
        self.assertIn("read-only", self.answer("writes-its-input")[0]["detail"])

    def test_stdout_is_no_part_of_the_protocol(self):
        answer, distance = self.answer("prints")
        self.assertEqual(answer["verb"], "checked")
        self.assertLessEqual(distance, 1)

    def test_the_reference_finds_every_planted_fault_and_passes_the_right_answer(self):
        self.assertLessEqual(self.answer("none")[1], 1)
        for kind in ("writes-nothing", "scales", "shifts-a-row", "one-nan"):
            with self.subTest(kind):
                answer, distance = self.answer(kind)
                self.assertEqual(answer["verb"], "checked")
                self.assertGreater(distance, 1)


class Endings(unittest.TestCase):
    def gives_up(self, *lines):
        with numpy_worker() as worker:
            for line in lines:
                worker.send(line)
            return worker.gives_up()

    def test_what_is_no_request_ends_the_worker_with_a_message(self):
        lines = {
            "garbage": b"\xff\xfe not json\n",
            "no object": b"[]\n",
            "no verb": b'{"seq": 1}\n',
            "wrong number": json.dumps({"seq": 7, "verb": "witness"}).encode() + b"\n",
        }
        for name, line in lines.items():
            with self.subTest(name):
                status, said = self.gives_up(line)
                self.assertEqual(status, 1)
                self.assertIn("the protocol ended early", said)

    def test_an_overlong_line_ends_the_worker(self):
        with numpy_worker() as worker:
            try:
                worker.send(b" " * (protocol.MAX_LINE + 2))
            except BrokenPipeError:
                pass  # it ended before it had read all of it
            status, said = worker.gives_up()
        self.assertEqual(status, 1)
        self.assertIn("longer than", said)

    def test_a_closed_socket_is_not_bye(self):
        with numpy_worker() as worker:
            worker.socket.shutdown(supervisor.socket.SHUT_RDWR)
            status, said = worker.gives_up()
        self.assertEqual(status, 1)
        self.assertIn("closed before bye", said)


if __name__ == "__main__":
    unittest.main()
