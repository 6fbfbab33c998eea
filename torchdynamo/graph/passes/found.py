"""Findings of a rewrite in a graph: where, and what became of each."""

from __future__ import annotations

from typing import NamedTuple

from torchdynamo.events import Place


class Found(NamedTuple):
    """Something that a rewrite knows (`what`) in a graph: where, and what it is now, or why it is left as written."""

    what: str
    place: Place | None
    how: str
    missed: bool = False
