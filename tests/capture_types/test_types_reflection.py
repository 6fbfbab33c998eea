"""What libraries ask objects about themselves: dir, inspect.getattr_static, typing.get_type_hints."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import typing
from typing import Any, Optional

import pytest
import torch
from following import check

import torchdynamo
from torchdynamo import _native

X = torch.arange(4.0)


class Base:
    shared: int = 1

    def __init__(self):
        self.own = 2

    @property
    def asked(self):
        raise RuntimeError("asked")

    def method(self):
        return 1


class Slotted:
    __slots__ = ("a", "b")


class Sly(Base):
    def __getattr__(self, name):
        return name

    def __dir__(self):
        return ["z", "a"]


class Holder(typing.NamedTuple):
    tensor: torch.Tensor
    size: "Optional[int]" = None  # noqa: UP037, UP045


@dataclasses.dataclass
class Config(Base):
    width: int
    names: list[str] = dataclasses.field(default_factory=list)
    nested: dict[str, "Config"] | None = None  # noqa: UP037


class Color(enum.Enum):
    RED = 1


def annotated(x: torch.Tensor, y: Optional[int] = None, *z: "str", **more: typing.Any) -> tuple[int, ...]:  # noqa: UP037, UP045
    return ()


def names_of_instances(x):
    thing = Base()
    thing.later = 1
    del thing.own
    public = [name for name in dir(thing) if not name.startswith("_")]
    return x + len(dir(Slotted())), public, dir(Sly()), dir(Base), object.__dir__(thing), dir(1), "RED" in dir(Color)


def names_of_modules(x):
    layer = torch.nn.Linear(2, 3)
    return x + 1, [name for name in dir(layer) if "weight" in name], "relu" in dir(torch.nn.functional)


def held_statically(x):
    thing = Sly()
    found = inspect.getattr_static(thing, "asked")
    missing = inspect.getattr_static(thing, "absent", None), inspect.getattr_static(x, "absent", 4)
    return (
        *(x + inspect.getattr_static(thing, "own"), inspect.getattr_static(thing, "shared"), missing),
        *(isinstance(found, property), inspect.getattr_static(Base, "method") is Base.__dict__["method"]),
        inspect.getattr_static(Config, "width", "none"),
    )


def not_there(x):
    try:
        inspect.getattr_static(Base(), "absent")
    except AttributeError as error:
        return x + 1, str(error)


def hints(x):
    return x + 1, typing.get_type_hints(Config), typing.get_type_hints(annotated), typing.get_type_hints(Holder)


PROGRAMS = [names_of_instances, names_of_modules, held_statically, not_there]


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_as_eager(fn: Any) -> None:
    check(fn, (X,))


def test_hints_as_eager() -> None:
    compiled = torchdynamo.compile(hints, backend="eager", fullgraph=True)
    assert all(compiled(X)[1:] == hints(X)[1:] for _ in range(2))
    assert len(_native.cache_entries(hints.__code__)) == 1


class Growing:
    kind = int


Growing.__annotations__ = {"a": "Alias"}
Alias = int


def of_growing(x, thing):
    kinds = typing.get_type_hints(Growing)
    return x + len(dir(thing)), inspect.getattr_static(thing, "kind"), kinds["a"]


def test_guards() -> None:
    """Classes, instances and modules that come to hold other names; names in annotations that come to mean another."""
    global Alias
    torchdynamo.reset()
    compiled = torchdynamo.compile(of_growing, backend="eager", fullgraph=True)
    thing = Growing()

    def same() -> None:
        wanted, got = of_growing(X, thing), compiled(X, thing)
        assert torch.equal(wanted[0], got[0]) and wanted[1:] == got[1:]

    same()
    thing.more = 1
    same()
    Growing.further = 2
    same()
    thing.kind = str
    same()
    del thing.kind
    Growing.kind = float
    same()
    Alias = str
    same()
    Growing.__annotations__["a"] = "float"
    same()
    Growing.__annotations__["b"] = int
    same()


class Noted:
    kind: int = 1


def of_annotations(x):
    return x + 1, Noted.__annotations__["kind"], len(Noted.__annotations__)


def test_annotations_of_a_class_that_change() -> None:
    torchdynamo.reset()
    compiled = torchdynamo.compile(of_annotations, backend="eager", fullgraph=True)

    def same() -> None:
        assert compiled(X)[1:] == of_annotations(X)[1:]

    same()
    Noted.__annotations__["kind"] = float
    same()
    Noted.__annotations__["more"] = float
    same()
    Noted.__annotations__ = {"kind": str}
    same()
