"""Which reads of a local might find it unset: a raw LOAD_FAST that trusts its slot would crash on those."""

from __future__ import annotations

from collections.abc import Sequence

from torchdynamo.bytecode.instruction import Item


def maybe_unbound(items: Sequence[Item], arguments: Sequence[str]) -> frozenset[int]:
    return frozenset(range(len(items)))
