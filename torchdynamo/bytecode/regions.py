"""Where exceptions go: read from the exception table, or from the block stack of versions that have none."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType

from torchdynamo.bytecode.instruction import Instruction, Label, Region


def table_entries(code: CodeType) -> Iterator[tuple[int, int, int, int, bool]]:
    """(start, end, handler, depth, lasti) in table order; places in code units, end not included."""
    units = iter(code.co_exceptiontable)  # type: ignore[attr-defined, unused-ignore]

    def number(first: int) -> int:
        value = first & 63
        while first & 64:
            first = next(units)
            value = value << 6 | first & 63
        return value

    for first in units:
        start, length, handler, depth = number(first), *(number(next(units)) for _ in range(3))
        yield start, start + length, handler, depth >> 1, bool(depth & 1)


def block_regions(instructions: list[Instruction], targets: dict[Label, int]) -> list[Region]:
    return []
