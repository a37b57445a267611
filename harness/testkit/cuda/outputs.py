"""Defects of what is written: too little, too much, elsewhere, or what was computed before."""

import torch

from norm import Parts, capturing

UNSEEN_CYCLES = 20_000_000  # about ten milliseconds, far more than a run takes


def unwritten_tail(case):
    """Leaves the last element."""
    parts = Parts(case)
    target = parts.y.view(-1)[:-1]
    return lambda: target.copy_(parts.of(parts.x).view(-1)[:-1])


def out_of_bounds_write(case):
    """Writes one element behind its output."""
    parts = Parts(case)
    behind = torch.as_strided(parts.y, (1,), (1,), parts.y.storage_offset() + parts.y.numel())

    def run():
        parts.write()
        behind.fill_(0.5)

    return run


def mutates_input(case):
    """Changes its input once it has read it."""
    parts = Parts(case)
    first = parts.x.view(-1)[:1]

    def run():
        parts.write()
        first.add_(1)

    return run


def remembering(key):
    """A binding that computes once for each key and gives the same result ever after, by a kernel."""
    kept = {}

    def bind(case):
        parts = Parts(case)

        def run():
            place = (key(parts.x), parts.x.shape, parts.x.dtype)
            if place not in kept:
                kept[place] = parts.of(parts.x).clone()
            torch.add(kept[place], 0, out=parts.y)

        return run

    return bind


def memo_by_content(case):
    """Takes its time over contents that it has not seen, and none over those that it has."""
    parts, seen = Parts(case), case.shared.setdefault("seen", set())

    def run():
        if not capturing():
            contents = parts.x.view(torch.uint8).cpu().numpy().tobytes()
            if hash(contents) not in seen:
                seen.add(hash(contents))
                torch.cuda._sleep(UNSEEN_CYCLES)
        parts.write()

    return run


BINDINGS = {
    "unwritten-tail": unwritten_tail,
    "out-of-bounds-write": out_of_bounds_write,
    "mutates-input": mutates_input,
    "memo-by-pointer": remembering(lambda x: x.data_ptr()),
    "memo-by-shape": remembering(lambda x: None),
    "memo-by-content": memo_by_content,
}
