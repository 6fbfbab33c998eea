"""Find which local variables are set before each instruction: surely, or perhaps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from torchdynamo.bytecode.bound import UNSETS
from torchdynamo.bytecode.flow import successors
from torchdynamo.bytecode.instruction import Code


class Bound(NamedTuple):
    """The variables that are set before an instruction."""

    surely: frozenset[str]
    perhaps: frozenset[str]  # these and the sure ones


def bound_at(code: Code, arguments: Iterable[str]) -> dict[int, Bound]:
    """Return, for each instruction that can be reached, which fast locals are set before it."""
    if "bound" in code.analyses:
        found: dict[int, Bound] = code.analyses["bound"]
        return found
    # A variable that is saved and restored (by an inlined comprehension) may be restored to unset.
    shaky = {each.arg for each in code.instructions if each.op == "LOAD_FAST_AND_CLEAR"}
    following = successors(code)
    given = frozenset(arguments)
    found, waiting = {}, [(0, Bound(given - shaky, given))]
    while waiting:
        index, now = waiting.pop()
        known = found.get(index)
        if known is not None:
            now = Bound(known.surely & now.surely, known.perhaps | now.perhaps)
            if now == known:
                continue
        found[index] = now
        region = code.lookup(index)
        if region is not None:
            waiting.append((region.handler, now))
        instruction = code.instructions[index]
        if instruction.op == "STORE_FAST":
            name = frozenset([instruction.arg])
            now = Bound(now.surely | name - shaky, now.perhaps | name)
        elif instruction.op in UNSETS:
            name = frozenset([instruction.arg])
            now = Bound(now.surely - name, now.perhaps - name)
        waiting += [(each, now) for each in following[index]]
    code.analyses["bound"] = found
    return found
