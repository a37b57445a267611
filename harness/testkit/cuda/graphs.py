"""Defects of what is captured: nothing, something else, other memory, or work that runs beside the graph."""

import torch

from norm import Parts, capturing, decoy

ESCAPED_CYCLES = 200_000  # about a tenth of a millisecond a call, far more than its launch takes


def empty_graph(case):
    """Enqueues nothing while it is captured."""
    parts = Parts(case)
    return lambda: None if capturing() else parts.write()


def idle_when_captured(case):
    """Enqueues a kernel while it is captured, but not the operator."""
    parts = Parts(case)
    idle = decoy(parts)
    return lambda: idle() if capturing() else parts.write()


def stale_graph_inputs(case):
    """Captures a copy of the inputs that the last eager call left."""
    parts = Parts(case)
    kept = torch.empty_like(parts.x)

    def run():
        if capturing():
            parts.y.copy_(parts.of(kept))
        else:
            kept.copy_(parts.x)
            parts.write()

    return run


def reads_back(case):
    """Looks at a value on the host, which no graph can hold."""
    parts = Parts(case)

    def run():
        if parts.x.isnan().any().item():
            raise ValueError("NaN")
        parts.write()

    return run


def stream_escape(case):
    """Works on a stream of its own, beside the one that is timed or captured."""
    parts = Parts(case)
    idle, side = decoy(parts), torch.cuda.Stream()
    result = torch.empty_like(parts.y)

    def run():
        captured = capturing()
        with torch.cuda.stream(side):
            torch.cuda._sleep(ESCAPED_CYCLES)
            if not captured:  # beside a capture no memory may be taken
                result.copy_(parts.of(parts.x))
            parts.y.copy_(result)
        idle()

    return run


def one_set(case):
    """Works on the first private buffer set, whichever set it is given: cold calls find their operands in the cache."""
    bindings = case.shared.setdefault("bindings", [])
    bindings.append(Parts(case))

    def run():
        parts = bindings[0] if bindings[0].y is case.tensors["y"] else bindings[1]
        parts.write()

    return run


def skips_when_written(case):
    """Computes only where its output was never written, which timed calls after the first never see."""
    import lazy_kernel  # Triton, which no other defect here needs

    parts = Parts(case)
    return lambda: lazy_kernel.norm(parts.x, parts.w, parts.y, parts.eps)


BINDINGS = {
    "skips-when-written": skips_when_written,
    "empty-graph": empty_graph,
    "idle-when-captured": idle_when_captured,
    "stale-graph-inputs": stale_graph_inputs,
    "reads-back": reads_back,
    "stream-escape": stream_escape,
    "one-set": one_set,
}
