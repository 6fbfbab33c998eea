"""Searching Inductor's options: what is chosen is confirmed, stored, and used by programs that ask for it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo.backends import option_sets
from torchdynamo.backends.builtin import inductor as backend
from torchdynamo.backends.ensemble import database, measure
from torchdynamo.backends.ensemble.measure import Timing
from torchdynamo.tuning import search


@pytest.fixture(autouse=True)
def few_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(database.VARIABLE, str(tmp_path / "tuned.sqlite3"))
    kept = (option_sets.DEFAULT, "small fusions", "no split reductions")
    monkeypatch.setattr(option_sets, "SETS", {name: option_sets.SETS[name] for name in kept})


def fn(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * 2 + x.cos()).sum(-1)


def times(monkeypatch: pytest.MonkeyPatch, seconds: Callable[[str, int], float]) -> None:
    """Let runs take the time that a function of name and round says."""
    rounds = itertools.count()

    def in_turn(runs: Any, limit: float, cuda: bool = False) -> dict[str, Timing]:
        at = next(rounds)
        return {name: Timing(seconds(name, at), seconds(name, at), seconds(name, at), 9) for name in runs}

    monkeypatch.setattr(measure, "in_turn", in_turn)


def test_the_faster_is_chosen_stored_and_used(monkeypatch: pytest.MonkeyPatch) -> None:
    times(monkeypatch, lambda name, at: 1.0 if name == "small fusions" else 1.1)
    (found,) = torchdynamo.tune(fn, [torch.randn(4, 8)], seconds=600).graphs
    assert (found.choice, found.stored) == ("small fusions", True)
    assert found.gain == pytest.approx(1.1)
    seen: list[Any] = []
    settings = backend.settings

    def noted(mode: str | None, options: Any) -> Any:
        seen.append((mode, options))
        return settings(mode, options)

    monkeypatch.setattr(backend, "settings", noted)
    ways: list[dict[str, Any]] = [{"options": {"tuned": True}}, {"mode": "max-autotune"}]
    for kwargs in (*ways, {"options": {"tuned": True, "max_fusion_size": 4}}):
        torchdynamo.reset()
        x = torch.randn(4, 8)
        torch.testing.assert_close(torchdynamo.compile(fn, **kwargs)(x), fn(x))  # type: ignore[call-overload]
    assert [each for each in seen if each[1] and each[0] is None][-1] == (None, {"max_fusion_size": 4})
    assert (None, {"max_fusion_size": 8}) in seen
    torchdynamo.reset()


def test_what_wins_two_rounds_of_three_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    times(monkeypatch, lambda name, at: 1.0 if name == "small fusions" and at != 3 else 1.1)
    (found,) = torchdynamo.tune(fn, [torch.randn(4, 8)], seconds=600).graphs
    assert (found.choice, found.gain) == (option_sets.DEFAULT, 1.0)
    assert {row.member: row.state for row in found.rows}[option_sets.DEFAULT] == option_sets.CHOSEN


def test_training_is_measured_with_its_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Linear(8, 8)
    (found,) = torchdynamo.tune(model, [torch.randn(4, 8)], seconds=600).graphs
    assert all(row.state in ("built", option_sets.CHOSEN) and row.timing is not None for row in found.rows), found


def test_random_numbers_keep_the_default() -> None:
    (found,) = torchdynamo.tune(lambda x: torch.nn.functional.dropout(x) + 1, [torch.randn(4, 8)], seconds=600).graphs
    assert found.choice == option_sets.DEFAULT


def test_what_differs_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    real = search.inductor

    def wrong(gm: Any, inputs: Any, options: Any = None) -> Any:
        made: Any = real(gm, inputs, options=options)
        return made if options is None else lambda *args: tuple(each + 1 for each in made(*args))

    monkeypatch.setattr(search, "inductor", wrong)
    (found,) = torchdynamo.tune(fn, [torch.randn(4, 8)], seconds=600).graphs
    assert found.choice == option_sets.DEFAULT
    assert "rejected" in {row.state for row in found.rows}


@pytest.mark.parametrize("off", [0.0, 1.0])
def test_what_is_written_to_inputs_is_compared(monkeypatch: pytest.MonkeyPatch, off: float) -> None:
    real = search.inductor

    def leaves_other_contents(gm: Any, inputs: Any, options: Any = None) -> Any:
        made: Any = real(gm, inputs, options=options)

        def run(*args: Any) -> Any:
            found = made(*args)
            for each in args if options is not None else ():
                each.add_(off)
            return found

        return run

    def counted(total: torch.Tensor) -> torch.Tensor:
        total.add_(1)
        return total * 2

    monkeypatch.setattr(search, "inductor", leaves_other_contents)
    total = torch.zeros(4)
    (found,) = torchdynamo.tune(counted, [total], seconds=600).graphs
    states = {row.member: row.state for row in found.rows if row.member != option_sets.DEFAULT}
    assert set(states.values()) <= ({"rejected"} if off else {"built", option_sets.CHOSEN}), found
    assert torch.equal(total, torch.ones(4))


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="seconds is a positive number"):
        torchdynamo.tune(fn, [torch.randn(2)], seconds=0)
    with pytest.raises(torchdynamo.exc.UnknownSetting, match="'tuned' is True or False"):
        torchdynamo.compile(fn, options={"tuned": 1.5})


def test_others_are_tried_on_the_fastest_base(monkeypatch: pytest.MonkeyPatch) -> None:
    constants = option_sets.OptionSet({"freezing": True}, base=True)
    monkeypatch.setattr(option_sets, "SETS", {**option_sets.SETS, "constants": constants})
    speeds = {"default": 1.3, "constants": 1.1, "constants + small fusions": 1.0}
    times(monkeypatch, lambda name, at: speeds.get(name, 1.2))
    model, x = torch.nn.Linear(8, 8), torch.randn(4, 8)
    with torch.no_grad():
        (plain,) = torchdynamo.tune(model, [x], seconds=600).graphs
        (found,) = torchdynamo.tune(model, [x], seconds=600, constants=True).graphs
        assert plain.choice in ("small fusions", "no split reductions")  # constants were not allowed
        assert (found.choice, found.gain) == ("constants + small fusions", pytest.approx(1.3))
        seen: list[Any] = []
        settings = backend.settings
        monkeypatch.setattr(backend, "settings", lambda mode, options: seen.append(options) or settings(mode, options))
        for options in ({"tuned": True, "freezing": True}, {"tuned": True}):
            torchdynamo.reset()
            torch.testing.assert_close(torchdynamo.compile(model, options=options)(x), model(x))
    assert {"freezing": True, "max_fusion_size": 8} in seen
    assert option_sets.options_of(plain.choice) in seen
    torchdynamo.reset()


def test_a_choice_is_replaced_and_read_again() -> None:
    key = "inductor of a graph"
    option_sets.keep_choice(key, [database.Row("small fusions", option_sets.CHOSEN)])
    assert option_sets._chosen.read()[key] == "small fusions"
    option_sets.keep_choice(key, [database.Row("default", option_sets.CHOSEN)])
    assert option_sets._chosen.read()[key] == "default"
