"""Each test of the ensemble sees its own choices only, and may bring its own members."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest
from backends.ensemble.competing import FREEZING

from torchdynamo.backends.ensemble import choice
from torchdynamo.backends.ensemble.choice import choices
from torchdynamo.backends.ensemble.member import MEMBERS, Member


@pytest.fixture(autouse=True)
def only_own_choices() -> Iterator[None]:
    gc.collect()
    choices.clear()
    yield
    choices.clear()


@pytest.fixture
def compete() -> Iterator[Callable[..., None]]:
    """Make these the only members."""
    before = dict(MEMBERS)

    def only(*members: Member) -> None:
        MEMBERS.clear()
        MEMBERS.update((member.name, member) for member in members)

    yield only
    MEMBERS.clear()
    MEMBERS.update(before)


@pytest.fixture
def always_freezing(compete: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the member with constants win, however fast it is."""
    compete(FREEZING)
    monkeypatch.setattr(
        choice.Choice, "best", lambda self: "freezing" if self.candidates["freezing"].run is not None else "eager"
    )
