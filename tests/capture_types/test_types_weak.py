"""weakref.ref to what the frame makes: alive while a variable holds it; where none does, Python is asked."""

from __future__ import annotations

import collections
import enum
import weakref
from typing import Any

import pytest
import torch
from following import check

import torchdynamo
from torchdynamo.bytecode import versions

X = torch.arange(4.0)


class Node:
    def __init__(self, x: Any = None) -> None:
        self.x = x


def alive(x: Any) -> Any:
    node = Node(x)
    ref = weakref.ref(node)
    return ref().x + 1, ref() is node


def held_by_another(x: Any) -> Any:
    outer = Node(Node(x))
    ref = weakref.ref(outer.x)
    items = [Node(x + 1)]
    other = weakref.ref(items[0])
    return ref().x + other().x


def kept(x: Any) -> Any:
    node = Node(x)
    node.me = weakref.ref(node)
    return node.me().x + 1


def to_a_container(x: Any) -> Any:
    """An OrderedDict takes references; a dict does not."""
    table, told = collections.OrderedDict(x=x), ""
    ref = weakref.ref(table)
    try:
        weakref.ref(dict(table))
    except TypeError as error:
        told = str(error)
    return ref()["x"] + 1, told


def gone(x: Any) -> Any:
    node = Node(x)
    ref = weakref.ref(node)
    del node
    return x + 1, ref() is None


def gone_with_its_owner(x: Any) -> Any:
    outer = Node(Node(x))
    ref = weakref.ref(outer.x)
    outer.x = None
    return x + 1, ref() is None


def returned(x: Any) -> Any:
    node = Node(x + 1)
    ref = weakref.ref(node)
    return ref(), x * 2, ref


@pytest.mark.parametrize("fn", [alive, held_by_another, kept, to_a_container])
def test_references(fn: Any) -> None:
    check(fn, (X,))


@pytest.mark.parametrize("fn", [gone, gone_with_its_owner])
def test_what_is_gone(fn: Any) -> None:
    got = torchdynamo.compile(fn, backend="eager")(X)
    assert fn(X)[1] is True and got[1] is True


def test_what_is_returned() -> None:
    node, _, ref = torchdynamo.compile(returned, backend="eager")(X)
    assert ref() is node and torch.equal(node.x, X + 1)
    del node, _
    assert ref() is None


class Named:
    """Its code says what it equals."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


class Counted(weakref.ref):
    """Tells how often it was called."""

    def __init__(self, to: Any) -> None:
        super().__init__(to)
        self.calls = 0

    def __call__(self) -> Any:
        found = super().__call__()
        self.calls += 1
        return found, self.calls


class ById(weakref.ref):
    """A key by itself, whatever it refers to."""

    def __hash__(self) -> int:
        return 7

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ById)


def looked_up(x: Any, keys: Any, key: Any, ref: Any) -> Any:
    return x + 1, keys.get(key, "none"), key in keys, weakref.ref(key) in keys.data


def taken(x: Any, keys: Any, key: Any, ref: Any) -> Any:
    return x + 1, keys.pop(key, "none"), len(keys)


def under_a_subclass(x: Any, keys: Any, key: Any, ref: Any) -> Any:
    return x + 1, {ById(key): 1}.get(ById(ref), "none")


def called(x: Any, keys: Any, key: Any, ref: Any) -> Any:
    return x + 1, ref()[1], ref()[0] is key


def taken_out(x: Any, items: Any, ref: Any) -> Any:
    items.pop()
    return x + 1, ref() is None


def overwritten(x: Any, items: Any, ref: Any) -> Any:
    items[0] = Node(items[0].x)
    return x + 1, ref() is None


def added(x: Any, items: Any, ref: Any) -> Any:
    items.append(x)
    return x + 1, ref().x


@pytest.mark.parametrize("fn", [taken_out, overwritten, added])
def test_what_the_function_lets_go_of(fn: Any) -> None:
    for run in (fn, torchdynamo.compile(fn, backend="eager")):
        items = [Node(3)]
        assert run(X, items, weakref.ref(items[0]))[1] == (3 if fn is added else True)


class Kind(enum.Enum):
    A = 1


@pytest.mark.parametrize("fn", [looked_up, taken, under_a_subclass, called])
@pytest.mark.parametrize("key", [Named("a"), Kind.A, len, Node, Node(1)], ids=lambda key: type(key).__name__)
def test_references_from_outside(fn: Any, key: Any) -> None:
    """Whatever tells keys apart, and whatever a subclass makes of a call."""
    told = []
    for run in (fn, torchdynamo.compile(fn, backend="eager")):
        keys, ref = weakref.WeakKeyDictionary({key: 3}), Counted(key)
        told.append([run(X, keys, key, ref)[1:] for _ in range(3)])
        assert ref.calls == (6 if fn is called else 0)
    assert told[0] == told[1]


def still_there(x: Any, node: Any) -> Any:
    mine, made = node.pop(), Node(x)
    proxies = weakref.proxy(mine), weakref.proxy(made)
    torchdynamo.graph_break()
    return x + 1, [proxy.x for proxy in proxies]


def no_longer_there(x: Any, nodes: Any) -> Any:
    node = torchdynamo.disable(list.pop)(nodes)
    ref = weakref.ref(node)
    del node
    return x + 1, ref() is None


def within(x: Any, nodes: Any) -> Any:
    return still_there(x, nodes)


@pytest.mark.parametrize("fn", [still_there, within, no_longer_there])
def test_what_a_variable_holds_lives_on_after_a_break(fn: Any) -> None:
    """Until the function returns, whether something reads it or not."""
    if fn is no_longer_there and not versions.ONE_FRAME_SHOWN:
        pytest.skip("what is alive at a break dies with the function there")
    compiled = torchdynamo.compile(fn, backend="eager")
    for _ in range(2):
        assert str(compiled(X, [Node(1), Node(2)])) == str(fn(X, [Node(1), Node(2)]))
