"""Count the collectives that this process has issued, to know whether a graph that failed had communicated by then."""

from __future__ import annotations

from typing import Any, TypeAlias

import torch.distributed as dist

Issued: TypeAlias = dict[Any, int]
"""Process group -> how many collectives it has issued; -1 for one that does not count."""


def issued() -> Issued:
    """Return how many collectives each process group has issued so far."""
    if not dist.is_available():
        return {}
    return {group: _count(group) for group in dist.distributed_c10d._world.pg_map}


def any_since(begun: Issued) -> bool:
    """Return whether a collective may have been issued since; for groups that do not count, it may."""
    return any(number < 0 or _count(group) != number for group, number in begun.items())


def _count(group: Any) -> int:
    try:
        return int(group._get_sequence_number_for_group())
    except RuntimeError:  # not every backend counts, and some only once they have communicated
        return -1
