"""Looking at a program changes nothing: its code does not run to name, hash or tell apart, and orders stay its own."""

from __future__ import annotations

import abc
import copy
import dataclasses
import enum
import functools
import gc
import inspect
import reprlib
import sys
import typing
import weakref
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import pytest
from as_python import assert_as_python, attempt

CASES: list[Any] = []


def case(fn: Callable[[], Any]) -> Callable[[], Any]:
    """The function is compiled and called, twice."""
    CASES.append(pytest.param(fn, id=fn.__name__))
    return fn


class Unfollowed:
    """What ends a capture where it is made."""

    def __del__(self) -> None:
        pass


# -- orders of sets ---------------------------------------------------------------------------------------------------


@case
def a_set_given_to_a_library():
    words = {"add", "at", "build", "bypass", "create", "expected", "field", "four", "got", "helper", "maps", "note"}
    return namedtuple("Words", words)._fields == tuple(words)


@case
def a_literal_made_again():
    words = {"add", "at", "build", "bypass", "create", "expected", "field", "four", "got", "helper", "maps", "note"}
    before = list(words)
    Unfollowed()
    return before == list(words), list({64, 3, 128, 1000, 77, 12, 0, 8, 16, 24}), list(words)


@case
def a_set_that_was_there():
    def change(numbers, more):
        numbers.add(300)
        numbers.discard(1)
        numbers.update({64, 3, 128, 1000, 77, 12})
        numbers.update([5, 6, 1])
        numbers.update({9: 1, 10: 2})
        numbers.update(more)
        numbers |= {2, 3}
        numbers.difference_update([5])
        Unfollowed()

    found = []
    for first in range(3):
        numbers = {1, 64 * first, 128, 7}
        change(numbers, {33, 34, 64 + first})
        found.append(list(numbers))
    return found


# -- ids --------------------------------------------------------------------------------------------------------------
class Node:
    def __init__(self) -> None:
        self.inside: Any = None

    @reprlib.recursive_repr()
    def __repr__(self) -> str:
        Unfollowed()
        return f"Node({self.inside!r})"


@case
def ids_that_were_kept():
    node, other = Node(), Node()
    node.inside = other
    other.inside = node
    return repr(node), repr(other)


# -- classes that look at what lies in them ---------------------------------------------------------------------------
@case
def told_its_name_through_a_field():
    class Told:
        def __set_name__(self, owner, name):
            self.name = f"{name} of {owner.__name__}"

    @dataclasses.dataclass
    class Holder:
        told: int = dataclasses.field(default=Told(), init=False)

    return Holder.told.name


@case
def data_descriptors_that_only_set():
    asked = []

    class Setting:
        def __set__(self, owner, value):
            asked.append(value)

    @dataclasses.dataclass
    class Holder:
        setting: Any = Setting()  # noqa: RUF009

    Holder(5)
    return asked[-1]


@case
def fields_only_of_init():
    def define():
        @dataclasses.dataclass
        class Holder:
            names: dataclasses.InitVar[list] = dataclasses.field(default_factory=list)

    return attempt(define)


@case
def truth_of_what_is_abstract():
    class Neither:
        def __bool__(self):
            raise ValueError("neither")

    def define():
        class Holder(abc.ABC):  # noqa: B024
            def method(self):
                return 1

            method.__isabstractmethod__ = Neither()
            method = property(method)

    return attempt(define)


@case
def a_wrapper_made_by_super():
    class Marked(classmethod):
        def __init__(self, fn):
            fn.marked = True
            super().__init__(fn)

    class Holder:
        @Marked
        def method(cls):
            return cls.__name__

    return Holder.method(), Holder.__dict__["method"].__func__.marked


@case
def names_bound_twice():
    def define():
        class Color(enum.Enum):
            red = 1
            red = 2  # noqa: PIE794

    return attempt(define)


# -- code that is not to be run ---------------------------------------------------------------------------------------
class Equal(type):
    """Classes that say themselves what they equal."""

    def __eq__(cls, other):
        raise ValueError("asked")

    def __hash__(cls):
        raise ValueError("asked")


class Equalled(metaclass=Equal):
    size = 3


@case
def classes_that_say_what_they_equal():
    return [Equalled().size, type(Equalled()) is Equalled, isinstance(Equalled(), Equalled)]


class Bare:
    """An object on its way: it can be neither shown nor hashed yet."""

    def __init__(self, size: Any = None) -> None:
        if size is not None:
            self.size = size

    def __repr__(self) -> str:
        return f"Bare({self.size})"

    def __hash__(self) -> int:
        return hash(self.size)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bare) and self.size == other.size


