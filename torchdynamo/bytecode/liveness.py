"""Compute live locals: those that may be read before they are set again.

Sets of names are bit masks during the computation.
"""

from __future__ import annotations

from torchdynamo.bytecode.flow import successors
from torchdynamo.bytecode.instruction import Code

READS = frozenset({"LOAD_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR"})
SETS = frozenset({"STORE_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR"})


def live_locals(code: Code, index: int) -> frozenset[str]:
    """Return the names of fast locals (not cells) that are live at instruction `index`."""
    if "live" not in code.analyses:
        code.analyses["live"] = _solve(code)
    names, live = code.analyses["live"]
    mask = live[index]
    return frozenset(name for name, bit in names.items() if mask & bit)


def _solve(code: Code) -> tuple[dict[str, int], list[int]]:
    names: dict[str, int] = {}
    size = len(code.instructions)
    reads, keeps = [0] * size, [-1] * size
    for index, instruction in enumerate(code.instructions):
        if instruction.op in READS or instruction.op in SETS:
            bit = names.setdefault(instruction.arg, 1 << len(names))
            if instruction.op in READS:
                reads[index] = bit
            if instruction.op in SETS:
                keeps[index] = ~bit
    following = successors(code)
    live = [0] * (size + 1)
    changed = True
    while changed:  # backwards, so that it takes one round more than the nesting of loops
        changed = False
        for index in range(size - 1, -1, -1):
            mask = 0
            for successor in following[index]:
                mask |= live[successor]
            mask = mask & keeps[index] | reads[index]
            region = code.lookup(index)
            if region is not None:  # it may raise before it sets anything
                mask |= live[region.handler]
            if mask != live[index]:
                live[index] = mask
                changed = True
    return names, live
