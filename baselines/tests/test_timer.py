"""Measuring through the native timer; PROOFHOUSE_TIMER names the library, else only its absence is tested."""

import unittest

from supervisor import TIMER, Supervisor
from test_protocol import NUMPY, planted

import reference

# Findings that speak of the clock and of how long something took: a busy machine gives them, whatever the worker does.
# Others (code that was loaded, work that escaped, a refused plan) are its own fault.
OF_THE_CLOCK = {
    "unsettled",
    "sample-too-short",
    "too-short",
    "below-floor",
    "zero-time",
    "longer-than-wall",
    "clock",
    "clock-events",
    "clock-went-back",
    "host-clock-went-back",
}
TRIES = 20

NEEDS_TIMER = unittest.skipUnless(TIMER, "PROOFHOUSE_TIMER names no native timer")


class WithoutTheTimer(unittest.TestCase):
    def test_a_worker_says_that_it_cannot_measure_and_why(self):
        for path, why in (("", "PROOFHOUSE_TIMER is not set"), ("/nowhere.so", "cannot be loaded")):
            with Supervisor("numpy", NUMPY, {"PROOFHOUSE_TIMER": path}) as worker:
                self.assertFalse(worker.hello["capabilities"]["measure"])
                worker.run("c", reference.make("rms_norm", "F32", 2, 8))
                answer = worker.measure("c", "warm")
                self.assertEqual(answer["verb"], "unsupported")
                self.assertIn(why, answer["reason"])


@NEEDS_TIMER
class WithTheTimer(unittest.TestCase):
    def measured(self, worker, phase, **fields):
        """An answer with samples; what a real clock refuses is asked for again, a bounded number of times."""
        for _ in range(TRIES):
            answer = worker.measure("c", phase, **fields)
            self.assertEqual(answer["verb"], "measured", answer)
            codes = {finding["code"] for finding in answer["invalid"]}
            if not codes:
                return answer
            self.assertLessEqual(codes, OF_THE_CLOCK, answer)
        self.fail("no valid {} in {} tries: {}".format(phase, TRIES, answer))

    def warmed(self, worker, case):
        worker.ask("prepare", **worker.pose("c", case))
        return self.measured(worker, "warm", samples=2000)

    def test_a_turn_gives_as_many_samples_as_asked_and_accounts_for_its_time(self):
        with Supervisor("numpy", NUMPY) as worker:
            warm = self.warmed(worker, reference.make("rms_norm", "F32", 8, 512))
            self.assertEqual(warm["phase"], "warm")
            turn = self.measured(worker, "turn", samples=11, block=3, position=1)
            self.assertEqual((turn["phase"], turn["block"], turn["position"]), ("turn", 3, 1))
            self.assertEqual((len(turn["elapsed_ns"]), turn["calls"]), (11, warm["calls"]))
            self.assertAlmostEqual(turn["timed"], sum(turn["elapsed_ns"]), delta=1)
            self.assertLessEqual(turn["timed"] + turn["untimed"], turn["wall"])
            self.assertEqual(turn["modules"][0], turn["modules"][1])

    def test_graphs_are_not_timed_on_the_processor(self):
        with Supervisor("numpy", NUMPY) as worker:
            worker.run("c", reference.make("rms_norm", "F32", 2, 8))
            answer = worker.measure("c", "warm", launch="graph")
            self.assertEqual(answer["verb"], "unsupported", answer)
            self.assertIn("a graph needs a device", answer["reason"])

    def test_published_outputs_of_timed_calls_are_right_also_in_place(self):
        for operator in ("silu_and_mul", "add_rms_norm", "min_p"):
            case = reference.make(operator, "F32", 4, 256)
            with self.subTest(operator), Supervisor("numpy", NUMPY) as worker:
                self.warmed(worker, case)
                for _ in range(2):
                    self.assertTrue(self.measured(worker, "turn", publish=True)["elapsed_ns"])
                    self.assertLessEqual(reference.worst(case, worker.outputs("c"))[1], 1)

    def test_what_is_not_written_while_timed_shows_as_poison(self):
        case = reference.make("rms_norm", "F32", 4, 256)
        with planted("idle-when-timed") as worker:
            self.assertLessEqual(reference.worst(case, worker.run("c", case)[1])[1], 1)
            self.measured(worker, "warm", samples=2000)
            self.measured(worker, "turn", publish=True)
            self.assertGreater(reference.worst(case, worker.outputs("c"))[1], 1)
            self.assertEqual(set(worker.outputs("c")["y"].tobytes()), {0xA5})

    def test_refresh_brings_new_contents_to_the_same_buffers(self):
        for operator in ("rms_norm", "add_rms_norm"):
            first, second = (reference.make(operator, "F32", 4, 256, seed=seed) for seed in (1, 2))
            with self.subTest(operator), Supervisor("numpy", NUMPY) as worker:
                self.warmed(worker, first)
                self.measured(worker, "turn")
                worker.pose("c", second)
                self.measured(worker, "turn", refresh=True, publish=True)
                self.assertLessEqual(reference.worst(second, worker.outputs("c"))[1], 1)

    def test_the_planted_slowdown_lengthens_every_sample(self):
        with Supervisor("numpy", NUMPY) as worker:
            self.warmed(worker, reference.make("rms_norm", "F32", 8, 512))
            for _ in range(TRIES):  # a plain turn that was held up throughout says nothing of the slowed one
                plain = min(self.measured(worker, "turn", samples=31)["elapsed_ns"])
                slowed = min(self.measured(worker, "turn", samples=31, slowdown=1.0)["elapsed_ns"])
                if slowed > 1.5 * plain:
                    break
        self.assertGreater(slowed, 1.5 * plain)

    def test_a_call_that_fails_while_timed_gives_no_sample(self):
        with planted("fails-when-timed") as worker:
            worker.run("c", reference.make("rms_norm", "F32", 4, 256))
            answer = worker.measure("c", "warm")
            self.assertEqual(answer, {"verb": "failed", "detail": "ValueError: planted in the timed region"})

    def test_a_turn_before_its_warm_up_is_failed(self):
        with Supervisor("numpy", NUMPY) as worker:
            worker.run("c", reference.make("rms_norm", "F32", 4, 256))
            self.assertIn("before the warm-up", worker.measure("c", "turn")["detail"])

    def test_a_warm_up_that_does_not_settle_is_invalid_and_gives_no_number(self):
        with planted("drifts") as worker:
            worker.run("c", reference.make("rms_norm", "F32", 4, 256))
            answer = worker.measure("c", "warm", samples=8)
        self.assertEqual((answer["verb"], answer["elapsed_ns"]), ("measured", []))
        self.assertEqual([finding["code"] for finding in answer["invalid"]], ["unsettled"])


if __name__ == "__main__":
    unittest.main()
