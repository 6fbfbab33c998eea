"""A choice of the ensemble is written with what the winner has compiled, and read while the database says the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from torchdynamo.backends import artifacts
from torchdynamo.backends.artifacts import Artifact, BadArtifact, BlobFile, NotStored
from torchdynamo.backends.artifacts.kinds import choice as kind
from torchdynamo.backends.ensemble.choice import EAGER, Choice
from torchdynamo.backends.ensemble.settings import Settings
from torchdynamo.backends.registry import lookup

X = torch.linspace(-1, 1, 6)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the database says: graph -> winner."""
    found: dict[str, str] = {}
    monkeypatch.setattr(kind, "database", lambda: SimpleNamespace(winner=found.get))
    return found


def graph() -> torch.fx.GraphModule:
    return torch.fx.symbolic_trace(lambda x: (x.sin() * 2,))


def undecided() -> Choice:
    made = Choice(graph(), [], Settings())
    made.hash = "graph"
    return made


def won_by(name: str, known: dict[str, str], run: Any = None, outdated: bool = False) -> Choice:
    made = undecided()
    made.candidates[name] = SimpleNamespace(run=run, may_be_outdated=outdated)  # type: ignore[assignment]
    made.winner = known["graph"] = name
    return made


def loaded(artifact: Artifact | NotStored) -> Any:
    assert isinstance(artifact, Artifact), artifact
    return artifacts.load(artifact.data, lambda name: BlobFile("", artifact.blobs[name]), graph)


def test_eager_is_loaded_as_the_captured_graph(known: dict[str, str]) -> None:
    (result,) = loaded(artifacts.dump(won_by(EAGER, known)))(X)
    assert torch.equal(result, X.sin() * 2)


def test_what_the_winner_has_compiled_is_loaded(known: dict[str, str]) -> None:
    with torch.no_grad():
        run = lookup("aot_eager")(graph(), [X])
    (result,) = loaded(artifacts.dump(won_by("one", known, run)))(X)
    assert torch.equal(result, X.sin() * 2)


def test_the_reason_is_told_of_what_the_winner_has_compiled(known: dict[str, str]) -> None:
    found = artifacts.dump(won_by("one", known, graph().forward))
    assert isinstance(found, NotStored)
    assert "'one' was chosen" in found.reason


def test_what_rests_on_constants_is_not_stored(known: dict[str, str]) -> None:
    found = artifacts.dump(won_by("one", known, graph().forward, outdated=True))
    assert isinstance(found, NotStored)
    assert "rests on constants" in found.reason


def test_another_choice_in_the_database_is_followed(known: dict[str, str]) -> None:
    artifact = artifacts.dump(won_by(EAGER, known))
    known["graph"] = "one"
    with pytest.raises(BadArtifact, match="does not say"):
        loaded(artifact)


def test_a_choice_without_a_database_is_not_stored(known: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    made = won_by(EAGER, known)
    monkeypatch.setattr(kind, "database", lambda: None)
    assert isinstance(artifacts.dump(made), NotStored)
    made.hash = None
    assert isinstance(artifacts.dump(made), NotStored)


def test_a_choice_is_written_once_it_is_made(known: dict[str, str]) -> None:
    made = undecided()
    found = artifacts.dump(made)
    assert isinstance(found, NotStored)
    assert found.later
    told: list[str] = []
    assert artifacts.when_ready(made, lambda: told.append("chosen"))
    known["graph"] = EAGER
    made.commit(EAGER)
    assert told == ["chosen"]
    assert not artifacts.when_ready(made, lambda: told.append("never"))
    assert isinstance(artifacts.dump(made), Artifact)
