"""What has been said of a tensor's dimensions: by `torchdynamo.mark_dynamic` and its kin, or by torch's own.

Both leave it on the tensor, in the attributes that torch.compile reads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

DYNAMIC = "_dynamo_dynamic_indices"
MAYBE = "_dynamo_weak_dynamic_indices"
UNBACKED = "_dynamo_unbacked_indices"
STATIC = "_dynamo_static_indices"


class Said(NamedTuple):
    """Dimensions, by what was said of them."""

    dynamic: frozenset[int]
    static: frozenset[int]


NOTHING = Said(frozenset(), frozenset())


def dimensions(tensor: torch.Tensor) -> Said:
    """What is known of this tensor's dimensions."""
    own = tensor.__dict__
    if not own:
        return NOTHING
    dynamic: set[int] = set()
    for name in (DYNAMIC, MAYBE, UNBACKED):
        dynamic |= indices(own.get(name))
    return Said(frozenset(dynamic), frozenset(indices(own.get(STATIC))))


def indices(said: Any) -> set[int]:
    """The dimensions in such an attribute."""
    return {int(dim) for dim in said} if isinstance(said, (set, frozenset, list, tuple)) else set()
