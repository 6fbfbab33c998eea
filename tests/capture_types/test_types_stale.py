"""What was captured is not used any more once a fact it rests on has changed."""

from __future__ import annotations

import collections
import enum
import functools
import inspect
import logging
import operator
import os
import types
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pictures import assert_alike

import torchdynamo

X = torch.arange(4.0)
CASES: list[Any] = []


def case(change: Callable[[], Any]) -> Any:
    """The function below gives something else after `change`."""

    def register(fn: Any) -> Any:
        CASES.append(pytest.param(fn, change, id=fn.__name__))
        return fn

    return register


def plain(a, b=2, *, c=3):
    return a


def set_defaults():
    plain.__defaults__ = (7,)
    plain.__kwdefaults__["c"] = 9


@case(set_defaults)
def signature_defaults(x):
    found = inspect.signature(plain).parameters
    return x * found["b"].default + found["c"].default


class Root:
    name = "root"


LEAVES: list[type] = []  # a class nobody holds is soon no subclass any more


@case(lambda: LEAVES.append(type("Leaf", (Root,), {})))
def subclasses(x):
    return x + len(Root.__subclasses__())


BEHIND = {"a": 1}
PROXY = types.MappingProxyType(BEHIND)


@case(lambda: BEHIND.update(a=5))
def proxy_contents(x):
    return x * PROXY["a"]


QUEUE = collections.deque([1, 2], maxlen=4)


@case(lambda: QUEUE.rotate(1))
def deque_contents(x):
    return x * QUEUE[0]


@case(lambda: QUEUE.append(7))
def deque_length(x):
    return x * len(QUEUE)


class Slotted:
    __slots__ = ("a", "b")


SLOTTED = Slotted()


@case(lambda: setattr(SLOTTED, "b", 3))
def slot_set(x):
    return x * getattr(SLOTTED, "b", 1)


@functools.lru_cache
def listed(n):
    return [n]


@case(lambda: listed(3).append(1))
def cached_list(x):
    return x * sum(listed(3))


LOGGER = logging.getLogger("torchdynamo.tests.stale")


@case(lambda: LOGGER.setLevel(logging.DEBUG))
def log_level(x):
    return x + 1 if LOGGER.isEnabledFor(logging.DEBUG) else x


@case(lambda: os.environ.update(TORCHDYNAMO_TEST_STALE="5"))
def environment(x):
    return x * int(os.environ.get("TORCHDYNAMO_TEST_STALE", "1"))


Pair = namedtuple("Pair", "a b")
PAIRS = [Pair(1, 2)]


@case(lambda: PAIRS.__setitem__(0, Pair(5, 2)))
def named_items(x):
    return x * PAIRS[0].a


class One:
    pass


KEYS: list[Any] = [One(), One()]


@case(lambda: KEYS.__setitem__(1, KEYS[0]))
def identity_keys(x):
    return x * len({KEYS[0]: 1, KEYS[1]: 2}) + len({id(KEYS[0]), id(KEYS[1])})


def marked(x):
    return x


@case(lambda: setattr(marked, "scale", 4))
def function_attributes(x):
    return x * getattr(marked, "scale", 1)


class Lazy:
    n = 2

    @functools.cached_property
    def value(self):
        return self.n * 10


LAZY = Lazy()


@case(lambda: LAZY.__dict__.update(value=3))
def cached_property(x):
    return x * LAZY.value


class Kind(enum.Enum):
    A = 1
    B = 2


CHOICE = [Kind.A]


@case(lambda: CHOICE.__setitem__(0, Kind.B))
def enum_member(x):
    return x * CHOICE[0].value


GETTERS = {"get": operator.itemgetter(0)}


@case(lambda: GETTERS.update(get=operator.itemgetter(1)))
def item_getter(x):
    return x * GETTERS["get"]([2, 3])


PART = {"fn": functools.partial(operator.mul, 2)}


@case(lambda: PART.update(fn=functools.partial(operator.mul, 5)))
def partial_arguments(x):
    return PART["fn"](x)


ORDER = collections.OrderedDict(a=1, b=2)


@case(lambda: ORDER.move_to_end("a"))
def dict_order(x):
    return x * next(iter(ORDER.values()))


NAMES = {"b", "a"}


@case(lambda: NAMES.add("c"))
def set_items(x):
    return x + len(sorted(NAMES))


class Keyed:
    def __init__(self, n):
        self.n = n

    def __hash__(self):
        return 1

    def __eq__(self, other):
        return self.n == other.n


TWO = [Keyed(1), Keyed(2)]


@case(lambda: setattr(TWO[1], "n", 1))
def equal_keys(x):
    return x + len({TWO[0]: 1, TWO[1]: 2})


class Meta(type):
    def __getitem__(cls, key):
        return cls.table[key]


class Table(metaclass=Meta):
    table = {"a": 1}


@case(lambda: Table.table.update(a=6))
def class_items(x):
    return x * Table["a"]


@pytest.mark.parametrize(("fn", "change"), CASES)
def test_new_result(fn: Any, change: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHDYNAMO_TEST_STALE", "1")  # so that it is gone again afterwards
    monkeypatch.delenv("TORCHDYNAMO_TEST_STALE")
    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=True)
    before = fn(X)
    assert_alike(before, compiled(X))
    assert_alike(before, compiled(X))
    change()
    after = fn(X)
    assert_alike(after, compiled(X))
    assert not torch.equal(before, after)


def test_a_list_that_is_being_sorted_is_told_of_writes_that_were_taken_back() -> None:
    items = [2, 1]

    def key(number: int) -> int:
        items.append(number)
        items.pop()
        return number

    torch_key = torchdynamo.optimize("eager")(key)
    with torchdynamo.config.patch(capture_everything=True), pytest.raises(ValueError, match="modified during sort"):
        items.sort(key=torch_key)
