"""Classes that are made in functions live as long as the program wants them, whatever was compiled for them."""

from __future__ import annotations

import abc
import dataclasses
import enum
import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torchdynamo
from torchdynamo.eval_frame import cache_entries

Made = tuple[type, Callable[..., Any], tuple[Any, ...]]
MADE: list[Callable[[], Made]] = []


def made(row: Callable[[], Made]) -> Callable[[], Made]:
    MADE.append(row)
    return row


def ask(x: torch.Tensor, box: Any) -> Any:
    return box.get(x)


def ask_class(x: torch.Tensor, kind: Any) -> Any:
    return x * kind.k


@made
def module() -> Made:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(2, 2), nn.ReLU()])

        def forward(self, x: torch.Tensor) -> Any:
            for layer in self.layers:
                x = layer(x)
            return x

    return Net, Net(), ()


@made
def given() -> Made:
    class Box:
        k = 3

        def get(self, x: torch.Tensor) -> Any:
            return x * self.k

    return Box, ask, (Box(),)


def ask_by_class(x: torch.Tensor, table: dict[type, Any], kind: type) -> Any:
    return [x + n for n in table.values()], x * table[kind], kind in table, len(table)


@made
def key() -> Made:
    class Box:
        k = 3

    return Box, ask_by_class, ({Box: 1, int: 2}, Box)


def miss_by_class(x: torch.Tensor, table: dict[type, Any], kind: type) -> Any:
    if kind not in table:
        table[kind] = 2
    return x * table[kind]


@made
def new_key() -> Made:
    class Box:
        k = 3

    return Box, miss_by_class, ({int: 2}, Box)


@made
def class_itself() -> Made:
    class Box:
        k = 3

    return Box, ask_class, (Box,)


@made
def inherits() -> Made:
    class Below(abc.ABC):
        @abc.abstractmethod
        def get(self, x: torch.Tensor) -> Any: ...

    class Box(Below):
        def get(self, x: torch.Tensor) -> Any:
            super().get(x)
            return x * 2

    return Box, ask, (Box(),)


@made
def descriptors() -> Made:
    class Box:
        __slots__ = ("__weakref__", "v")

        def __init__(self) -> None:
            self.v = 3

        @property
        def twice(self) -> int:
            return 2 * self.v if type(self) is __class__ else 0  # type: ignore[name-defined]

        @classmethod
        def three(cls) -> int:
            return 3 if cls is __class__ else 4  # type: ignore[name-defined]

        @staticmethod
        def four() -> int:
            return 4

        def get(self, x: torch.Tensor) -> Any:
            return x * self.v + self.twice * self.three() + self.four()

    return Box, ask, (Box(),)


@made
def of_a_metaclass() -> Made:
    class Meta(type):
        def __getattr__(cls, name: str) -> int:
            return 5

    class Box(metaclass=Meta):
        pass

    return Meta, ask_class, (Box,)


@made
def member() -> Made:
    class Choice(enum.Enum):
        ONE = 1
        TWO = 2

        def get(self, x: torch.Tensor) -> Any:
            return x * (2 if self is type(self).ONE else 3) + self.value

    return Choice, ask, (Choice.ONE,)


@made
def dataclass() -> Made:
    @dataclasses.dataclass
    class Box:
        v: float = 2.0

        def get(self, x: torch.Tensor) -> Any:
            return x * self.v

    return Box, ask, (Box(),)


@made
def instance_made() -> Made:
    class Box:
        def __init__(self) -> None:
            self.w = 1

    def make(x: torch.Tensor, kind: type) -> Any:
        made: Any = kind()
        made.v = x * 2
        return made

    return Box, make, (Box,)


@made
def written() -> Made:
    class Box:
        k = 3

    def write(x: torch.Tensor, kind: Any) -> Any:
        kind.k = 4
        return x * kind.k

    return Box, write, (Box,)


@made
def error() -> Made:
    class Wrong(Exception):
        pass

    def fail(x: torch.Tensor, kind: type[Exception]) -> Any:
        try:
            raise kind("no")
        except kind:
            return x * 2

    return Wrong, fail, (Wrong,)


@made
def with_a_break() -> Made:
    class Box:
        def get(self, x: torch.Tensor) -> Any:
            x = x + 1
            print(end="")
            return x * 2

    return Box, ask, (Box(),)


@made
def function_of_autograd() -> Made:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return grad * 2

    return Double, lambda x, kind: kind.apply(x), (Double,)


@pytest.mark.parametrize("calls", [1, 4])
@pytest.mark.parametrize("row", MADE, ids=lambda row: row.__name__)
def test_it_goes(row: Callable[[], Made], calls: int) -> None:
    kind, fn, args = row()
    x = torch.ones(2, 2)
    compiled = torchdynamo.compile(fn, backend="eager")
    for _ in range(calls):
        assert str(compiled(x, *args).__class__) == str(fn(x, *args).__class__)
    assert cache_entries(getattr(fn, "forward", fn))
    gone = weakref.ref(kind)
    del kind, fn, args, compiled
    gc.collect()
    assert gone() is None
    assert not cache_entries(ask)


@pytest.mark.long
def test_another_takes_its_place() -> None:
    """Classes that come and go, one perhaps where another was, each with what it says itself."""

    def make(k: int) -> Any:
        if k % 3:
            return type("Box", (), {"k": k, "get": lambda self, x: x * self.k})()
        return type("Box", (), {"k": property(lambda self: k), "get": lambda self, x: x + self.k})()

    torchdynamo.reset()
    compiled = torchdynamo.compile(ask, backend="eager")
    x = torch.ones(2)
    for k in range(60):
        box = make(k)
        for _ in range(1 + k % 4):
            assert compiled(x, box).tolist() == ask(x, box).tolist()
        if k % 5 == 0:
            gc.collect()
    del box
    gc.collect()
    assert not cache_entries(ask)


def test_a_wrapper_of_what_is_gone_says_so() -> None:
    """Guards that outlive a class do not hold, and can be read."""
    kind, fn, args = given()
    torchdynamo.compile(fn, backend="eager")(torch.ones(2), *args)
    [entry] = cache_entries(fn)
    guards, name = entry.info.guards, kind.__qualname__
    call = functools.partial(guards.program.check, {"x": torch.ones(2), "box": args[0]}, fn.__globals__, {})
    assert call()
    del kind, args, call
    gc.collect()
    assert not cache_entries(fn)
    assert name in str([str(guard) for guard in guards])
