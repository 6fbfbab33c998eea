"""A member that crashes or hangs does so in another process, and the program goes on."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch
from backends.ensemble.competing import compiled, reasons, states, the_choice, work

import torchdynamo
from torchdynamo.backends.ensemble import isolation
from torchdynamo.backends.ensemble.member import MEMBERS, Member


@pytest.fixture
def isolated(compete: Callable[..., None]) -> dict[str, Member]:
    known = dict(MEMBERS)
    from backends.ensemble.isolated_members import ISOLATED

    MEMBERS.clear()
    MEMBERS.update(known)
    return ISOLATED


X = torch.full((8, 8), 0.1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "state", "reason"),
    [
        ("crash", "crashed", "SIGABRT"),
        ("crash_when_run", "crashed", "SIGABRT"),
        ("lie", "rejected", "float64"),
    ],
)
@torch.no_grad()
def test_bad_member_is_out_before_it_is_built_here(
    name: str, state: str, reason: str, isolated: dict[str, Member], compete: Callable[..., None]
) -> None:
    compete(isolated[name], isolated["work"])
    fast = compiled(work, tune="now")
    torch.testing.assert_close(fast(X), work(X))
    assert states()[name] == state and reason in reasons()[name]
    assert states()["work"] == "built"


@torch.no_grad()
def test_trial_that_hangs_is_ended(
    isolated: dict[str, Member], compete: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "SECONDS", 4.0)
    compete(isolated["hang"])
    torch.testing.assert_close(compiled(work, tune="now")(X), work(X))
    assert states()["hang"] == "timeout" and "stopped after 4 s" in reasons()["hang"]


@torch.no_grad()
def test_program_goes_on_during_a_trial(isolated: dict[str, Member], compete: Callable[..., None]) -> None:
    compete(isolated["work"])
    fast = compiled(work)
    started = time.monotonic()
    torch.testing.assert_close(fast(X), work(X))
    fast(X)
    assert time.monotonic() - started < 2.0, "the call waited for the other process"
    trial = the_choice().candidates["work"].trial
    assert trial is not None and not trial.is_over
    assert states()["work"] == "waiting"
    trial.wait(60.0)
    while the_choice().winner is None:
        torch.testing.assert_close(fast(X), work(X))
    assert states()["work"] == "built"


@torch.no_grad()
def test_graph_that_cannot_travel_has_no_such_member(isolated: dict[str, Member], compete: Callable[..., None]) -> None:
    def opaque(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    torchdynamo.allow_in_graph(opaque)
    compete(isolated["crash"])
    fast = compiled(lambda x: opaque(x) + 1, tune="now")
    torch.testing.assert_close(fast(X), opaque(X) + 1)
    assert states()["crash"] == "declined" and "cannot be given the graph" in reasons()["crash"]
