"""Find the handlers that are on the block stack, in Pythons that have one."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from torchdynamo.bytecode.instruction import Code
from torchdynamo.bytecode.regions import blocks


class Handler(NamedTuple):
    """A handler on the block stack: its first instruction, and the depth to which the stack is cut for it."""

    at: int
    depth: int


RUNNING = None  # on the block stack while a handler runs


def handlers(code: Code) -> list[tuple[Handler | None, ...]]:
    """Return the block stack at each instruction; at those that nothing reaches, an empty one."""
    if "handlers" not in code.analyses:
        offsets = [instruction.offset for instruction in code.instructions]
        at = blocks(code.code)
        code.analyses["handlers"] = [
            tuple(
                RUNNING if block.handler is None else Handler(bisect_left(offsets, block.handler), block.depth)
                for block in at.get(offset, ())
            )
            for offset in offsets
        ]
    found: list[tuple[Handler | None, ...]] = code.analyses["handlers"]
    return found


def is_handler(code: Code, index: int) -> bool:
    """Return whether a handler begins at an instruction."""
    return any(each is not None and each.at == index for block in handlers(code) for each in block)
