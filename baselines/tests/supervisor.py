"""A small supervisor that speaks the protocol with one worker process, for the tests."""

import json
import os
import pathlib
import secrets
import socket
import subprocess
import sys
import tempfile

import numpy as np

BASELINES = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BASELINES))

import protocol  # noqa: E402

GUARD, POISON = 0xEE, 0xA5
GUARD_BYTES = 256
SECONDS = 120
TIMER = os.environ.get("PROOFHOUSE_TIMER", "")


class Supervisor:
    """Starts a worker, checks every answer's echoes, and poses cases in files."""

    def __init__(self, provider, script, variables=None, python=sys.executable):
        self.provider, self.nonce, self.seq, self.files = provider, secrets.token_hex(16), 0, {}
        self.folder = tempfile.TemporaryDirectory()
        path = os.path.join(self.folder.name, "socket")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        listener.listen(1)
        listener.settimeout(SECONDS)
        environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        environment.update(PROOFHOUSE_SOCKET=path, PROOFHOUSE_NONCE=self.nonce, PROOFHOUSE_THREADS="1")
        environment.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", PYTHONPATH=str(BASELINES))
        if TIMER:
            environment["PROOFHOUSE_TIMER"] = TIMER
        environment.update(variables or {})
        command = [python, "-B", str(script)] if str(script).endswith(".py") else [python, str(script)]
        self.process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            self.socket = listener.accept()[0]
        except OSError:
            self.process.kill()
            raise RuntimeError(self.process.communicate()[1].decode()) from None
        finally:
            listener.close()
        self.socket.settimeout(SECONDS)
        self.lines = self.socket.makefile("rb")
        self.hello = self.hear(0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.lines.close()
        self.socket.close()
        self.process.kill()
        self.process.communicate()
        self.folder.cleanup()

    def hear(self, seq):
        """One answer with the right echoes."""
        line = json.loads(self.lines.readline())
        echoes = (line.pop("nonce"), line.pop("seq"), line.pop("provider"))
        if echoes != (self.nonce, seq, self.provider):
            raise AssertionError("wrong echoes: {}".format(echoes))
        return line

    def send(self, line):
        """Raw bytes to the worker."""
        self.socket.sendall(line)

    def ask(self, verb, **fields):
        """One request and its answer."""
        self.seq += 1
        self.send(json.dumps({"seq": self.seq, "verb": verb, **fields}).encode() + b"\n")
        return self.hear(self.seq)

    def gives_up(self):
        """Waits for the worker to end by itself; gives its exit status and what it said on stderr."""
        said = self.process.communicate(timeout=SECONDS)[1].decode()
        return self.process.returncode, said

    def end(self):
        """Bye; gives the exit status."""
        answer = self.ask("bye")
        assert answer == {"verb": "bye"}, answer
        return self.process.wait(SECONDS)

    def pose(self, name, case, pad=0, lead=0):
        """Writes a case's tensors with guards into a file; gives the fields of `prepare`.

        `pad`: unused elements between rows; `lead`: elements in front of the first.
        """
        data, tensors = bytearray(), []
        path = os.path.join(self.folder.name, name)
        for tensor, (role, dtype, array) in case["tensors"].items():
            strides = [1] if array.ndim == 1 else [array.shape[1] + (pad if array.shape[1] > 1 else 0), 1]
            size = array.itemsize
            data += bytes([GUARD]) * (GUARD_BYTES + -len(data) % 64)
            reach = sum((extent - 1) * step for extent, step in zip(array.shape, strides)) + 1
            span = reach * size if array.size else 0
            start = len(data) + lead * size
            data += bytes([GUARD]) * (lead * size + span + GUARD_BYTES)
            view = np.ndarray(array.shape, array.dtype, data, start, [step * size for step in strides])
            view[...] = array if role != "out" else np.full(array.size * size, POISON, np.uint8).view(array.dtype)[0]
            fields = {"name": tensor, "role": role, "dtype": dtype, "shape": list(array.shape), "strides": strides}
            fields.update(file=path, offset=start, span=span, guard=GUARD_BYTES)
            tensors.append(fields)
            del view
        pathlib.Path(path).write_bytes(data)
        self.files[name] = (tensors, bytes(data))
        echoed = {field: case[field] for field in ("operator", "dtype", "dims", "params")}
        return {"case": name, "tensors": tensors, **echoed}

    def rewrite(self, name):
        """Puts a posed file's first contents back, in place."""
        with open(self.files[name][0][0]["file"], "r+b") as file:
            file.write(self.files[name][1])

    def outputs(self, name):
        """The written tensors of a posed case; every other byte must be as it was."""
        tensors, before = self.files[name]
        after = bytearray(pathlib.Path(tensors[0]["file"]).read_bytes())
        found, untouched = {}, bytearray(before)
        for fields in tensors:
            if fields["role"] == "in":
                continue
            kind = protocol.DTYPES[fields["dtype"]]
            place = (fields["shape"], kind), fields["offset"], [step * kind.itemsize for step in fields["strides"]]
            array = np.ndarray(*place[0], after, place[1], place[2])
            found[fields["name"]] = array.copy()
            np.ndarray(*place[0], untouched, place[1], place[2])[...] = array
        if bytes(after) != bytes(untouched):
            raise AssertionError("bytes outside the outputs changed")
        return found

    def run(self, name, case, checked=False, **layout):
        """Poses, prepares and checks a case; gives the answer and the written tensors."""
        answer = self.ask("prepare", **self.pose(name, case, **layout))
        if answer["verb"] == "prepared":
            answer = self.ask("check", case=name, checked=checked)
        return answer, self.outputs(name)

    def measure(self, name, phase, **fields):
        """One `measure` request."""
        request = {"case": name, "phase": phase, "block": 0, "position": 0, "samples": 8, "min_sample_ns": 200e3}
        request.update(cache="hot", footprint=0, publish=False, slowdown=0.0, refresh=False)
        request.update(fields)
        return self.ask("measure", **request)
