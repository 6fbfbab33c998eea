"""Convert source positions to the form of the `bytecode` package."""

from __future__ import annotations

from collections.abc import Sequence

from bytecode.instr import Instr, InstrLocation

from torchdynamo.bytecode import versions
from torchdynamo.bytecode.depth import Raw

NOWHERE = InstrLocation(None, None, None, None)


def location(position: versions.Positions) -> InstrLocation:
    line, end_line, column, end_column = position
    if line is None or end_line is None or column is None or end_column is None:
        return InstrLocation(line, None, None, None)
    if (end_line, end_column) < (line, column):  # CPython has emitted such positions
        return InstrLocation(line, None, None, None)
    return InstrLocation(line, end_line, column, end_column)


def fill_gaps(stream: Sequence[Raw], first_line: int) -> None:
    """Give instructions without a line the line of their neighbours, if it is the same before and after.

    The package's writer of the older line table would otherwise give what follows to such a gap.
    """
    line: int | None = first_line
    gap: list[Instr] = []
    for item in stream:
        if not isinstance(item, Instr) or item.location is None:
            continue
        if item.location.lineno is None:
            gap.append(item)
            continue
        if item.location.lineno == line:
            for instruction in gap:
                instruction.location = item.location
        gap, line = [], item.location.lineno
