"""Analyse control flow: successors, reachability, loops."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from torchdynamo.bytecode.instruction import Code, Instruction, Label

# Instructions without a successor in line.
FINAL = frozenset({"JUMP", "RETURN", "RAISE", "RERAISE"})
# Instructions whose label is an exception handler, which Regions describe.
_SETUPS = frozenset({"SETUP_FINALLY", "WITH_ENTER", "SETUP_ASYNC_WITH"})


class Loop(NamedTuple):
    """A loop: `start` is the first instruction of each turn, `end` the last jump back to it in line.

    `body`: all instructions that run only as part of the loop: those between the two, and handlers and other code out
    of line that is reachable from nowhere else.
    """

    start: int
    end: int
    body: frozenset[int]


def target(instruction: Instruction) -> Label | None:
    """Return the label that an instruction may jump to; None if there is none."""
    arg = instruction.arg
    if type(arg) is tuple and arg:
        arg = arg[-1]
    return arg if type(arg) is Label else None


def successors(code: Code) -> list[tuple[int, ...]]:
    """Return, for each instruction, those that may run next, exception handlers not included."""
    found = []
    for index, instruction in enumerate(code.instructions):
        following = () if instruction.op in FINAL else (index + 1,)
        label = None if instruction.op in _SETUPS else target(instruction)
        found.append(following if label is None else (*following, code.targets[label]))
    return found


def reachable(
    start: Iterable[int], step: Callable[[int], Iterable[int]], avoiding: frozenset[int] = frozenset()
) -> set[int]:
    """Return the instructions reachable from `start` by `step` without entering `avoiding`."""
    seen = set(start) - avoiding
    waiting = list(seen)
    while waiting:
        for index in step(waiting.pop()):
            if index not in seen and index not in avoiding:
                seen.add(index)
                waiting.append(index)
    return seen


def rebound(code: Code) -> frozenset[str]:
    """Return the names of local variables that the code stores or deletes."""
    if "rebound" not in code.analyses:
        code.analyses["rebound"] = frozenset(each.arg for each in code.instructions if each.op in REBINDING)
    found: frozenset[str] = code.analyses["rebound"]
    return found


def way_out(code: Code, start: int) -> int | None:
    """Return the instruction after the loop that begins at `start`; None if it is out of line or in another region."""
    loop = loop_at(code, start)
    if loop is None:
        return None
    first = code.instructions[start]
    label = target(first) if first.op == "FOR_ITER" else None
    index = loop.end + 1 if label is None else code.targets[label]
    if index in loop.body or index >= len(code.instructions) or code.lookup(index) is not code.lookup(start):
        return None
    normal = successors(code)
    return index if any(index in normal[each] for each in loop.body) else None


REBINDING = ("STORE_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR")


def loops(code: Code) -> list[Loop]:
    """Return the loops in order of their start, outer ones first."""
    if "loops" not in code.analyses:
        code.analyses["loops"] = _loops(code)
    found: list[Loop] = code.analyses["loops"]
    return found


def loop_at(code: Code, start: int) -> Loop | None:
    """Return the loop that begins at an instruction; None if there is none."""
    return next((loop for loop in loops(code) if loop.start == start), None)


def _loops(code: Code) -> list[Loop]:
    normal = successors(code)
    size = len(code.instructions)

    def onward(index: int) -> tuple[int, ...]:
        region = code.lookup(index)
        return normal[index] if region is None else (*normal[index], region.handler)

    backward: dict[int, list[int]] = {}
    for index in range(size):
        for following in normal[index]:
            if following <= index:
                backward.setdefault(following, []).append(index)
    if not backward:
        return []
    before: list[list[int]] = [[] for _ in range(size + 1)]
    for index in range(size):
        for following in onward(index):
            before[following].append(index)
    in_line = reachable([0], normal.__getitem__)
    found = []
    for start, jumps in sorted(backward.items()):
        elsewhere = reachable([0], onward, frozenset([start]))
        rounds = [index for index in jumps if index not in elsewhere]  # a loop's start cannot be bypassed
        if not rounds:
            continue
        cycle = reachable(rounds, before.__getitem__, frozenset([start])) | {start}
        end = max((index for index in rounds if index in in_line), default=start)
        inside = cycle | {index for index in range(start, end + 1) if index not in elsewhere}
        outside = reachable([0], onward, frozenset(inside - {start}))
        inside |= set(range(size)) - outside - in_line - elsewhere
        found.append(Loop(start, end, frozenset(inside)))
    return sorted(found, key=lambda loop: (loop.start, -len(loop.body)))
