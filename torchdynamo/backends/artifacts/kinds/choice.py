"""Graphs for which the ensemble has chosen the fastest of its compilers: the choice, and what that one has made.

A choice holds for as long as the ensemble's database says the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchdynamo.backends.artifacts import rows
from torchdynamo.backends.artifacts.artifact import (
    Artifact,
    BadArtifact,
    CannotStore,
    Captured,
    NotReady,
    NotStored,
    ReadBlob,
    Value,
    field,
)
from torchdynamo.backends.ensemble.by_size import BySize
from torchdynamo.backends.ensemble.choice import EAGER, Choice
from torchdynamo.backends.ensemble.database import database

Chosen = Choice | BySize


def made_of(compiled: Any) -> Chosen | None:
    """Return the callable, if the ensemble made it."""
    return compiled if isinstance(compiled, (Choice, BySize)) else None


def dump(choice: Chosen) -> Artifact:
    """Write a choice. Raises CannotStore."""
    if isinstance(choice, BySize):
        raise CannotStore("its sizes vary, and a choice is made for each")
    if choice.winner is None:
        raise NotReady("none of its compilers is chosen yet")
    if choice.hash is None:
        raise CannotStore("its choice is not kept in a database, or there was none between members")
    if winner_of(choice.hash) != choice.winner:
        raise CannotStore(f"the database does not say that {choice.winner!r} is the fastest")
    data: dict[str, Value] = {"graph": choice.hash, "winner": choice.winner}
    if choice.winner == EAGER:
        return Artifact(data, {})
    candidate = choice.candidates[choice.winner]
    if candidate.may_be_outdated:
        raise CannotStore(f"what {choice.winner!r} has compiled rests on constants, or on a number of threads")
    made = rows.dump(candidate.run)  # type: ignore[arg-type]
    if isinstance(made, NotStored):
        raise (NotReady if made.later else CannotStore)(f"{choice.winner!r} was chosen: {made.reason}")
    return Artifact({**data, "compiled": made.data}, made.blobs)


def winner_of(graph: str) -> str | None:
    """Return what the database says is the fastest for a graph; None if it does not know, or is switched off."""
    known = database()
    return None if known is None else known.winner(graph)


def load(data: dict[str, Value], read_blob: ReadBlob, captured: Captured | None) -> Callable[..., Any]:
    """Return what was chosen. Raises BadArtifact if the database does not say so any more."""
    winner = field(data, "winner", str)
    if winner_of(field(data, "graph", str)) != winner:
        raise BadArtifact(f"the database does not say any more that {winner!r} is the fastest")
    if winner != EAGER:
        return rows.load(field(data, "compiled", dict), read_blob, captured)
    if captured is None:
        raise BadArtifact("the captured graph is not there, which is the fastest")
    run: Callable[..., Any] = captured().forward
    return run


def when_ready(choice: Chosen, call: Callable[[], object]) -> bool:
    """Call a function when there is a winner, or when that can be written; return whether this is still to come."""
    if isinstance(choice, BySize):
        return False
    if choice.winner is None:
        choice.when_chosen.append(call)
        return True
    run = None if choice.winner == EAGER else choice.candidates[choice.winner].run
    return run is not None and rows.when_ready(run, call)


KIND = rows.ArtifactKind(made_of, dump, load, when_ready)
