"""What a CUDA graph holds, asked of the driver itself: the number of nodes, and each kernel with its launch shape."""

import ctypes
import functools

KERNEL, CHILD = 0, 4  # CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_GRAPH


class _KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = [
        ("function", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("arguments", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    ]


@functools.lru_cache(maxsize=None)
def _driver():
    """libcuda, which a process with a captured graph has loaded long since."""
    return ctypes.CDLL("libcuda.so.1")


def _call(name, *arguments):
    """A driver function that must succeed."""
    status = getattr(_driver(), name)(*arguments)
    if status:
        raise RuntimeError("{} failed with CUDA error {}".format(name, status))


def _nodes(graph):
    count = ctypes.c_size_t()
    _call("cuGraphGetNodes", ctypes.c_void_p(graph), None, ctypes.byref(count))
    nodes = (ctypes.c_void_p * max(count.value, 1))()
    if count.value:
        _call("cuGraphGetNodes", ctypes.c_void_p(graph), nodes, ctypes.byref(count))
    return list(nodes)[: count.value]


def shown(name, grid, block):
    """A kernel as evidence writes it."""
    return "{} grid=({},{},{}) block=({},{},{})".format(name, *grid, *block)


def _kernel(node):
    parameters, name = _KernelNode(), ctypes.c_char_p()
    _call("cuGraphKernelNodeGetParams_v2", ctypes.c_void_p(node), ctypes.byref(parameters))
    asked = ("cuFuncGetName", parameters.function) if parameters.function else ("cuKernelGetName", parameters.kernel)
    _call(asked[0], ctypes.byref(name), ctypes.c_void_p(asked[1]))
    return shown((name.value or b"?").decode("utf-8", "replace"), parameters.grid, parameters.block)


def listing(graph):
    """The number of nodes of a graph (a CUgraph's address), those of graphs inside it too, and its kernels in order."""
    count, kernels = 0, []
    for node in _nodes(graph):
        kind, child = ctypes.c_int(), ctypes.c_void_p()
        _call("cuGraphNodeGetType", ctypes.c_void_p(node), ctypes.byref(kind))
        count += 1
        if kind.value == KERNEL:
            kernels.append(_kernel(node))
        elif kind.value == CHILD:
            _call("cuGraphChildGraphNodeGetGraph", ctypes.c_void_p(node), ctypes.byref(child))
            inner, names = listing(child.value)
            count, kernels = count + inner, kernels + names
    return count, kernels
