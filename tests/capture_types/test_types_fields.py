"""Fields of C: some can be written, most cannot; what a partial carries besides; tuples that are the same object."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from following import check

import torchdynamo

X = torch.arange(3.0)


def given(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


class Special(functools.partial):  # type: ignore[type-arg]
    def shown(self) -> Any:
        return self.args


class Slotted(functools.partial):  # type: ignore[type-arg]
    __slots__ = ("extra",)


def with_attributes(x: Any) -> Any:
    plain = functools.partial(given, 1)
    plain.extra = x  # type: ignore[attr-defined]
    special = Special(given, 2, b=x)
    special.extra = 3  # type: ignore[attr-defined]
    slotted = Slotted(given, 4)
    slotted.extra = 5
    return plain.extra, special.shown(), special(), special.extra, slotted.extra, x + 1  # type: ignore[attr-defined]


def identities(x: Any, outer: Any) -> Any:
    t = (x, [1])
    same = tuple(t) is t, t[:] is t, t[0:2] is t, t + () is t, () + t is t, t * 1 is t, tuple(outer) is outer
    other = t[:1] is t, t[::-1] is t, tuple(iter(t)) is t, list(t) is t
    return same, other, x + 1


@pytest.mark.parametrize(("fn", "args"), [(with_attributes, (X,)), (identities, (X, (1, [2])))])
def test_as_eager(fn: Any, args: Any) -> None:
    check(fn, args)


class Plain:
    pass


@pytest.mark.parametrize("name", ["<referent>", "<partial.func>", "<", "a b", "2", ""])
@pytest.mark.parametrize("make", [Plain, lambda: Special(given, 1), lambda: PLAIN], ids=["new", "of C", "there"])
def test_any_text_is_the_name_of_an_attribute(make: Any, name: str) -> None:
    def named(x: Any) -> Any:
        made = make()
        setattr(made, name, 3)
        return made, x + 1

    torchdynamo.reset()
    made, _ = torchdynamo.compile(named, backend="eager", fullgraph=True)(X)
    assert vars(made).pop(name) == 3 and not vars(made)


PLAIN = Plain()


def carried(x: Any) -> Any:
    made = Special(given, 1)
    made.extra = 3  # type: ignore[attr-defined]
    return made, x + 1


def test_what_a_partial_carries_leaves_with_it() -> None:
    made, _ = torchdynamo.compile(carried, backend="eager", fullgraph=True)(X)
    assert type(made) is Special and vars(made) == {"extra": 3} and made() == ((1,), {})


def readonly(x: Any) -> Any:
    made, said = functools.partial(given, 1, b=2), []
    for name in ("func", "args", "keywords"):
        try:
            setattr(made, name, map)
        except AttributeError as error:
            said.append(str(error))
        try:
            delattr(made, name)
        except AttributeError as error:
            said.append(str(error))
    for thing, name in ((slice(1), "start"), (given, "__closure__"), (given, "__globals__"), (range(2), "stop")):
        try:
            setattr(thing, name, 1)
        except AttributeError as error:
            said.append(str(error))
    return x + 1, made(), said


def test_readonly_fields() -> None:
    """Nothing is written, nothing deleted, and nothing that is deleted is made again."""
    wanted, got = readonly(X), torchdynamo.compile(readonly, backend="eager")(X)
    assert torch.equal(got[0], wanted[0]) and got[1:] == wanted[1:] and len(got[2]) == 10
