"""Read exception regions from the exception table, or in older versions from the block stack."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType
from typing import NamedTuple

from torchdynamo.bytecode import versions

# Number of items pushed for a handler of the block stack: the previous and the new exception, as triples.
_PUSHED = 6
# SETUP instruction -> how far below the top its block begins
_SETUPS = {"SETUP_FINALLY": 0, "SETUP_WITH": 0, "SETUP_ASYNC_WITH": 1}
_FINAL = frozenset({"JUMP_FORWARD", "JUMP_ABSOLUTE", "RETURN_VALUE", "RAISE_VARARGS", "RERAISE"})


class Entry(NamedTuple):
    """An exception region in code units; `end` is exclusive."""

    start: int
    end: int
    handler: int
    depth: int
    lasti: bool


def table_entries(code: CodeType) -> Iterator[Entry]:
    """Yield the entries of the exception table in their order."""
    units = iter(code.co_exceptiontable)  # type: ignore[attr-defined, unused-ignore]

    def number(first: int) -> int:
        value = first & 63
        while first & 64:
            first = next(units)
            value = value << 6 | first & 63
        return value

    for first in units:
        start, length, handler, depth = number(first), *(number(next(units)) for _ in range(3))
        yield Entry(start, start + length, handler, depth >> 1, bool(depth & 1))


def has_stop_handler(code: CodeType) -> bool:
    """Return whether the code is within the handler of a generator; generators that are lambdas have none."""
    raw, begins = code.co_code, versions.STOP_HANDLER
    return bool(begins) and any(raw[2 * entry.handler :].startswith(begins) for entry in table_entries(code))


class BlockOnStack(NamedTuple):
    """A block of the block stack: where exceptions go, cutting the stack to `depth`."""

    handler: int | None  # an offset; None: the block of a handler that is running
    depth: int


def blocks(code: CodeType) -> dict[int, tuple[BlockOnStack, ...]]:
    """Return the block stack at each offset, found by following all paths from the start."""
    instructions = {instruction.offset: instruction for instruction in dis.get_instructions(code)}
    blocks_at: dict[int, tuple[BlockOnStack, ...]] = {}
    waiting: list[tuple[int, int, tuple[BlockOnStack, ...]]] = [(0, 0, ())]
    while waiting:
        offset, depth, inside = waiting.pop()
        while offset in instructions and offset not in blocks_at:
            blocks_at[offset] = inside
            instruction = instructions[offset]
            name, opcode, arg = instruction.opname, instruction.opcode, instruction.arg
            if name in _SETUPS:
                block = BlockOnStack(instruction.argval, depth - _SETUPS[name])
                waiting.append((instruction.argval, block.depth + _PUSHED, (*inside, BlockOnStack(None, block.depth))))
                inside = (*inside, block)
            elif opcode in dis.hasjrel or opcode in dis.hasjabs:
                waiting.append((instruction.argval, depth + dis.stack_effect(opcode, arg, jump=True), inside))
            elif name in ("POP_BLOCK", "POP_EXCEPT", "END_ASYNC_FOR"):
                inside = inside[:-1]
            if name in _FINAL:
                break
            depth += 0 if name == "GEN_START" else dis.stack_effect(opcode, arg, jump=False)
            offset += 2
    return blocks_at


def block_entries(code: CodeType) -> Iterator[Entry]:
    """Yield the regions of the block stack: maximal ranges of instructions with the same innermost block."""
    blocks_at = blocks(code)
    start, current = 0, None
    for offset in range(0, max(blocks_at) + 4, 2):
        block = next((block for block in reversed(blocks_at.get(offset, ())) if block.handler is not None), None)
        if block != current:
            if current is not None and current.handler is not None:
                yield Entry(start >> 1, offset >> 1, current.handler >> 1, current.depth, False)
            start, current = offset, block
