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
def compete(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make these the only members."""

    def only(*members: Member) -> None:
        for name in list(MEMBERS):
            monkeypatch.delitem(MEMBERS, name)
        for member in members:
            monkeypatch.setitem(MEMBERS, member.name, member)

    return only
