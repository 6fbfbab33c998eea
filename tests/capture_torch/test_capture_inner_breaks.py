"""Breaks in functions that are called: what was captured up to there is one graph, whoever's frame it was in."""

from __future__ import annotations

import time
import traceback
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from counting import Counting
from pictures import assert_alike

import torchdynamo
from torchdynamo.bytecode.versions import OUTLINES

X = torch.arange(1.0, 9.0).reshape(2, 4)
PROGRAMS: list[tuple[Callable[..., Any], int]] = []


def program(graphs: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """One that makes that many graphs."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS.append((fn, graphs))
        return fn

    return register


def inner(x, *rest, scale=2, **named):
    y = x * scale + 1
    for each in rest:
        y = y + each
    torchdynamo.graph_break()
    return y * 2 + len(named)


def middle(x):
    y = inner(x + 1, 3, 4, scale=5, other=1)
    return y - 1


@program(4)
def three_deep(x):
    return middle(x * 2) + 1


@program(3)
def with_unpacked_arguments(x):
    given, named = (x, 1), {"scale": 3, "more": 0}
    return inner(*given, **named) + x


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = torch.nn.Linear(4, 4)
        torch.nn.init.constant_(self.inside.weight, 0.5)
        torch.nn.init.zeros_(self.inside.bias)
        self.calls = 0

    def forward(self, x, seen):
        self.calls += 1
        y = self.inside(x)
        seen.append(y)
        torchdynamo.graph_break()
        return y * self.calls + len(seen)


@program(3)
def of_a_module(x):
    layer, seen = Layer(), []
    return layer(x * 2, seen) + 1, layer.calls, seen


LAYER = Layer()


@program(3)
def of_a_kept_module(x):
    LAYER.calls = 0
    seen = []
    return LAYER(x * 2, seen) + 1, LAYER.calls, seen


@program(3)
def of_a_closure(x):
    total = 0

    def adds(y):
        nonlocal total
        total += 1
        y = y * total
        torchdynamo.graph_break()
        total += 10
        return y + total

    return adds(x + 1) * 2, total


def makes(x):
    factor = x.dim()

    def scaled(y):
        nonlocal factor
        factor += 1
        return y * factor

    y = scaled(x)
    torchdynamo.graph_break()
    return scaled(y), scaled


@program(3)
def of_cells_of_the_callee(x):
    y, scaled = makes(x + 1)
    return scaled(y), scaled.__closure__[0].cell_contents


def fails(x, how):
    y = x + 1
    try:
        torchdynamo.graph_break()
        if how == "caught inside":
            raise ValueError("in")
    except ValueError:
        return y * 2
    if how == "caught outside":
        raise KeyError("out")
    if how == "by the call":
        int("no number")
    return y * 3


@program(5)
def with_handlers(x):
    found = []
    for_all = ("caught inside", "caught outside", "by the call")
    try:
        found.append(fails(x * 2, for_all[0]))
    finally:
        found.append("finally")
    try:
        found.append(fails(x * 3, for_all[1]))
    except KeyError as error:
        found.append((str(error), error.__context__ is None))
    try:
        found.append(fails(x * 4, for_all[2]))
    except ValueError as error:
        found.append(str(error))
    return found, x + 1


def raises_where_it_breaks(x):
    y = x + 1
    time.sleep("no number")
    return y


@program(2)
def with_a_handler_for_the_break(x):
    try:
        return raises_where_it_breaks(x * 2)
    except TypeError as error:
        return str(error), x + 1


def under_no_grad(x):
    with torch.no_grad():
        y = x * 2
        torchdynamo.graph_break()
        z = y + 1
    return z, torch.is_grad_enabled()


@program(3)
def with_a_context_in_the_callee(x):
    z, enabled = under_no_grad(x + 1)
    return z * 2, enabled, torch.is_grad_enabled()


@program(3)
def with_a_context_round_the_call(x):
    with torch.no_grad():
        y = inner(x + 1)
    return y * 2, torch.is_grad_enabled()


def loops(x):
    y = x + 1
    for each in range(3):
        y = y * 2
        if each == 1:
            torchdynamo.graph_break()
    return y + 1


@program(5 if OUTLINES else 3)
def with_a_loop_in_the_callee(x):
    return loops(x * 2) - 1


def one_each(x):
    for each in (1, 2):
        torchdynamo.graph_break()
        yield x * each


@program(6 if OUTLINES else 4)
def not_straight_away(x):
    return sorted([2, 1], key=lambda n: (torchdynamo.graph_break(), n)[1]), [*one_each(x + 1)], inner(x + 1) + 1


class Base:
    def method(self, x):
        return inner(x + 1) * 2


class Derived(Base):
    def method(self, x):
        return super().method(x * 3) + 1

    def __call__(self, x):
        return self.method(x) + 1


@program(6)
def of_methods(x):
    return Derived()(x + 1) - 1


def calls_itself(x, depth):
    y = x + depth
    if depth == 0:
        torchdynamo.graph_break()
        return y * 2
    return calls_itself(y * 2, depth - 1) + depth


@program(4)
def recursive(x):
    return calls_itself(x, 2)


OTHER = types.ModuleType("other")
exec("scale = 7\ndef elsewhere(x, stop):\n    y = x * scale\n    stop()\n    return y * scale\n", OTHER.__dict__)


@program(3)
def in_another_module(x):
    return OTHER.elsewhere(x + 1, torchdynamo.graph_break) - 1


def looks_at_itself(x):
    y = x * 2
    torchdynamo.graph_break()
    return y + len(locals())


@program(2)
def of_one_that_sees_its_frame(x):
    return looks_at_itself(x + 1) * 2


def shares_without_a_circle(x, box):
    mine = [box, x + 1]
    torchdynamo.graph_break()
    mine[0].append(len(mine))
    return mine


@program(1)
def the_same_object_in_both_frames(x):
    box = [1]
    found = shares_without_a_circle(x * 2, box)
    return found, box, found[0] is box


@pytest.mark.parametrize("grad", [False, True], ids=["no_grad", "grad"])
@pytest.mark.parametrize(("fn", "graphs"), PROGRAMS, ids=lambda each: getattr(each, "__name__", ""))
def test_agrees_with_eager(fn: Callable[..., Any], graphs: int, grad: bool) -> None:
    backend = Counting()
    compiled = torchdynamo.compile(fn, backend=backend)
    for _ in range(3):
        mine, theirs = (X.clone().requires_grad_(grad) for _ in range(2))
        wanted = fn(theirs)
        got = compiled(mine)
        assert_alike((wanted, theirs), (got, mine))
        assert len(backend.graphs) == graphs


def raises(x):
    y = middle_of_raises(x + 1)
    return y + 1


def middle_of_raises(x):
    return raises_where_it_breaks(x * 2) + 1


def test_a_traceback_names_all_frames() -> None:
    compiled = torchdynamo.compile(raises, backend="eager")
    for _ in range(2):
        found = []
        for fn in (raises, compiled):
            with pytest.raises(TypeError) as caught:
                fn(X)
            frames = traceback.extract_tb(caught.value.__traceback__)
            found.append([(frame.name, frame.lineno) for frame in frames if frame.filename == __file__][1:])
        assert found[0] == found[1]


class Big:
    """Something that is to be gone at a certain time."""


def lets_go(x, watch):
    big = Big()
    watch.append(weakref.ref(big))
    y = x + 1
    torchdynamo.graph_break()
    del big
    torchdynamo.graph_break()
    return y, watch[0]() is None


def test_what_the_callee_deletes_is_gone() -> None:
    compiled = torchdynamo.compile(lambda x: lets_go(x * 2, []), backend="eager")
    for _ in range(2):
        assert compiled(X)[1]
