"""Subclasses of types in C that have another attribute under the name of a field of that type: C reads its own."""

from __future__ import annotations

import collections
import functools
from typing import Any

import pytest
import torch

import torchdynamo


def given(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


class Bound(functools.partial):  # type: ignore[type-arg]
    __slots__ = "func"

    def __new__(cls, func: Any) -> Any:
        return super().__new__(cls, func)

    def __init__(self, func: Any) -> None:
        self.func = "mine"  # type: ignore[misc]


class Shown(functools.partial):  # type: ignore[type-arg]
    args = property(lambda self: ("shown",))  # type: ignore[assignment]
    keywords = 5  # type: ignore[assignment]


class Stop(StopIteration):
    __slots__ = ("value",)


class Stopped(StopIteration):
    value = property(lambda self: "shown")


class Args(Exception):
    args = property(lambda self: ("shown",))  # type: ignore[assignment]


class Slots(Exception):
    __slots__ = ("__cause__", "args")


class Number(OSError):
    errno = property(lambda self: 77)  # type: ignore[assignment]


class Key(KeyError):
    args = ("of the class",)


class Caused(Exception):
    __cause__ = "the class"  # type: ignore[assignment]


class SlotFactory(collections.defaultdict):  # type: ignore[type-arg]
    __slots__ = ("default_factory",)


class Factory(collections.defaultdict):  # type: ignore[type-arg]
    default_factory = property(lambda self: int)  # type: ignore[assignment]


class Plain(collections.defaultdict):  # type: ignore[type-arg]
    pass


class Queue(collections.deque):  # type: ignore[type-arg]
    maxlen = property(lambda self: 99)  # type: ignore[assignment]


class Property(property):
    fget = property(lambda self: lambda owner: "shown")  # type: ignore[assignment]


class Static(staticmethod):  # type: ignore[type-arg]
    __slots__ = ("__func__",)


class OfClass(classmethod):  # type: ignore[type-arg]
    __func__ = property(lambda self: None)  # type: ignore[assignment]


class Super(super):
    __slots__ = ("cls", "obj")


class Holder:
    held = Property(lambda self: "held")
    static = Static(lambda: "static")
    of_class = OfClass(lambda cls: cls)


class Above:
    __slots__ = ("v",)

    def at(self) -> Any:
        return 1


class Below(Above):
    __slots__ = ("v",)

    def at(self) -> Any:
        found: Any = Super(Below, self)
        found.obj, found.cls = 3, 4
        return found.at(), found.obj


BOUND, SHOWN, ARGS = Bound(given), Shown(given, 1, b=2), Args(1, 2)
FACTORIES = SlotFactory(list), Factory(list), Plain(list)
QUEUE = Queue([1, 2], 2)


def partials_there(n: int) -> Any:
    inside = functools.partial(SHOWN, 5)(6), functools.partial(BOUND, 7)()
    return BOUND(n), BOUND.func, SHOWN(3), SHOWN.args, SHOWN.keywords, SHOWN.func(1), inside


def partials_made(n: int) -> Any:
    bound, shown = Bound(given), Shown(given, 1, b=2)
    bound.func = n  # type: ignore[misc]
    return bound(1), bound.func, shown(3), shown.args, shown.keywords, bound, shown


class Raising:
    def __init__(self, error: Any) -> None:
        self.error = error

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        raise self.error


def awaited(error: Any) -> Any:
    got = yield from Raising(error)
    return got


def stops(n: int) -> Any:
    first, said = Stop(n), []
    first.value = 8
    for error in (first, Stopped(7)):
        try:
            next(awaited(error))
        except StopIteration as end:
            said.append(end.value)
    return said, first.value


def exceptions_made(n: int) -> Any:
    one, two, number, key = Args(n, 2), Slots(n, 2), Number(1, "text"), Key("k")
    two.args = 5  # type: ignore[assignment]
    said = [(str(each), repr(each), each.args) for each in (one, two, number, key)]
    return said, number.errno, one, two


def exceptions_there(n: int) -> Any:
    return ARGS.args, str(ARGS), repr(ARGS)


def causes(n: int) -> Any:
    said: list[Any] = []
    for kind in (Slots, Caused):
        try:
            raise kind(1) from ValueError(2)
        except (Slots, Caused) as error:
            said.append((getattr(error, "__cause__", "nothing"), error.__suppress_context__))
    return said


def factories_made(n: int) -> Any:
    made = SlotFactory(list), Factory(list), Plain(list)
    made[0].default_factory = int
    made[2].default_factory = int
    for each in made[:2]:
        each[n].append(1)
    return made, [each.default_factory for each in made], made[2][5]


def factories_there(n: int) -> Any:
    for each in FACTORIES:
        each[n].append(1)
    return [dict(each) for each in FACTORIES], FACTORIES[1].default_factory


def queues(n: int) -> Any:
    made = Queue([1, 2, 3], 2)
    for each in (made, QUEUE):
        each.append(n)
    return made, made.maxlen, list(QUEUE), QUEUE.maxlen


def descriptors(n: int) -> Any:
    holder = Holder()
    return holder.held, holder.static(), Holder.static(), holder.of_class(), Holder.of_class()


def slots_of_two(n: int) -> Any:
    below = Below()
    below.v = 1
    Above.v.__set__(below, n)  # type: ignore[attr-defined]
    return below.v, Above.v.__get__(below), super(Below, below).v, below.at()  # type: ignore[attr-defined]


CASES = [
    *(partials_there, partials_made, stops, exceptions_made, exceptions_there, causes, factories_made),
    *(factories_there, queues, descriptors, slots_of_two),
]


def shown(result: Any) -> Any:
    """What can be seen of it, as a text without addresses."""
    return [repr(each).split(" at 0x")[0] for each in result]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_each_reads_its_own(case: Any) -> None:
    """Called twice: the second is a hit, on objects that the first has changed."""

    def program(x: Any, n: int) -> Any:
        return x + 1, case(n)

    said = {}
    for name, run in (("eager", program), ("compiled", torchdynamo.compile(program, backend="eager"))):
        QUEUE.clear()
        for each in FACTORIES:
            each.clear()
        said[name] = [shown(run(torch.ones(2), 3)[1]) for _ in range(2)]
    assert said["compiled"] == said["eager"]


def field_there(x: Any, bound: Any) -> Any:
    return bound(x + 1)[0][0]


def test_what_c_keeps_is_guarded() -> None:
    """The field is looked at, not the attribute of its name, which may be changed."""
    compiled = torchdynamo.compile(field_there, backend="eager", fullgraph=True)
    x, one, other = torch.ones(2), Bound(given), Bound(lambda x: ((x * 5,), {}))
    assert compiled(x, one).tolist() == [2, 2]
    one.func = len  # type: ignore[misc]
    assert compiled(x, one).tolist() == [2, 2]
    assert compiled(x, other).tolist() == [10, 10]
    assert len(torchdynamo._native.cache_entries(field_there.__code__)) == 2


@pytest.mark.parametrize(
    "case", [partials_there, partials_made, stops, exceptions_made, factories_made, factories_there]
)
def test_captured_whole(case: Any) -> None:
    def program(x: Any) -> Any:
        case(3)
        return x + 1

    torchdynamo.compile(program, backend="eager", fullgraph=True)(torch.ones(2))
