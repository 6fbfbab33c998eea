"""Dicts whose keys are tensors, as the state of an optimizer is: what a frame puts in beside others that were there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import torchdynamo
from torchdynamo.report.explain import collecting

Kept = dict[Any, Any]
PROGRAMS: dict[str, Callable[[Kept, torch.Tensor, torch.Tensor], Any]] = {}
BREAKS = {"written_over", "taken", "walked", "set_or_found", "copied"}


def program(fn: Callable[[Kept, torch.Tensor, torch.Tensor], Any]) -> Callable[..., Any]:
    PROGRAMS[fn.__name__] = fn
    return fn


@program
def put(kept: Kept, old: torch.Tensor, new: torch.Tensor) -> Any:
    kept[new] = {"sum": new + 1}
    return kept[old]["sum"] + kept[new]["sum"]


@program
def asked(kept: Kept, old: torch.Tensor, new: torch.Tensor) -> Any:
    before = new in kept, len(kept), bool(kept)
    kept[new] = {"sum": new}
    kept[new]["sum"] = new * 2
    return before, new in kept, old in kept, len(kept), "name" in kept, kept.get("name", 3)


@program
def of_two_kinds(kept: Kept, old: torch.Tensor, new: torch.Tensor) -> Any:
    kept["name"] = new + 1
    kept.setdefault(new, {"sum": new})
    kept.setdefault(new, {"sum": old})["more"] = 1
    return kept["name"] + kept[new]["sum"]


@program
def made_where_missing(kept: Kept, old: torch.Tensor, new: torch.Tensor) -> Any:
    states = defaultdict(dict, {old: {"step": 0}, "at": {"step": 1}})
    torchdynamo.graph_break()
    for p in (old, new):
        if not states[p]:
            states[p]["step"] = p * 0
        states[p]["step"] = states[p]["step"] + 1
    return [states[p]["step"] for p in (old, new)]


@program
def written_over(kept: Kept, old: torch.Tensor, new: torch.Tensor) -> Any:
    kept[new] = {"sum": new}
    kept[old] = {"sum": new + 1}
    return kept[old]["sum"]


@program
def set_or_found(kept: Kept, old: torch.Tensor, new: torch.Tensor) -> Any:
    kept[new] = {"sum": new}
    return kept.setdefault(old, {"sum": new})["sum"] + 1


@program
def taken(kept: Kept, old: torch.Tensor, new: torch.Tensor) -> Any:
    kept[new] = {"sum": new + 1}
    kept.pop(old, None)
    return kept.pop(new)["sum"] + 1, len(kept)


@program
def walked(kept: Kept, old: torch.Tensor, new: torch.Tensor) -> Any:
    kept[new] = {"sum": new + 1}
    return [each["sum"] + 1 for each in kept.values()]


@program
def copied(kept: Kept, old: torch.Tensor, new: torch.Tensor) -> Any:
    kept[new] = {"sum": new + 1}
    return [each["sum"] * 2 for each in dict(kept).values()]


def outcome(fn: Callable[..., Any], name: str) -> Any:
    found = []
    for size in (2, 2, 3):
        old, new = torch.arange(size), torch.ones(size)
        kept: Kept = {old: {"sum": old + 5}}
        results = [fn(kept, old, new), fn(kept, old, new)]  # the second finds it there
        found += [results, [1 if each is new else 0 if each is old else each for each in kept], [*kept.values()]]
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_as_python(name: str) -> None:
    expected = outcome(PROGRAMS[name], name)
    actual = outcome(torchdynamo.optimize("eager")(PROGRAMS[name]), name)
    ours, theirs = pytree.tree_flatten(actual), pytree.tree_flatten(expected)
    assert ours[1] == theirs[1]
    for a, b in zip(ours[0], theirs[0], strict=True):
        assert type(a) is type(b) and (torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b)


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - BREAKS - {"made_where_missing"}))
def test_ends_no_graph(name: str) -> None:
    old, new = torch.arange(2), torch.ones(2)
    with collecting() as events:
        torchdynamo.optimize("eager")(PROGRAMS[name])({old: {"sum": old}}, old, new)
    assert not [event.reason for event in events if event.reason]


def test_a_key_that_was_there_next_time() -> None:
    """That it is new is looked at in each call."""
    fn = torchdynamo.optimize("eager")(PROGRAMS["asked"])
    old, new = torch.arange(2), torch.ones(2)
    assert fn({old: {}}, old, new)[0] == (False, 1, True)
    assert fn({old: {}, new: {}}, old, new)[0] == (True, 2, True)
    assert fn({old: {}, 1: {}}, old, new)[0] == (False, 2, True)
