"""Keys of an instance's `__dict__` that are no names, or equal one: there or not, and come and gone between calls."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchdynamo


class Member(str, enum.Enum):
    HELD = "a"
    MADE = "z"
    OTHER = "other"


class Text(str):
    pass


class SaysItself:
    """Equals a name."""

    def __eq__(self, other: object) -> bool:
        return other == "a" or other is self

    def __hash__(self) -> int:
        return hash("a")


class Slots:
    __slots__ = ("__dict__", "slot")

    def __init__(self) -> None:
        self.a = 1.0


class Plain:
    def __init__(self) -> None:
        self.a, self.b = 1.0, 2.0


CLASSES = [Plain, Slots, torch.nn.Identity]
KEYS = [
    *((1, 2), 3, 2.5, None, True, b"a", frozenset([1]), torch.float32, int),
    *("slot", Text("a"), Text("z"), Member.HELD, Member.MADE, Member.OTHER, SaysItself()),
]
PROGRAMS: list[Callable[[Any, Any, Any], Any]] = []
program = PROGRAMS.append


@program
def gets(x: Any, held: Any, key: Any) -> Any:
    return x * held.__dict__.get(key, 7.0)


@program
def asks(x: Any, held: Any, key: Any) -> Any:
    return x * (key in vars(held))


@program
def gets_from_a_new_one(x: Any, held: Any, key: Any) -> Any:
    held = Plain()
    held.z = 4.0
    return x * held.__dict__.get(key, 7.0)


@program
def gets_after_a_write(x: Any, held: Any, key: Any) -> Any:
    held.z = 4.0
    found = held.__dict__.get(key, 7.0)
    del held.z
    return x * found


@program
def adds_up(x: Any, held: Any, key: Any) -> Any:
    return x * sum(each for each in held.__dict__.values() if type(each) is float)


@program
def pops(x: Any, held: Any, key: Any) -> Any:
    return x * held.__dict__.pop(key, 7.0)


@program
def sets_a_default(x: Any, held: Any, key: Any) -> Any:
    return x * held.__dict__.setdefault(key, 7.0)


@program
def stores(x: Any, held: Any, key: Any) -> Any:
    held.__dict__[key] = 8.0
    return x * held.__dict__[key]


def run(fn: Any, cls: type, key: Any, there: bool) -> Any:
    """Return what the function gives for an instance that has the key or not, and what the instance holds then."""
    held = cls()
    if there:
        held.__dict__[key] = 5.0
    try:
        result: Any = fn(torch.ones(2), held, key)[0].item()
    except Exception as error:
        result = repr(error)
    return result, list(held.__dict__.items())[-3:]


@pytest.mark.parametrize("fn", PROGRAMS)
@pytest.mark.parametrize("cls", CLASSES)
def test_as_python(cls: type, fn: Any) -> None:
    for key in KEYS:
        for order in ((False, True, False), (True, False, True)):
            torchdynamo.reset()
            compiled = torchdynamo.compile(fn, backend="eager")
            for there in order:
                assert run(compiled, cls, key, there) == run(fn, cls, key, there), (key, order, there)
