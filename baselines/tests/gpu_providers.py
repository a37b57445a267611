"""Every GPU provider on a GPU: right, captured, replayed, and roughly how fast. No test that CI runs: it has no GPU.

    python baselines/tests/gpu_providers.py --set FOLDER [--json FILE] [--seconds 115] [--only vllm,quack]

FOLDER is what the `{set}` of provider.toml stands for. Each provider's worker runs over the protocol, as the harness
runs it, on odd and real shapes; meanwhile other processes compile, and once the workers have ended they time, one at
a time, graphs of calls over rotating buffers. The times are leads for aiming, no evidence.
"""

import argparse
import concurrent.futures
import fcntl
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback

from supervisor import BASELINES, Supervisor

import numpy as np

import intervals
import reference

LIBRARIES = ("torch", "liger", "vllm", "flashinfer", "quack")
ROWS = ("rms_norm", "add_rms_norm", "rms_norm_dynamic_fp8")
SHAPES = {"norm": ((1, 4096), (3, 17), (5, 4099), (7, 1000), (33, 576), (64, 5120), (128, 8192))}
SHAPES["silu"] = ((1, 64), (3, 17), (7, 1000), (5, 4099), (64, 14336))
SHAPES["logits"] = ((1, 1), (3, 17), (4, 1000), (2, 32001), (4, 151936))
FEWER = {"norm": ((5, 4099), (64, 5120)), "silu": ((3, 17), (64, 14336)), "logits": ((3, 17), (4, 151936))}
TIMED = {"norm": ((1, 4096), (32, 4096), (1024, 4096), (8192, 4096))}
TIMED["silu"] = ((1, 14336), (32, 14336), (1024, 14336), (8192, 14336))
TIMED["logits"] = ((1, 151936), (8, 151936), (128, 151936))
OTHERWISE = {("rms_norm", 32), ("add_rms_norm", 32), ("add_rms_norm", 8192), ("silu_and_mul", 32)}  # Inductor, also
OTHERWISE |= {("rms_norm_dynamic_fp8", 32), ("greedy_logprob", 8), ("greedy_logprob", 128), ("min_p", 8)}
CALLS, REPLAYS = 40, 15
ENDS_WITHIN = 10  # seconds that a worker gets to end by itself


def last(text, lines, most=600):
    """The last lines of a log, on one line."""
    return " | ".join(text.strip().splitlines()[-lines:])[-most:]


def kind(operator):
    """Which shapes an operator is tried on."""
    return "norm" if operator in ROWS else "silu" if operator == "silu_and_mul" else "logits"


def variants(operator, width):
    """Parameters to try an operator with."""
    if operator == "rms_norm_dynamic_fp8":
        return ({"add-residual": False}, {"add-residual": True, "eps": 1e-5})
    return ({"k": min(8, width)},) if operator == "topk_logprobs" else ({},)


