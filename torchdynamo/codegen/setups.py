"""Handlers in continuations: the block stack, and where an exception was raised.

Where handlers are on a block stack, continuations begin with those that were there where a frame was left. Where the
place of the raising instruction, which a handler finds on the stack, is no object (`versions.PLACES_ARE_TAGGED`),
continuations are given one in its stead, and raise without.
"""

from __future__ import annotations

from torchdynamo.bytecode.handlers import handlers, is_handler
from torchdynamo.bytecode.instruction import Code, Instruction, Item, Label
from torchdynamo.bytecode.versions import EXCEPTION_TABLE, PLACES_ARE_TAGGED
from torchdynamo.core.signals import Restart

Setups = tuple[tuple[int, Label], ...]
"""Handlers on the block stack: how deep the stack is below each, and its label."""


def raised_again(name: str) -> list[Instruction]:
    """Return instructions that raise the exception in a variable as if it came from where it was raised first."""
    return [
        Instruction("LOAD_FAST", name),
        Instruction("LOAD_ATTR", "__traceback__"),
        Instruction("LOAD_FAST", name),
        Instruction("LOAD_CONST", type),
        Instruction("LOAD_FAST", name),
        Instruction("CALL_FUNCTION", (1, ())),
        Instruction("DELETE_FAST", name),
        Instruction("RERAISE", 0),
    ]


def setups_at(code: Code, index: int, start: Label, depth: int) -> Setups:
    """Return the handlers on the block stack where a frame was left. If that is the start of one, it is the last.

    Raises Restart where handlers run: what they handle is on the block stack, too.
    """
    if EXCEPTION_TABLE:
        return ()
    found = handlers(code)[index]
    label_of = {at: label for label, at in code.targets.items()}
    setups = [(each.depth, label_of[each.at]) for each in found if each is not None]
    if is_handler(code, index):
        found = found[:-1]
        setups.append((depth - 1, start))
    if None in found:
        raise Restart(-1)
    return tuple(setups)


def alone(instruction: Instruction) -> list[Item]:
    """Return an instruction so that it leaves no handler of its own on the block stack: the continuation has that."""
    if instruction.op != "WITH_ENTER" or EXCEPTION_TABLE:
        return [Instruction(instruction.op, instruction.arg, instruction.position)]
    handler, over = Label(), Label()
    return [
        Instruction(instruction.op, handler, instruction.position),
        Instruction("POP_BLOCK"),
        Instruction("JUMP", over),
        handler,
        Instruction("RERAISE", 0),
        over,
    ]


def handled(depth: int) -> list[Item]:
    """Return instructions at a handler that leave the exception alone on the stack, and handle it no longer."""
    if EXCEPTION_TABLE:
        return []
    return [
        Instruction("POP"),
        Instruction("STORE_FAST", f"__stack{depth}"),
        Instruction("POP"),
        Instruction("POP_EXCEPT"),
        Instruction("LOAD_FAST", f"__stack{depth}"),
    ]


def with_object_for_place(lasti: bool) -> list[Item]:
    """Return instructions at a handler that put an object in the stead of a tagged place below the exception."""
    if not (lasti and PLACES_ARE_TAGGED):
        return []
    return [Instruction("SWAP", 2), Instruction("POP"), Instruction("LOAD_CONST", 0), Instruction("SWAP", 2)]


def raising_without_place(items: list[Item]) -> list[Item]:
    """Return the items with re-raises that read no place, where they would take an object for a tagged one."""
    if not PLACES_ARE_TAGGED:
        return items
    return [
        Instruction("RERAISE", 0, item.position, item.offset)
        if isinstance(item, Instruction) and item.op == "RERAISE"
        else item
        for item in items
    ]
