"""Each test of the ensemble sees its own choices only, and may bring its own members."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest

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
