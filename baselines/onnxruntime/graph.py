"""ONNX models, written as protobuf bytes: the few fields that a graph of standard nodes needs.

So the provider needs no package beside onnxruntime itself; the tests have the `onnx` package check the bytes where it
is installed.
"""

import struct

IR_VERSION = 10
OPSETS = {"": 21, "com.microsoft": 1}
TYPES = {"F32": 1, "U8": 2, "I32": 6, "I64": 7, "BOOL": 9, "F16": 10, "BF16": 16, "F8_E4M3": 17}


def _varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field, value):
    return _varint(field << 3) + _varint(value)


def _bytes(field, value):
    value = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _attribute(name, value):
    if isinstance(value, bool):
        value = int(value)
    if isinstance(value, int):
        return _bytes(1, name) + _number(3, value) + _number(20, 2)
    if isinstance(value, float):
        return _bytes(1, name) + _varint(2 << 3 | 5) + struct.pack("<f", value) + _number(20, 1)
    if isinstance(value, str):
        return _bytes(1, name) + _bytes(4, value) + _number(20, 3)
    return _bytes(1, name) + b"".join(_number(8, item) for item in value) + _number(20, 7)


def _value(name, dtype, shape):
    dims = b"".join(_bytes(1, _number(1, extent)) for extent in shape)
    return _bytes(1, name) + _bytes(2, _bytes(1, _number(1, TYPES[dtype]) + _bytes(2, dims)))


class Graph:
    """A graph under construction; `model` gives its bytes."""

    def __init__(self):
        self.nodes, self.constants, self.inputs, self.outputs, self.fresh = [], [], [], [], 0

    def input(self, name, dtype, shape):
        """Declares an input; gives its name."""
        self.inputs.append(_value(name, dtype, shape))
        return name

    def output(self, name, dtype, shape):
        """Declares an output; gives its name."""
        self.outputs.append(_value(name, dtype, shape))
        return name

    def constant(self, dtype, array):
        """Adds an initializer of a numpy array; gives its name."""
        name = "constant_{}".format(len(self.constants))
        dims = b"".join(_number(1, extent) for extent in array.shape)
        self.constants.append(dims + _number(2, TYPES[dtype]) + _bytes(8, name) + _bytes(9, array.tobytes()))
        return name

    def node(self, kind, inputs, outputs=1, domain="", **attributes):
        """Adds a node; `outputs` are names, or how many to make up. Gives the output's name, or a list of them."""
        if isinstance(outputs, int):
            outputs = ["value_{}".format(self.fresh + index) for index in range(outputs)]
            self.fresh += len(outputs)
        body = b"".join(_bytes(1, name) for name in inputs) + b"".join(_bytes(2, name) for name in outputs)
        body += _bytes(3, "node_{}".format(len(self.nodes))) + _bytes(4, kind)
        body += b"".join(_bytes(5, _attribute(name, value)) for name, value in attributes.items())
        self.nodes.append(body + _bytes(7, domain))
        return outputs[0] if len(outputs) == 1 else outputs

    def model(self):
        """The model's bytes."""
        graph = b"".join(_bytes(1, node) for node in self.nodes) + _bytes(2, "operator")
        graph += b"".join(_bytes(5, constant) for constant in self.constants)
        graph += b"".join(_bytes(11, value) for value in self.inputs)
        graph += b"".join(_bytes(12, value) for value in self.outputs)
        opsets = b"".join(_bytes(8, _bytes(1, name) + _number(2, version)) for name, version in OPSETS.items())
        return _number(1, IR_VERSION) + _bytes(2, "proofhouse") + _bytes(7, graph) + opsets
