"""One dictionary under two names: an object's, a module's, a class's or a function's own, given as a dict as well."""

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from mutating import Mutation, x
from torch import nn

Arguments = tuple[Any, ...]


class Plain:
    """An object with a dictionary."""

    def __init__(self, **own: Any) -> None:
        self.__dict__.update(own)


class Table(dict[str, Any]):
    """A dict that is an object, too."""


def plain() -> Plain:
    return Plain(k=torch.ones(2, 2), j=5.0)


MODULES = (types.ModuleType("here"), types.ModuleType("there"))
CLASSES = (type("Here", (), {}), type("There", (), {}))
SHOWN = {kind: vars(kind) for kind in CLASSES}  # a proxy, which goes by what it is as well
FUNCTIONS = (lambda: None, lambda: None)  # that are written to
MADE: dict[str, Callable[[], tuple[Any, Any]]] = {  # modules, classes and these go by what they are, so those stay
    "object": lambda: (plain(), plain()),
    "namespace": lambda: (types.SimpleNamespace(k=x()), types.SimpleNamespace(k=x())),
    "module": lambda: MODULES,
    "layer": lambda: (nn.LayerNorm(2), nn.LayerNorm(2)),
    "dict": lambda: (Table(k=1), Table(k=1)),
    "error": lambda: (ValueError(), ValueError()),
    "function": lambda: FUNCTIONS,
    "class": lambda: CLASSES,
    "tensor": lambda: (torch.ones(2), torch.ones(2)),
    "thread": lambda: (threading.local(), threading.local()),
}


def ask(box: Any) -> float:
    return float(box.j)


USED: dict[str, Callable[[torch.Tensor, Any, Any], Any]] = {}


def use(fn: Callable[[torch.Tensor, Any, Any], Any]) -> Callable[[torch.Tensor, Any, Any], Any]:
    USED[fn.__name__] = fn
    return fn


@use
def written_as_attribute(x: torch.Tensor, owner: Any, own: Any) -> Any:
    owner.j = 9.0
    return x * own["j"]


@use
def written_as_item(x: torch.Tensor, owner: Any, own: Any) -> Any:
    own["j"] = 9.0
    return x * owner.j


@use
def read_before(x: torch.Tensor, owner: Any, own: Any) -> Any:
    before = own["j"]
    owner.j = 9.0
    return x * own["j"] + before


@use
def asked_before(x: torch.Tensor, owner: Any, own: Any) -> Any:
    before = owner.j
    own["j"] = 9.0
    return x * owner.j + before


@use
def of_another_kind(x: torch.Tensor, owner: Any, own: Any) -> Any:
    owner.fresh = x + 1
    own.update(j=7.0)
    return x * len(own) + owner.j


@use
def taken_away(x: torch.Tensor, owner: Any, own: Any) -> Any:
    del owner.j
    return x * (2 if "j" in own else 3)


@use
def emptied(x: torch.Tensor, owner: Any, own: Any) -> Any:
    own.clear()
    return x * (2 if hasattr(owner, "j") else 3)


@use
def walked(x: torch.Tensor, owner: Any, own: Any) -> Any:
    owner.z = 3.0
    return x * sum(item for name, item in own.items() if name in ("j", "z"))


@use
def the_same(x: torch.Tensor, owner: Any, own: Any) -> Any:
    return x * (2 if owner.__dict__ is own else 3)


@use
def in_order(x: torch.Tensor, owner: Any, own: Any) -> Any:
    owner.z = 2.0
    own["y"] = 1.0
    return x + 1, list(own)


@use
def in_a_call(x: torch.Tensor, owner: Any, own: Any) -> Any:
    own["j"] = 9.0
    return x * ask(owner)


def two_names(kind: str, used: str, back: bool) -> Mutation:
    """Its own dictionary is given where another was, or the other way round."""
    turned = [back]

    def args() -> Arguments:
        owner, other = MADE[kind]()
        for each, j in ((owner, 5.0), (other, 7.0)):
            for name in vars(each).keys() & {"fresh", "j", "y", "z"}:
                delattr(each, name)
            each.j = j
        shown = owner if turned[-1] else other
        return x(), owner, SHOWN[shown] if kind == "class" else vars(shown)

    def change(stack: ExitStack) -> None:
        turned.append(not back)

    return Mutation(USED[used], args, change)


def shared_by_objects(back: bool) -> Mutation:
    def fn(x: torch.Tensor, one: Any, other: Any) -> Any:
        one.j = 9.0
        return x * other.j

    turned = [back]

    def args() -> Arguments:
        one, other = Plain(j=5.0), Plain(j=7.0)
        if turned[-1]:
            other.__dict__ = one.__dict__
        return x(), one, other

    return Mutation(fn, args, lambda stack: turned.append(not back))


def held_by_itself(back: bool) -> Mutation:
    def fn(x: torch.Tensor, one: Any) -> Any:
        one.j = 9.0
        return x * one.own["j"]

    turned = [back]

    def args() -> Arguments:
        one = Plain(j=5.0)
        one.own = vars(one) if turned[-1] else {"j": 7.0}  # type: ignore[attr-defined]
        return x(), one

    return Mutation(fn, args, lambda stack: turned.append(not back))


def cell_of_two_functions(back: bool) -> Mutation:
    def make() -> tuple[Callable[[], float], Callable[[float], None]]:
        j = 5.0

        def get() -> float:
            return j

        def put(value: float) -> None:
            nonlocal j
            j = value

        return get, put

    def fn(x: torch.Tensor, get: Any, put: Any) -> Any:
        put(9.0)
        return x * get()

    turned = [back]

    def args() -> Arguments:
        get, put = make()
        return x(), get, put if turned[-1] else make()[1]

    return Mutation(fn, args, lambda stack: turned.append(not back))


def keyword_defaults(back: bool) -> Mutation:
    def by(*, j: float = 5.0) -> float:
        return j

    def fn(x: torch.Tensor, by: Any, own: dict[str, float]) -> Any:
        own["j"] = 9.0
        return x * by()

    turned = [back]

    def args() -> Arguments:
        by.__kwdefaults__ = {"j": 5.0}
        return x(), by, by.__kwdefaults__ if turned[-1] else {"j": 7.0}

    return Mutation(fn, args, lambda stack: turned.append(not back))


def deleted_again() -> Mutation:
    """What the frame put in and took out by the other name was never there."""

    def fn(x: torch.Tensor, owner: Any, scale: float) -> Any:
        vars(owner)["z"] = x
        del vars(owner)["z"]
        return x * scale

    scale = [2.0]
    return Mutation(fn, lambda: (x(), plain(), scale[-1]), lambda stack: scale.append(3.0))


def row(name: str, make: Callable[[], Mutation]) -> Callable[[], Mutation]:
    def named() -> Mutation:
        return make()

    named.__name__ = name
    return named


ALONE = (shared_by_objects, held_by_itself, cell_of_two_functions, keyword_defaults)
UNKNOWN_TO = {  # what vars() of it cannot be asked for, or it cannot be without
    "layer": ("emptied",),
    "class": ("written_as_item", "asked_before", "of_another_kind", "emptied", "in_order", "in_a_call", "the_same"),
    "module": ("emptied",),
}

NAMESPACES = [
    row(f"{used}_{kind}{'_back' * back}", functools.partial(two_names, kind, used, back))
    for kind in MADE
    for used in USED
    if used not in UNKNOWN_TO.get(kind, ())
    for back in (False, True)
]
NAMESPACES += [
    row(f"{make.__name__}{'_back' * back}", functools.partial(make, back)) for make in ALONE for back in (False, True)
]
NAMESPACES.append(deleted_again)
