"""A continuation has the frame's own cells from outside, and Python says another thing of an empty cell from there.

Reads of cells that may be empty get a handler behind the last instruction, which raises what the frame would.
"""

from __future__ import annotations

from types import CodeType
from typing import TypeGuard

from torchdynamo.bytecode.assemble import argument_names
from torchdynamo.bytecode.bound import CELLS, maybe_unbound, unbound_text
from torchdynamo.bytecode.decode import decode
from torchdynamo.bytecode.instruction import Instruction, Item, Label, RegionEnd, RegionStart
from torchdynamo.bytecode.versions import EXCEPTION_TABLE, NULL_FIRST


def checked(code: CodeType) -> list[Item]:
    """The instructions of a function, for a continuation of it: each at its place, and handlers at the end."""
    items = decode(code).items()
    if not (code.co_cellvars and EXCEPTION_TABLE):
        return items
    shaky, gone = maybe_unbound(items, argument_names(code), CELLS), deleted_inside(code)
    made: list[Item] = []
    handlers: list[Item] = []
    around: list[RegionStart] = []
    for at, item in enumerate(items):
        if isinstance(item, RegionStart):
            around.append(item)
        elif isinstance(item, RegionEnd):
            around.pop()
        if may_be_empty(item, code, at in shaky, gone):
            start = RegionStart(Label())
            made += [start, item, RegionEnd(start)]
            handlers += handler(start.handler, item, around[-1] if around else None)
        else:
            made.append(item)
    return made + handlers


def may_be_empty(item: Item, code: CodeType, shaky: bool, gone: frozenset[str]) -> TypeGuard[Instruction]:
    """Whether it reads a cell of the function's own that may be empty."""
    if not isinstance(item, Instruction) or item.op not in CELLS.reads:
        return False
    return item.arg in code.co_cellvars and (shaky or item.arg in gone)


def deleted_inside(code: CodeType) -> frozenset[str]:
    """Variables of a function that the functions in it delete."""
    found: set[str] = set()
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            own = {each.arg for each in decode(inner).instructions if each.op == "DELETE_DEREF"}
            found |= (own | deleted_inside(inner)) & {*inner.co_freevars}
    return frozenset(found)


def handler(label: Label, read: Instruction, outer: RegionStart | None) -> list[Item]:
    """Raises UnboundLocalError in place of what is on the stack, from the same line."""
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
