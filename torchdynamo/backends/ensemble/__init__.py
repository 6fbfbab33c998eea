"""The ensemble: several compilers for each graph, of which the fastest correct one is kept.

Chapters: `member.py` (what a member is), `members/` (one file each), `choice.py` (who is built and measured when),
`validation.py` (what makes a result right), `measure.py` (who is the fastest), `by_size.py`, `constants.py`.
"""

from __future__ import annotations

import torch.fx

from torchdynamo.backends.ensemble.choice import choices


def settled() -> bool:
    """Return whether every graph that the ensemble serves has its member."""
    return all(each.winner is not None for each in list(choices))


def chosen() -> list[str]:
    """Return the names of the members that serve graphs now, sorted, one for each graph."""
    return sorted(each.winner for each in list(choices) if each.winner is not None)


def rows_of(gm: torch.fx.GraphModule) -> list[tuple[str, str, str, str]]:
    """Return what became of each member for a captured graph: name, state, time, reason. Empty for other backends."""
    return [row for each in list(choices) if each.captured is gm for row in each.rows()]


__all__ = ["choices", "chosen", "rows_of", "settled"]