BARE = Bare()


@case
def objects_on_their_way():
    return hasattr(BARE, "size"), type(BARE).__name__, attempt(repr, BARE)[0]


@case
def types_on_their_way():
    made = typing.TypeVar("made", covariant=True)
    return repr(made), typing.List[made] == typing.List[made]  # noqa: UP006


@case
def subclasses_by_a_hook_that_fails():
    class Hooked(abc.ABC):  # noqa: B024
        @classmethod
        def __subclasshook__(cls, other):
            raise KeyError("hooked")

    return attempt(issubclass, int, Hooked), attempt(isinstance, 1, Hooked | None)


class Formatted:
    def __format__(self):  # noqa: PLE0302
        return "never"


@case
def formats_are_given_a_specification():
    return attempt(lambda: f"{Formatted()}")[0]


@case
def annotations_written_into():
    def written(x): ...

    def noted(x: int): ...

    written.__annotations__["x"] = noted.__annotations__["y"] = "later"
    Unfollowed()
    return written.__annotations__, noted.__annotations__


class Weakly:
    pass


@case
def weak_dicts_that_are_copied():
    found = []
    for kind in (weakref.WeakKeyDictionary, weakref.WeakValueDictionary):
        key, value, other = Weakly(), Weakly(), Weakly()
        first = kind()
        first[key] = value
        first[other] = other
        second = copy.copy(first)
        found.append((len(first), len(second)))
        del other
        gc.collect()
        found.append((len(first), len(second)))
    return found


@case
def caches_made_again():
    @functools.lru_cache(3)
    def doubled(x):
        return 2 * x

    Unfollowed()
    return doubled(2), doubled(2), doubled.cache_info().maxsize, doubled.cache_parameters()


class Calling(type):
    __call__ = dict  # as typing.TypedDict has it


class Called(metaclass=Calling):
    pass


@case
def metaclasses_that_call_something_else():
    made = Called(name="a")
    return type(made), made


@case
def tuples_in_tuples_past_the_limit():
    limit = sys.getrecursionlimit()
    nested: Any = str
    for _ in range(200):
        nested = (nested,)
    sys.setrecursionlimit(len(inspect.stack(0)) + 60)
    try:
        return [str(attempt(*asked))[:20] for asked in ((isinstance, "", nested), (issubclass, str, nested))]
    finally:
        sys.setrecursionlimit(limit)


@case
def modules_in_packages():
    for name in ("wsgiref.headers", "wsgiref"):
        sys.modules.pop(name, None)
    from wsgiref import headers

    return headers.__name__


class Slotted:
    __slots__ = ("held",)


@case
def slots_that_are_empty():
    first, second = Slotted(), Slotted()
    Unfollowed()
    first.held = 1
    del first.held
    second.held = 2
    Unfollowed()
    del second.held
    return [attempt(delattr, each, "held") for each in (first, second)], hasattr(second, "held")


@case
def keys_that_are_no_names():
    class Key:
        def __hash__(self):
            return hash("size")

        def __eq__(self, other):
            asked.append(other)
            return False

    asked: list[Any] = []
    made = Weakly()
    made.__dict__[Key()] = 0
    Unfollowed()
    return hasattr(made, "size"), asked, attempt(getattr, type("Own", (), {Key(): 1}), "size")[0], asked


@case
def slots_by_a_list_of_the_class():
    class Listed:
        __slotnames__ = ["size"]

        def __getattr__(self, name):
            if name == "size":
                return 42
            raise AttributeError(name)

    return Listed().__reduce_ex__(2)[2]


class Hashed:
    def __init__(self, answer):
        self.answer = answer

    def __hash__(self):
        return self.answer


@case
def answers_of_hash():
    return [hash(Hashed(answer)) for answer in (1, -1, 1 << 62, 1 << 80, True)]


@case
def slices_with_steps_of_none():
    return attempt(lambda: [1, 2][::0]), attempt(lambda: (1, 2)[::0])


@case
def arguments_of_methods_by_class():
    return attempt(dict.clear, {}, 1)[0], attempt(dict.pop, {})[0]


def iterators_over_what_is_no_sequence():
    args = iter(list[int])
    first = next(args)
    Unfollowed()
    return first, attempt(next, args)[0]


if hasattr(type(list[int]), "__iter__"):  # not before Python 3.11
    case(iterators_over_what_is_no_sequence)


@pytest.mark.parametrize("fn", CASES)
def test_as_python(fn: Callable[[], Any]) -> None:
    assert_as_python(fn)
