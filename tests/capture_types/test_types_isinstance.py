"""isinstance, issubclass, class patterns: each kind of class against each kind of object, as the metaclass decides."""

from __future__ import annotations

import abc
import collections
import numbers
import typing
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torchdynamo

LOG: list[str] = []


# -- classes to ask about ---------------------------------------------------------------------------------------------
class Answers(type):
    """Decides for instances alone."""

    def __instancecheck__(cls, obj: Any) -> bool:
        LOG.append(type(obj).__name__)
        return bool(super().__instancecheck__(obj) or getattr(obj, "counts", False))


class Above(type):
    """Decides for subclasses alone: instances of a plain class are found past it."""

    def __subclasscheck__(cls, other: type) -> bool:
        LOG.append(other.__name__)
        return other is int


class Abstract(abc.ABCMeta):
    """Decides for subclasses, which abstract classes ask for instances too."""

    def __subclasscheck__(cls, other: type) -> bool:
        return other in (float, Quacks) or super().__subclasscheck__(other)


class Past(abc.ABCMeta):
    """Goes by the order of bases, past what was registered."""

    def __instancecheck__(cls, obj: Any) -> bool:
        return type.__instancecheck__(cls, obj)


class OfClass(type):
    @classmethod
    def __instancecheck__(mcs, obj: Any) -> bool:
        return mcs is OfClass and obj is not None


class Static(type):
    @staticmethod
    def __instancecheck__(obj: Any) -> bool:
        return isinstance(obj, str)


class Callee:
    def __call__(self, obj: Any) -> bool:
        return isinstance(obj, float)


class ByObject(type):
    __instancecheck__ = Callee()


class InTyping(type):
    def __instancecheck__(cls, obj: Any) -> bool:
        return not type.__instancecheck__(int, obj)


InTyping.__instancecheck__.__module__ = "abc_of_mine"  # begins like a library's


class Flat(type(torch.Tensor)):  # type: ignore[misc]
    def __instancecheck__(cls, obj: Any) -> bool:
        return type.__instancecheck__(torch.Tensor, obj) and obj.dim() == 1


class Registered(abc.ABC):  # noqa: B024
    pass


class Hooked(abc.ABC):  # noqa: B024
    @classmethod
    def __subclasshook__(cls, other: type) -> Any:
        return True if "quack" in other.__dict__ else NotImplemented


@typing.runtime_checkable
class Quacking(typing.Protocol):
    def quack(self) -> None: ...


class Quacks:
    counts = True

    def quack(self) -> None: ...


class Lies:
    @property
    def __class__(self) -> Any:
        return Quacks


class Subclass(torch.Tensor):
    pass


class Overriding(torch.Tensor):
    @classmethod
    def __torch_function__(cls, fn: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(fn, kinds, args, kwargs or {})


Registered.register(Quacks)
Registered.register(bytes)


class Instance:
    """No class, but an object that answers for one."""

    def __instancecheck__(self, obj: Any) -> bool:
        return type(obj) is int

    def __subclasscheck__(self, cls: type) -> bool:
        return cls is int


def made(meta: type) -> type:
    """Return a class of that metaclass."""
    base = (torch.Tensor,) if meta is Flat else ()
    return meta(f"Of{meta.__name__}", base, {})


CLASSES: dict[str, Any] = {
    **{
        meta.__name__: made(meta)
        for meta in (Answers, Above, Abstract, Past, OfClass, Static, ByObject, InTyping, Flat)
    },
    "several": (str, made(Answers), (nn.Parameter,)),
    "union": int | nn.Parameter,
    "Union": typing.Union[int, nn.Parameter],  # noqa: UP007
    "Instance": Instance(),
    "typing.Sequence": typing.Sequence,
    "typing.Any": typing.Any,
    "list[int]": list[int],
    "not a class": 3,
    **{cls.__name__: cls for cls in (Registered, Hooked, Quacking, Quacks, int, object, numbers.Number)},
    **{
        cls.__name__: cls
        for cls in (collections.abc.Hashable, nn.Parameter, nn.Buffer, torch.Tensor, Subclass, nn.Module)
    },
    "Variable": torch.autograd.Variable,
    "FloatTensor": torch.FloatTensor,
    "LongTensor": torch.LongTensor,
}


# -- objects ----------------------------------------------------------------------------------------------------------
def flagged() -> torch.Tensor:
    """Return a tensor with the mark that wrapping a subclass in a Parameter leaves."""
    tensor: Any = torch.ones(3)
    tensor._is_param = True
    return tensor


OBJECTS: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "1": lambda: 1,
    "2.5": lambda: 2.5,
    "bytes": lambda: b"b",
    "list": lambda: [1],
    "class": lambda: Quacks,
    "Quacks": Quacks,
    "Lies": Lies,
    "Linear": lambda: nn.Linear(1, 1),
    "tensor": lambda: torch.ones(3),
    "square": lambda: torch.ones(2, 2),
    "integers": lambda: torch.arange(3),
    "Parameter": lambda: nn.Parameter(torch.ones(3)),
    "Parameter of Subclass": lambda: nn.Parameter(torch.ones(3).as_subclass(Subclass)),
    "Parameter of Overriding": lambda: nn.Parameter(torch.ones(3).as_subclass(Overriding)),
    "Buffer": lambda: nn.Buffer(torch.ones(3)),
    "flagged": flagged,
}


