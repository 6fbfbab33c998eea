"""Clearing a dict: what was in it is no reason to compile again where nobody asks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import torchdynamo
from tests.counting import Counting


def cleared(table: dict[Any, Any], x: Any) -> Any:
    table.clear()
    return (x + 1,)


def filled_again(table: dict[Any, Any], x: Any) -> Any:
    table.clear()
    table["seen"] = 1
    return x * table["seen"] + len(table), table


def looked_at_before(table: dict[Any, Any], x: Any) -> Any:
    number = table.get("a", 2)
    table.clear()
    return (x * number + table.get("a", 1),)


def asked_afterwards(table: dict[Any, Any], x: Any) -> Any:
    table.clear()
    return x + 1, "a" in table, list(table), table.pop("a", 5)


def in_a_loop(table: dict[Any, Any], x: Any) -> Any:
    try:
        for key in table:
            table.clear()
            x = x + len(str(key))
    except RuntimeError as error:
        return x, str(error)
    return (x,)


USES = [cleared, filled_again, looked_at_before, asked_afterwards, in_a_loop]


class Heard:
    died: list[str] = []

    def __del__(self) -> None:
        self.died.append("heard")


CONTENTS: list[dict[Any, Any]] = [{}, {"a": 1}, {"b": 2.0, 3: None}, {"a": 7}, {10: True, 20: False}, {"a": 1, "c": 2}]


@pytest.mark.parametrize("fn", USES, ids=lambda fn: fn.__name__)
def test_equals_eager(fn: Any) -> None:
    optimized = torchdynamo.optimize("eager")(fn)
    for contents in CONTENTS + [{"a": torch.ones(3)}, {"t": [1]}, {Heard: 1}]:
        x, tables = torch.randn(3), (dict(contents), dict(contents))
        (y, *found), (expected, *wanted) = optimized(tables[1], x), fn(tables[0], x)
        assert torch.equal(y, expected)
        assert found == wanted
        assert tables[0] == tables[1]


@pytest.mark.parametrize("fn", [cleared, filled_again, asked_afterwards], ids=lambda fn: fn.__name__)
def test_compiled_once(fn: Any) -> None:
    counting = Counting()
    optimized = torchdynamo.optimize(counting)(fn)
    for contents in CONTENTS:
        optimized(dict(contents), torch.randn(3))
    assert len(counting.graphs) == 1


def test_an_end_that_is_heard_comes_at_its_time() -> None:

    def fn(table: dict[Any, Any], x: Any) -> Any:
        table.clear()
        return x + 1, list(Heard.died)

    optimized = torchdynamo.optimize("eager")(fn)
    for contents in [*CONTENTS, {"a": Heard()}]:
        table = dict(contents)
        contents.clear()
        died = optimized(table, torch.randn(3))[1]
    assert died == ["heard"]
    Heard.died.clear()
