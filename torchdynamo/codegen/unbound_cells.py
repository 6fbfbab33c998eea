"""Make continuations raise UnboundLocalError for the function's own empty cells.

A continuation gets these cells as free variables, for which Python raises NameError. So each read gets an exception
handler at the end of the code, which raises the right error. Cells can become empty at any time: an inner function can
delete its variable.
"""

from __future__ import annotations

from types import CodeType
from typing import TypeGuard

from torchdynamo.bytecode.bound import unbound_text
from torchdynamo.bytecode.decode import decode
from torchdynamo.bytecode.instruction import Instruction, Item, Label, RegionEnd, RegionStart, with_regions
from torchdynamo.bytecode.versions import EXCEPTION_TABLE, NULL_FIRST


def checked(code: CodeType) -> list[Item]:
    """Return the instructions of a function, each at its place, with handlers for its own cells at the end."""
    items = decode(code).items()
    if not (code.co_cellvars and EXCEPTION_TABLE):
        return items
    made: list[Item] = []
    handlers: list[Item] = []
    for item, around in with_regions(items):
        if reads_own(item, code):
            start = RegionStart(Label())
            made += [start, item, RegionEnd(start)]
            handlers += handler(start.handler, item, around)
        else:
            made.append(item)
    return made + handlers


READS = frozenset({"LOAD_DEREF", "DELETE_DEREF"})


def reads_own(item: Item, code: CodeType) -> TypeGuard[Instruction]:
    """Return whether an instruction reads one of the function's own cells."""
    if not isinstance(item, Instruction) or item.op not in READS:
        return False
    return item.arg in code.co_cellvars


def handler(label: Label, read: Instruction, outer: RegionStart | None) -> list[Item]:
    """Return instructions that replace the exception on the stack by UnboundLocalError, at the same line."""
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