def instance(x: Any, obj: Any, cls: Any) -> Any:
    return x + 1 if isinstance(obj, cls) else x - 1


def subclass(x: Any, obj: Any, cls: Any) -> Any:
    return x + 1 if issubclass(type(obj), cls) else x - 1


def pattern(x: Any, obj: Any, cls: Any) -> Any:
    match obj:
        case cls():
            return x + 1
    return x - 1


def outcome(fn: Any, *args: Any) -> Any:
    LOG.clear()
    try:
        return fn(*args).tolist(), list(LOG)
    except TypeError as error:
        return str(error), list(LOG)


TOLD_APART = ("1", "2.5", "Quacks", "Lies", "tensor", "Parameter of Subclass", "flagged")
WHOLE = ("Answers", "Above", "Abstract", "OfClass", "Static", "ByObject", "Parameter", "Registered", "Quacking")


@pytest.mark.parametrize(("ask", "objects"), [(instance, OBJECTS), (subclass, TOLD_APART), (pattern, TOLD_APART[2:])])
@pytest.mark.parametrize("name", CLASSES)
def test_the_metaclass_decides(name: str, ask: Any, objects: Any) -> None:
    """A class against every object, in the order in which Python would ask; captured whole."""
    cls = CLASSES[name]
    for each in objects:
        x, obj = torch.zeros(1), OBJECTS[each]()
        torchdynamo.reset()
        wanted = outcome(ask, x, obj, cls)
        compiled = torchdynamo.compile(ask, backend="eager", fullgraph=name in WHOLE)
        assert [outcome(compiled, x, obj, cls) for _ in range(2)] == [wanted, wanted], each


# -- answers that change ----------------------------------------------------------------------------------------------
def registering() -> Any:
    class Later(abc.ABC):  # noqa: B024
        pass

    return Later, lambda: Later.register(int)


def flag_is_set() -> Any:
    return nn.Parameter, lambda: setattr(PARAMETER, "_is_param", True)


def check_is_replaced() -> Any:
    cls = made(Static)
    return cls, lambda: setattr(Static, "__instancecheck__", staticmethod(lambda obj: True))


PARAMETER = torch.ones(1)


@pytest.mark.parametrize(("change", "obj"), [(registering, 3), (flag_is_set, PARAMETER), (check_is_replaced, 3)])
def test_the_answer_follows_what_changes(change: Any, obj: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Static, "__instancecheck__", Static.__dict__["__instancecheck__"])
    cls, then = change()
    compiled = torchdynamo.compile(instance, backend="eager")
    x = torch.zeros(1)
    assert [compiled(x, obj, cls).item() for _ in range(2)] == [-1, -1]
    then()
    assert compiled(x, obj, cls).item() == instance(x, obj, cls).item() == 1


# -- classes that the function makes or writes to ----------------------------------------------------------------------
def of_a_protocol_made_here(x: Any) -> Any:
    @typing.runtime_checkable
    class Sending(typing.Protocol):
        port: int

        def send(self) -> None: ...

    class Whole:
        port = 1

        def send(self) -> None: ...

    class Part:
        def send(self) -> None: ...

    return x + 1, isinstance(Whole(), Sending), isinstance(Part(), Sending), isinstance(3, Sending)


def of_a_protocol_that_is_not_asked(x: Any) -> Any:
    class Sending(typing.Protocol):
        def send(self) -> None: ...

    try:
        return x, isinstance(3, Sending)  # type: ignore[misc]
    except TypeError as error:
        return x + 1, str(error)


@typing.runtime_checkable
class Numbered(typing.Protocol):
    number: int


@typing.runtime_checkable
class Late(typing.Protocol):
    number: int


class Plain:
    pass


class Registered:
    pass


Numbered.register(Registered)  # type: ignore[attr-defined]


def of_a_registered_class(x: Any) -> Any:
    return x + 1, isinstance(Registered(), Numbered), isinstance(Plain(), Numbered)


def of_a_class_written_to(x: Any) -> Any:
    Plain.number = 1  # type: ignore[attr-defined]
    found = isinstance(Plain(), Numbered), isinstance(Plain(), collections.abc.Sized)
    del Plain.number  # type: ignore[attr-defined]
    return x + 1, *found, isinstance(Plain(), Numbered)


def of_a_protocol_that_is_made_askable(x: Any) -> Any:
    typing.runtime_checkable(Late)
    try:
        return x + 1, isinstance(3, Late), isinstance(Plain(), Late)
    except TypeError as error:
        return x, str(error)


@pytest.mark.parametrize(
    ("fn", "whole"),
    [
        (of_a_protocol_made_here, True),
        (of_a_protocol_that_is_not_asked, True),
        (of_a_registered_class, False),
        (of_a_class_written_to, False),
        (of_a_protocol_that_is_made_askable, False),
    ],
)
def test_of_classes_that_the_function_changes(fn: Any, whole: bool) -> None:
    x = torch.zeros(1)
    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=whole)
    for _ in range(2):
        Late._is_runtime_protocol = False  # type: ignore[attr-defined]
        wanted = fn(x)
        Late._is_runtime_protocol = False  # type: ignore[attr-defined]
        found = compiled(x)
        assert torch.equal(found[0], wanted[0])
        assert found[1:] == wanted[1:]
