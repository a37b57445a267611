"""GPU providers under the native timer, on a GPU: that samples come, are right, and agree. No test that CI runs.

    PROOFHOUSE_TIMER=.../libproofhouse_timer_cuda.so \\
        python baselines/tests/gpu_timing.py --set FOLDER [--only torch,liger] [--seconds 60]

FOLDER is what the `{set}` of provider.toml stands for. Each line is one case under one contract: the time of a call,
the spread of three turns, what a planted 5 % looks like, the distance of a published output from the reference with
other contents than the sets were made with, and what the timer told.
"""

import argparse
import statistics
import time
import traceback

from gpu_providers import declared
from supervisor import BASELINES, Supervisor

import reference

CASES = (("rms_norm", "BF16", 1, 4096), ("rms_norm", "BF16", 1024, 4096), ("add_rms_norm", "BF16", 32, 4096))
CASES += (("silu_and_mul", "BF16", 1024, 14336), ("min_p", "F32", 8, 151936))
CONTRACTS = (("cold", "graph"), ("hot", "graph"), ("cold", "eager"))
PLANTED = 0.05


class Refused(Exception):
    """An answer that is no measurement."""


def measured(worker, phase, **fields):
    """An answer with samples."""
    answer = worker.measure("c", phase, **fields)
    if answer["verb"] != "measured" or answer.get("invalid"):
        raise Refused("{} {}: {}".format(phase, answer["verb"], answer.get("invalid") or answer))
    return answer


def per_call_us(answer):
    """The median of a turn, per call."""
    return statistics.median(answer["elapsed_ns"]) / answer["calls"] / 1e3


def visit(worker, case, other, cache, launch):
    """One case under one contract, as a line."""
    contract = {"cache": cache, "launch": launch, "samples": 5, "min_sample_ns": 1e6}
    begun = time.time()
    warm = measured(worker, "warm", **contract)
    warmed = time.time() - begun
    begun = time.time()
    turns = [measured(worker, "turn", **contract) for _ in range(3)]
    took = (time.time() - begun) / len(turns)
    slowed = measured(worker, "turn", slowdown=PLANTED, **contract)
    worker.pose("c", other)
    published = measured(worker, "turn", publish=True, refresh=True, **contract)
    distance = reference.worst(other, worker.outputs("c"))
    worker.pose("c", case)
    times = [per_call_us(turn) for turn in turns]
    middle, last = statistics.median(times), turns[-1]
    parts = ["{:.3f} us".format(middle), "spread {:.2f} %".format(100 * (max(times) / min(times) - 1))]
    parts.append("planted 5 % found {:.2f} %".format(100 * (per_call_us(slowed) / middle - 1)))
    parts.append("distance {} of {}".format(distance[1], distance[0]))
    parts.append("{} calls on {} sets, {}".format(last["calls"], last["sets"], last.get("reuse")))
    parts.append("warm-up {:.2f} s of {} samples".format(warmed, len(warm["elapsed_ns"])))
    counted = last["timed"] + last["untimed"]
    parts.append("turn {:.1f} ms, of which it counts {:.1f}".format(1e3 * took, counted / 1e6))
    parts.append("modules {}".format(published["modules"]))
    if last.get("enqueue_ns"):
        parts.append("enqueue {:.3f} us".format(statistics.median(last["enqueue_ns"]) / last["calls"] / 1e3))
    telemetry = {name: values[-1:] for name, values in last["telemetry"].items()}
    return ", ".join(parts) + "\n      {} {}".format(telemetry, [kernel[-60:] for kernel in last["kernels"]])


def main():
    """Visits every case of every provider."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", required=True)
    parser.add_argument("--only", default="torch,liger,inductor")
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    deadline = time.time() + options.seconds
    for provider in options.only.split(","):
        toml, variables = declared(provider, options.set)
        with Supervisor(provider, BASELINES / provider / "worker.py", variables) as worker:
            print(provider, worker.hello["capabilities"], flush=True)
            for operator, dtype, rows, width in CASES:
                if dtype not in toml["operators"].get(operator, []):
                    continue
                case, other = (reference.make(operator, dtype, rows, width, seed=seed) for seed in (1, 2))
                worker.run("c", case)
                for cache, launch in CONTRACTS:
                    if time.time() > deadline:
                        return print("no time for more")
                    label = "  {} {}x{} {} {}: ".format(operator, rows, width, cache, launch)
                    try:
                        print(label + visit(worker, case, other, cache, launch), flush=True)
                    except Refused as refusal:
                        print(label + str(refusal)[:600], flush=True)
                        worker.pose("c", case)


if __name__ == "__main__":
    try:
        main()
    except Exception:
        traceback.print_exc()
        raise SystemExit(1) from None
