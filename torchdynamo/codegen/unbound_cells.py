"""A continuation has the frame's own cells from outside, and Python says another thing of an empty cell from there.

Reads of its own get a handler behind the last instruction, which raises what the frame would: whoever has a function
of the frame's can empty its cells.
"""

from __future__ import annotations

from types import CodeType
from typing import TypeGuard

from torchdynamo.bytecode.bound import unbound_text
from torchdynamo.bytecode.decode import decode
from torchdynamo.bytecode.instruction import Instruction, Item, Label, RegionEnd, RegionStart
from torchdynamo.bytecode.versions import EXCEPTION_TABLE, NULL_FIRST


def checked(code: CodeType) -> list[Item]:
    """Return the instructions of a function, for a continuation of it: each at its place, and handlers at the end."""
    items = decode(code).items()
    if not (code.co_cellvars and EXCEPTION_TABLE):
        return items
    made: list[Item] = []
    handlers: list[Item] = []
    around: list[RegionStart] = []
    for item in items:
        if isinstance(item, RegionStart):
            around.append(item)
        elif isinstance(item, RegionEnd):
            around.pop()
        if reads_own(item, code):
            start = RegionStart(Label())
            made += [start, item, RegionEnd(start)]
            handlers += handler(start.handler, item, around[-1] if around else None)
        else:
            made.append(item)
    return made + handlers


READS = frozenset({"LOAD_DEREF", "DELETE_DEREF"})


def reads_own(item: Item, code: CodeType) -> TypeGuard[Instruction]:
    """Return whether it reads a cell of the function's own."""
    if not isinstance(item, Instruction) or item.op not in READS:
        return False
    return item.arg in code.co_cellvars


def handler(label: Label, read: Instruction, outer: RegionStart | None) -> list[Item]:
    """Emit the raise of UnboundLocalError in place of what is on the stack, from the same line."""
    callee = [Instruction("NULL"), Instruction("LOAD_CONST", UnboundLocalError)]
    raising = [
        Instruction("POP"),
        *(callee if NULL_FIRST else reversed(callee)),
        Instruction("LOAD_CONST", unbound_text(read.arg)),
        Instruction("CALL", (1, ())),
        Instruction("RAISE", 1),
    ]
    for instruction in raising:
        instruction.position = read.position
    if outer is None:
        return [label, *raising]
    start = RegionStart(outer.handler, outer.lasti, outer.depth)
    return [label, start, *raising, RegionEnd(start)]
