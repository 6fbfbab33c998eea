"""The user's line of a node, in `node.meta["stack_trace"]`: written as torch reads it, and read again."""

from __future__ import annotations

import linecache
import re

import torch.fx

from torchdynamo.core.source import Position
from torchdynamo.events import Place


def describe(position: Position | None) -> str:
    """Return the user's line as a traceback has it, which torch reads from nodes for its logs."""
    if position is None:
        return ""
    place = f'File "{position.filename}", line {position.line or 0}, in {position.function or "<unknown>"}'
    source = linecache.getline(position.filename, position.line or 0).strip()
    return f"{place}\n    {source}" if source else place


_DESCRIBED = re.compile(r'File "(.*)", line (\d+), in (.*)')


def place_of(node: torch.fx.Node) -> Place | None:
    """Return the user's line of a node, which `describe` has written; None if it has none."""
    found = _DESCRIBED.match(node.meta.get("stack_trace") or "")
    return Place(found[1], int(found[2]), found[3]) if found else None