def declared(provider, folder):
    """A provider's declaration and the variables that its worker gets."""
    toml = tomllib.loads((BASELINES / provider / "provider.toml").read_text(encoding="utf-8"))
    uuid = subprocess.run(["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"], capture_output=True, check=True)
    uuid = uuid.stdout.decode().split()[0]
    path = toml["environment"].removeprefix("path:") if toml["environment"].startswith("path:") else ""
    found = {"CUDA_VISIBLE_DEVICES": uuid, "PROOFHOUSE_DEVICE": "cuda:" + uuid, **toml["variables"]}
    stand_in = BASELINES / "tests" / "fake_device"  # for timer_cuda, where the tree has none
    found["PYTHONPATH"] = "{}:{}".format(path.replace("{set}", str(folder)), stand_in).strip(":")
    found["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    for name in ("LD_LIBRARY_PATH", "TMPDIR"):
        if name in os.environ:
            found[name] = os.environ[name]
    return toml, found


# ---- over the protocol: right, captured, replayed


class Visit:
    """One worker's visit to its cases."""

    def __init__(self, provider, folder, operators, shapes, deadline):
        self.toml, self.variables = declared(provider, folder)
        self.provider, self.shapes, self.deadline = provider, shapes, deadline
        self.operators, self.worker, self.rows = operators or list(self.toml["operators"]), None, []

    def start(self):
        """A fresh worker."""
        self.worker = Supervisor(self.provider, BASELINES / self.provider / "worker.py", self.variables)

    def lost(self):
        """What a worker that ended by itself said last."""
        process = self.worker.process
        try:
            said = process.communicate(timeout=ENDS_WITHIN)[1].decode(errors="replace")
            return "status {}: {}".format(process.returncode, last(said, 3))
        except subprocess.TimeoutExpired:
            return "it still runs"
        finally:
            self.worker.__exit__()
            self.worker = None

    def run(self):
        """The rows of all cases."""
        begun = time.time()
        for operator in self.operators:
            for dtype in self.toml["operators"].get(operator, []):
                for rows, width in self.shapes[kind(operator)]:
                    for params in variants(operator, width):
                        row = {"provider": self.provider, "operator": operator, "dtype": dtype}
                        row.update(shape=[rows, width], residual=params.get("add-residual", False))
                        self.rows.append(row)
                        self.visit(row, params)
        if self.worker is not None:
            self.rows.append({"provider": self.provider, "witness": self.witness(), "s": round(time.time() - begun, 1)})
            self.worker.__exit__()
        return self.rows

    def witness(self):
        """What a worker says that it ran, shortened, and which expectation it misses."""
        said = self.worker.ask("witness")
        libraries = [library["name"] for library in said["libraries"]]
        missed = [name for name in self.toml["expect-libraries"] if not any(name in found for found in libraries)]
        missed += [name for name in self.toml["expect-kernels"] if not any(name in found for found in said["kernels"])]
        hello = {name: self.worker.hello.get(name) for name in ("version", "packages", "device", "capabilities")}
        return {"missed": missed, "dispatch": said.get("dispatch"), "libraries": len(libraries), **hello}

    def visit(self, row, params):
        """One case; whatever goes wrong is the row's outcome."""
        if time.time() > self.deadline:
            row["outcome"] = "skipped: no time"
            return
        try:
            if self.worker is None:
                self.start()
            row["outcome"] = self.outcome(row, params)
        except Exception as error:
            said = self.lost() if self.worker is not None else ""
            row["outcome"] = last("lost: {!r}; {}".format(error, said), 9, 900)

    def outcome(self, row, params):
        """Checks, captures and replays; `right`, or what is not."""
        worker, (rows, width) = self.worker, row["shape"]
        first, second = (
            reference.make(row["operator"], row["dtype"], rows, width, seed=seed, params=params) for seed in (1, 2)
        )
        answer, found = worker.run("c", first)
        if answer["verb"] != "checked":
            return last("{}: {}".format(answer["verb"], answer.get("reason") or answer.get("detail") or answer), 9)
        self.judge(row, first, found)
        answer = worker.ask("capture", case="c")
        row["kernels"], row["nodes"] = answer.get("kernels"), answer.get("nodes")
        if answer["verb"] != "captured":
            return last("capture {}: {}".format(answer["verb"], answer.get("reason") or answer.get("detail")), 9)
        worker.pose("c", second)
        worker.ask("check", case="c", checked=False)
        eager = worker.outputs("c")
        self.judge(row, second, eager)
        for _ in range(2):
            worker.rewrite("c")
            answer = worker.ask("replay", case="c")
            if answer["verb"] != "replayed":
                return "replay {}: {}".format(answer["verb"], answer)[:400]
            replayed = worker.outputs("c")
            if any(eager[name].tobytes() != replayed[name].tobytes() for name in eager):
                return "a replay gave other bits"
        worker.ask("release", case="c")
        return "right" if row["distance"] <= 1 and not row["outside"] else "differs"

    @staticmethod
    def judge(row, case, found):
        """Notes the distance from the reference, and elements outside the contract's interval."""
        name, distance = reference.worst(case, found)
        distance = float(min(distance, 1e9))
        if distance >= row.get("distance", 0):
            row["distance"], row["tensor"] = round(distance, 4), name
        counts = row.setdefault("outside", {})
        for tensor, count in intervals.outside(case, found).items():
            if count:
                counts[tensor] = max(counts.get(tensor, 0), count)


def lose_a_device(folder):
    """A worker whose kernel reads out of bounds must end, and the next one must be well."""
    visit = Visit("torch", folder, [], SHAPES, 0)
    visit.start()
    case = reference.make("selected_logprob_rank", "F32", 2, 64)
    case["tensors"]["selected"] = ("in", "I64", np.array([3, 1 << 40]))
    facts = {}
    try:
        facts["answer"] = visit.worker.run("c", case)[0]
    except ValueError:  # no line came
        facts["answer"] = None
    facts["ended"] = visit.lost()
    visit.start()
    facts["the next worker"] = visit.worker.run("c", reference.make("rms_norm", "F32", 2, 64))[0]["verb"]
    visit.worker.__exit__()
    return [{"facts": {"a lost device": facts}}]


# ---- in processes of their own: roughly how fast


def module(provider):
    """A provider's worker as a module."""
    import importlib.util

    folder = BASELINES / provider
    sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location("worker_" + provider, folder / "worker.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    sys.path.remove(str(folder))
    return made


class Clock:
    """Times binds over rotating copies, under a lock that only one process holds."""

    def __init__(self, lock, deadline):
        import torch
        import torch_device

        self.torch, self.deadline, self.lock = torch, deadline, open(lock, "w")
        self.place = torch_device.open_cuda(os.environ["PROOFHOUSE_DEVICE"].partition(":")[2])
        self.cache = torch.cuda.get_device_properties(0).L2_cache_size

    def values(self, name, dtype, shape, width):
        """Random values for a tensor."""
        from torch_device import DTYPES

        if name == "selected":
            return self.torch.randint(0, width, shape, device=self.place.place)
        if name == "p":
            return self.torch.full(shape, 0.1, device=self.place.place)
        return self.torch.randn(shape, device=self.place.place).to(DTYPES[dtype])

    def sets(self, bind, operator, dtype, shape, params):
        """Calls on as many sets as it takes to leave the cache, and what one call touches."""
        from protocol import Case

        rows, width = shape
        small = reference.make(operator, dtype, 1, width, params=params)  # names, dtypes and all but the rows
        fields, shapes, size = [], {}, 0
        for name, (_, kept, array) in small["tensors"].items():
            shapes[name] = array.shape if name == "w" else (rows, *array.shape[1:])
            fields.append({"name": name, "dtype": kept})
            size += int(np.prod(shapes[name])) * array.itemsize
        request = {**small, "case": "c", "tensors": fields, "dims": {**small["dims"], "rows": rows}}
        calls, shared = [], {}
        for _ in range(max(2, min(CALLS, 3 * self.cache // size + 1))):
            tensors = {f["name"]: self.values(**f, shape=shapes[f["name"]], width=width) for f in fields}
            calls.append(bind(Case(request, shared, tensors)))
        return calls, size

    def time(self, label, bind, operator, dtype, shape, params=None):
        """A row with the microseconds of one call."""
        row = {"timed": label, "operator": operator, "dtype": dtype, "shape": list(shape)}
        try:
            if time.time() > self.deadline:
                raise TimeoutError("no time")
            calls, row["bytes"] = self.sets(bind, operator, dtype, shape, params or {})
            fcntl.flock(self.lock, fcntl.LOCK_EX)
            try:
                row["us"], row["nodes"] = self.microseconds(calls)
            finally:
                fcntl.flock(self.lock, fcntl.LOCK_UN)
        except Exception as error:
            self.place.examine(error)
            row["error"] = "{}: {}".format(type(error).__name__, error)[:300]
        print(json.dumps(row), flush=True)

    def microseconds(self, calls):
        """The median of replays of a graph of calls, in microseconds a call, and the kernels of one call."""
        torch = self.torch
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            for call in calls:
                call()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            for index in range(CALLS):
                calls[index % len(calls)]()
        graph.replay()
        torch.cuda.synchronize()
        found = []
        for _ in range(REPLAYS):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            found.append(begin.elapsed_time(end) * 1e3 / CALLS)
        _, nodes, _ = self.place.capture(calls[0])
        return round(statistics.median(found), 3), nodes

    def facts(self):
        """What the device does when things go wrong that a worker survives."""
        torch, facts = self.torch, {}
        try:
            self.place.allocate(1 << 42)
        except Exception as error:
            self.place.examine(error)
            facts["too much memory"] = type(error).__name__
        flag = torch.ones(1, device=self.place.place)
        try:
            self.place.capture(lambda: flag.item())
        except Exception as error:
            facts["a value read back in a capture"] = "{}: {}".format(type(error).__name__, error)[:200]
        _, nodes, kernels = self.place.capture(lambda: flag.add_(1))
        facts["a capture after it"] = [nodes, kernels]
        print(json.dumps({"facts": facts}), flush=True)


def time_libraries(clock, only):
    """The libraries, and forms of torch and FlashInfer that are not the provider's own."""
    modules = {}
    for provider in [name for name in LIBRARIES if name in only]:
        try:
            modules[provider] = module(provider)
        except BaseException as error:
            print(json.dumps({"timed": provider, "error": repr(error)[:300]}), flush=True)
    for provider, made in modules.items():
        for operator, (dtypes, bind) in made.OPERATORS.items():
            dtype = "F32" if kind(operator) == "logits" else "BF16"
            for shape in TIMED[kind(operator)]:
                clock.time(provider, bind, operator, dtype, shape, variants(operator, shape[1])[0])
                plain = getattr(made, operator)
                if provider == "torch" and plain is not made.BINDS[operator]:
                    form = made.quietly(plain)
                    clock.time("torch as on the cpu", form, operator, dtype, shape, variants(operator, shape[1])[0])
    if "flashinfer" in modules:
        library = modules["flashinfer"].flashinfer

        def alone(case):
            x, w, y = case.tensors["x"], case.tensors["w"], case.tensors["y"]
            return lambda: library.norm.get_norm_module().rmsnorm(y, x, w, case.params["eps"], False)

        for shape in TIMED["norm"]:
            clock.time("flashinfer without dependent launch", alone, "rms_norm", "BF16", shape)
    clock.facts()


def time_inductor(clock, operator):
    """One operator under Inductor as the provider has it, and at some shapes the other way: tuned or not."""
    made = module("inductor")
    dtype = "F32" if kind(operator) == "logits" else "BF16"
    for shape in TIMED[kind(operator)]:
        clock.time("inductor", made.OPERATORS[operator][1], operator, dtype, shape, variants(operator, shape[1])[0])
    if operator == "greedy_logprob":
        bind = made.binder(made.greedy_logprob, made.LOGITS, ())
        for shape in TIMED["logits"]:
            clock.time("inductor, place with the maximum", bind, operator, dtype, shape)
    chosen = made.OPTIONS.get(operator)
    label = "inductor, not tuned" if chosen else "inductor, tuned"
    options = {name: value for name, value in chosen.items() if name not in made.TUNED} if chosen else made.TUNED
    for shape in TIMED[kind(operator)]:
        if (operator, shape[0]) in OTHERWISE:
            bind = made.binder(*made.FORMS[operator], options=options or None)
            clock.time(label, bind, operator, dtype, shape, variants(operator, shape[1])[0])


# ---- all of it


def gather(process):
    """The rows that a timing process printed, and what it said where it failed."""
    printed, said = process.communicate()
    rows = [json.loads(line) for line in printed.decode().splitlines() if line.startswith("{")]
    if process.returncode:
        error = "status {}: {}".format(process.returncode, last(said.decode(errors="replace"), 4))
        rows.append({"timed": str(process.args[-1]), "error": error})
    return rows


def begin_timing(options, lock, inductor):
    """Starts the processes that time; they wait for the lock."""
    own = [sys.executable, "-B", __file__, "--set", options.set, "--lock", lock, "--seconds", str(options.seconds)]
    started = []
    for operator in [""] + inductor:
        environment = dict(os.environ)
        paths = []
        for provider in [name for name in LIBRARIES + ("inductor",) if name in options.only]:
            _, variables = declared(provider, options.set)
            paths.append(variables.pop("PYTHONPATH"))
            environment.update(variables)
        environment["PYTHONPATH"] = ":".join([str(BASELINES), str(BASELINES / "tests")] + paths)
        command = own + ["--only", ",".join(options.only), "--time", operator or "libraries"]
        started.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    return started


def told(future):
    """The rows of a future, or why there are none."""
    try:
        return future.result()
    except Exception as error:
        return [{"facts": {"error": repr(error)}}]


def measure_all(options, begun):
    """All rows of a run."""
    deadline = begun + 0.6 * options.seconds
    inductor = list(declared("inductor", options.set)[0]["operators"]) if "inductor" in options.only else []
    with tempfile.NamedTemporaryFile() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        timing = begin_timing(options, lock.name, inductor)
        visits = [Visit(name, options.set, None, SHAPES, deadline) for name in LIBRARIES if name in options.only]
        visits += [Visit("inductor", options.set, [operator], FEWER, deadline) for operator in inductor]
        with concurrent.futures.ThreadPoolExecutor(len(visits) + 1) as pool:
            lost = pool.submit(lose_a_device, options.set)
            rows = [row for rows in pool.map(Visit.run, visits) for row in rows]
            rows += told(lost)
        fcntl.flock(lock, fcntl.LOCK_UN)
        rows.append({"workers_s": round(time.time() - begun, 1)})
        with concurrent.futures.ThreadPoolExecutor(len(timing)) as pool:
            rows += [row for rows in pool.map(gather, timing) for row in rows]
    return rows


def kernel_names(kernels, most=64):
    """Kernels with their launches, names shortened, and how often each comes in a row."""
    parts = [kernel.partition(" grid") for kernel in kernels or []]
    return "; ".join(name[:most] + grid + launch for name, grid, launch in parts)


def shown(rows):
    """The tables: outcomes by provider, operator and dtype; then microseconds."""
    groups = {}
    for row in [row for row in rows if "outcome" in row]:
        groups.setdefault((row["provider"], row["operator"], row["dtype"]), []).append(row)
    for (provider, operator, dtype), found in groups.items():
        right = [row for row in found if row["outcome"] == "right"]
        declined = sum(row["outcome"].startswith("unsupported") for row in found)
        counts = len(right), len(found) - declined, declined
        print(provider, operator, dtype, "{} of {} right, {} declined".format(*counts), flush=True)
        others = {}
        for row in [row for row in found if row not in right]:
            text = row["outcome"] + (" {} {}".format(row["distance"], row["outside"]) if "distance" in row else "")
            others.setdefault(text[:240], []).append("{}x{}{}".format(*row["shape"], "+r" if row["residual"] else ""))
        for text, shapes in others.items():
            print("    ", ",".join(shapes), text)
        if dtype in ("BF16", "F32") and found[-1].get("kernels"):
            print("    ", kernel_names(found[-1]["kernels"]))
    for row in [row for row in rows if "witness" in row or "workers_s" in row or "facts" in row]:
        print(json.dumps(row))
    times = {}
    for row in [row for row in rows if "timed" in row]:
        if "us" in row:
            key = row["operator"], tuple(row["shape"]), row["dtype"]
            times.setdefault(key, []).append((row["us"], row["timed"], row["nodes"]))
        else:
            print("TIMING", json.dumps(row))
    for (operator, shape, dtype), found in times.items():
        listed = ", ".join("{} {} ({})".format(label, us, nodes) for us, label, nodes in sorted(found))
        print(operator, "{}x{}".format(*shape), dtype, listed)


def main():
    """Reads the options; runs, or times in a process of its own."""
    begun = time.time()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", required=True)
    parser.add_argument("--json")
    parser.add_argument("--seconds", type=float, default=115)
    parser.add_argument("--only", default=",".join(LIBRARIES + ("inductor",)))
    parser.add_argument("--lock", help=argparse.SUPPRESS)
    parser.add_argument("--time", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.set, options.only = str(pathlib.Path(options.set).resolve()), options.only.split(",")
    if options.time:
        clock = Clock(options.lock, begun + 0.85 * options.seconds)
        if options.time == "libraries":
            return time_libraries(clock, options.only)
        return time_inductor(clock, options.time)
    rows = measure_all(options, begun)
    if options.json:
        pathlib.Path(options.json).write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    shown(rows)
    print("seconds", round(time.time() - begun, 1), "numpy", np.__version__)


if __name__ == "__main__":
    try:
        main()
    except Exception:
        traceback.print_exc()
        sys.exit(1)
