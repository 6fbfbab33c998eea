"""The ensemble: several compilers for each graph, of which the fastest correct one is kept.

Chapters: `member.py` (what a member is), `members/` (one file each), `choice.py` (who is built and measured when),
`validation.py` (what makes a result right), `measure.py` (who is the fastest), `by_size.py`, `constants.py`.
"""

from __future__ import annotations

from torchdynamo.backends.ensemble.choice import choices


def settled() -> bool:
    """Return whether every graph that the ensemble serves has its member."""
    return all(each.winner is not None for each in list(choices))


def chosen() -> list[str]:
    """Return the names of the members that serve graphs now, sorted, one for each graph."""
    return sorted(each.winner for each in list(choices) if each.winner is not None)


__all__ = ["choices", "chosen", "settled"]
