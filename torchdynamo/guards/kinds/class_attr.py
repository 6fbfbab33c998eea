"""Guard the attribute that a class has under a name, along its MRO."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from torchdynamo.core.source import Guard, Roots
from torchdynamo.core.value import ABSENT
from torchdynamo.guards.identity import Weak, held, is_same
from torchdynamo.guards.kind import GuardDifference, GuardKind, NodeOf, short


def find(cls: Any, name: str) -> Any:
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return ABSENT


def kept(arg: tuple[str, Any]) -> tuple[str, Any]:
    """Return the guard's argument with a weak reference in the place of the attribute, if it supports one.

    Otherwise it is held, which keeps nothing more alive: the class, which the source names, has it too.
    """
    name, expected = arg
    return arg if expected is ABSENT or type(expected) is Weak else (name, held(expected))


def holds(value: Any, arg: tuple[str, Any], roots: Roots) -> bool:
    return isinstance(value, type) and is_same(arg[1], find(value, arg[0]))


def lower(guard: Guard, node_of: NodeOf) -> tuple[int, str, Any]:
    node = node_of(guard.source)
    name, expected = kept(guard.arg)
    if expected is ABSENT:
        return node, "lookup_absent", (name,)
    if type(expected) is Weak:
        return node, "lookup_weak", (name, expected.ref)
    return node, "lookup", (name, expected)


def why(value: Any, arg: tuple[str, Any], roots: Roots) -> GuardDifference:
    return GuardDifference(
        f".{arg[0]}", describe(arg[1]), describe(find(value, arg[0])) if isinstance(value, type) else short(value)
    )


def describe(obj: Any) -> str:
    """Return an attribute as text."""
    if type(obj) is FunctionType:
        return f"{obj.__qualname__} of {obj.__code__.co_filename}:{obj.__code__.co_firstlineno}"
    return "no such attribute" if obj is ABSENT else short(obj)


KIND = GuardKind(
    "CLASS_ATTR",
    holds=holds,
    lower=lower,
    why=why,
    describe=lambda arg: f".{arg[0]}: {describe(arg[1])}",
    settle=lambda guard, roots: guard._replace(arg=kept(guard.arg)),
)
