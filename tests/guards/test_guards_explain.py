"""Messages: which part of which object was how, and is how, and which line needs it."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
import torch
from guarding import Guarded, X, roots_of

import torchdynamo
from torchdynamo.core.source import Guard, Pinned, Position, Source, free, global_, instance_attr, local
from torchdynamo.core.value import ABSENT
from torchdynamo.eval_frame import cache_entries
from torchdynamo.guards.explain import first_failure
from torchdynamo.report.explain import collecting

LINE = Position("model.py", 7, function="forward")
LIMIT = 3


class Model(torch.nn.Module):
    flag = True

    def __init__(self, width: int = 2) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(width, width)])


def method(self: Any, x: Any) -> None:
    """Whose frame is guarded."""


def layer(index: int) -> Source:
    layers = Source("key", instance_attr(local("self"), "_modules"), "layers")
    return Source("key", instance_attr(layers, "_modules"), str(index))


def weight_of(index: int) -> Source:
    return Source("key", instance_attr(layer(index), "_parameters"), "weight")


def text(guards: list[Guard], function: Any, before: dict[str, Any], after: dict[str, Any]) -> str:
    asked = Guarded(guards, function, **before)
    assert first_failure(asked.guards, asked.roots) is None
    return str(first_failure(asked.guards, roots_of(function, **after)))


def test_a_parameter() -> None:
    guard = Guard(weight_of(0), "TENSOR_MATCH", None, LINE)
    half, wide, frozen = Model().half(), Model(3), Model().requires_grad_(False)
    said = [text([guard], method, {"self": Model()}, {"self": model}) for model in (half, wide, frozen)]
    assert said == [
        "self.layers[0].weight.dtype: torch.float32 -> torch.float16 (TENSOR_MATCH, needed by model.py:7)",
        "self.layers[0].weight.size(): (2, 2) -> (3, 3) (TENSOR_MATCH, needed by model.py:7)",
        "self.layers[0].weight.requires_grad: True -> False (TENSOR_MATCH, needed by model.py:7)",
    ]


def old_function() -> None:
    pass


def new_function() -> None:
    pass


A, B = Source("key", X, "a"), local("y")


@pytest.mark.parametrize(
    ("guard", "before", "after", "said"),
    [
        (Guard(X, "TYPE_MATCH", int), 1, "a", "x: a int -> a str"),
        (Guard(X, "EQUALS_MATCH", 1), 1, 1.0, "x: 1 -> 1.0"),
        (Guard(A, "EQUALS_MATCH", 1), {"a": 1}, {"a": 2}, "x['a']: 1 -> 2"),
        (Guard(A, "EQUALS_MATCH", 1), {"a": 1}, {}, "x['a']: there -> not there"),
        (Guard(X, "LENGTH", 1), [1], [1, 2], "x length: 1 -> 2"),
        (Guard(X, "DICT_KEYS", ("a",)), {"a": 1}, {"b": 1}, "x keys: ['a'] -> ['b']"),
        (Guard(X, "HAS_KEY", "a"), {"a": 1}, {}, "x['a']: there -> not there"),
        (Guard(X, "NO_KEY", "a"), {}, {"a": 1}, "x['a']: not there -> there"),
        (Guard(X, "SET_CONTENTS", (1,)), {1}, {2}, "x items: {1} -> {2}"),
        (Guard(X, "FUNCTION_MATCH", len), len, print, "x: len -> print"),
        (
            Guard(X, "FUNCTION_MATCH", old_function),
            old_function,
            new_function,
            "x: old_function of .* -> new_function of",
        ),
        (Guard(X, "ID_MATCH", torch.nn), torch.nn, torch.fx, "x: <module 'torch.nn' .* -> <module 'torch.fx' .*"),
        (Guard(X, "TENSOR_MATCH"), torch.ones(1), 1, "x: a Tensor -> a int"),
        (Guard(X, "TENSOR_MATCH"), torch.ones(1), torch.ones(1, device="meta"), "x.device: cpu -> meta"),
        (Guard(X, "TENSOR_MATCH"), torch.ones(2, 2), torch.ones(2, 2).t(), r"x.stride\(\): \(2, 1\) -> \(1, 2\)"),
        (Guard(X, "NO_OVERLAP", ((X,), (B,))), torch.ones(1), torch.ones(1), "x: .*"),
    ],
)
def test_each_kind(guard: Guard, before: Any, after: Any, said: str) -> None:
    y = after if guard.kind == "NO_OVERLAP" else None

    def function(x: Any, y: Any) -> None:
        """Whose frame is guarded."""

    found = text([guard], function, {"x": before, "y": torch.ones(1)}, {"x": after, "y": y})
    plain = re.escape(said) if ".*" not in said and "\\" not in said else said
    assert re.match(plain, found), found


def test_the_same_and_different_objects() -> None:
    def function(x: Any, y: Any) -> None:
        """Whose frame is guarded."""

    a, b = object(), object()
    same = [Guard(X, "SAME_OBJECT", B, LINE)]
    different = [Guard(X, "DISTINCT", (X, B), LINE)]
    assert text(same, function, {"x": a, "y": a}, {"x": a, "y": b}) == (
        "x: the same object as y -> another object (SAME_OBJECT, needed by model.py:7)"
    )
    assert text(different, function, {"x": a, "y": b}, {"x": a, "y": a}) == (
        "x: different objects -> x is y (DISTINCT, needed by model.py:7)"
    )


def test_names_of_the_program() -> None:
    def function() -> int:
        return count

    count = 3
    asked = Guarded([Guard(free("count"), "EQUALS_MATCH", 3), Guard(global_("LIMIT"), "EQUALS_MATCH", 3)], function)
    assert first_failure(asked.guards, asked.roots) is None
    count = 4
    assert str(first_failure(asked.guards, asked.roots)) == "count: 3 -> 4 (EQUALS_MATCH)"
    count = 3
    roots = asked.roots.__class__({}, {}, {}, asked.roots.closure)
    assert str(first_failure(asked.guards, roots)) == "LIMIT: there -> not there (EQUALS_MATCH)"


def test_an_attribute_of_a_class() -> None:
    cls = type("Fresh", (), {"flag": 1})
    asked = Guarded([Guard(Source("pinned", None, Pinned(cls)), "CLASS_ATTR", ("flag", 1), LINE)])
    cls.flag = 2  # type: ignore[attr-defined]
    assert str(first_failure(asked.guards, asked.roots)) == "Fresh.flag: 1 -> 2 (CLASS_ATTR, needed by model.py:7)"
    del cls.flag  # type: ignore[attr-defined]
    assert "1 -> no such attribute" in str(first_failure(asked.guards, asked.roots))
    absent = Guarded([Guard(Source("pinned", None, Pinned(cls)), "CLASS_ATTR", ("flag", ABSENT))])
    assert first_failure(absent.guards, absent.roots) is None


def test_the_state_of_torch() -> None:
    asked = Guarded([Guard(Source("globals"), "GLOBAL_STATE")])
    with torch.no_grad():
        said = str(first_failure(asked.guards, asked.roots))
    assert said == "torch's state: grad_enabled=True -> grad_enabled=False (GLOBAL_STATE)"


def test_guards_of_an_entry_print_with_what_each_costs() -> None:
    module = torch.nn.Linear(2, 2)

    def priced(x: torch.Tensor) -> torch.Tensor:
        return module(x) * 2

    compiled = torchdynamo.compile(priced, backend="eager")
    for _ in range(3):
        compiled(torch.ones(2))
    lines = str(cache_entries(priced)[0].guards).splitlines()
    assert any(line.startswith("x TENSOR_MATCH torch.float32 cpu [2]  [each call]") for line in lines)
    assert any(line.startswith("module.weight TENSOR_MATCH torch.float32 cpu [2, 2]  [metadata]") for line in lines)
    assert any(
        line.startswith("Linear CLASS_ATTR .forward: function Linear.forward  [with its owner]") for line in lines
    )
    assert any("[1 word]" in line and "test_guards_explain.py" in line for line in lines)
    assert any("[with its owner]" in line for line in lines)


class Stack(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def test_a_function_that_is_compiled_again_says_why(caplog: pytest.LogCaptureFixture) -> None:
    """The path, the old value and the new, and the line, in the log and to whoever collects."""
    model = Stack()
    compiled = torchdynamo.compile(model, backend="eager")
    x = torch.ones(2)
    with caplog.at_level(logging.INFO, "torchdynamo.recompiles"), collecting() as events:
        compiled(x)
        assert not caplog.records
        model.layers[3].weight.requires_grad_(False)
        compiled(x)
        compiled(x)
    (record,) = caplog.records
    said = "self.layers[3].weight.requires_grad: True -> False (TENSOR_MATCH, needed by "
    assert said in record.getMessage()
    assert re.search(r"forward \(.*test_guards_explain.py:\d+\) is compiled again", record.getMessage())
    assert re.search(r"needed by .*linear\.py:\d+\)", record.getMessage())
    assert [said in event.again for event in events] == [False, True]
