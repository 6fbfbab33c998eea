"""Weak dictionaries and sets in captured frames, and what is dispatched by them."""

from __future__ import annotations

import functools
import gc
import weakref
from typing import Any

import pytest
import torch
from pictures import assert_alike

import torchdynamo
from torchdynamo import _native

X = torch.arange(4.0)


class Node:
    pass


class Compared:
    def __init__(self, value):
        self.value = value

    def __hash__(self):
        return hash(self.value)

    def __eq__(self, other):
        return self.value == other.value


class World:
    """What the programs find, and change."""

    def __init__(self):
        self.nodes = [Node() for _ in range(4)]
        self.keys = weakref.WeakKeyDictionary({node: at for at, node in enumerate(self.nodes[:2])})
        self.values = weakref.WeakValueDictionary({"a": self.nodes[0], "b": self.nodes[1]})
        self.set = weakref.WeakSet(self.nodes[:2])
        self.compared = weakref.WeakKeyDictionary()
        self.held = Compared(1)
        self.compared[self.held] = 8

    def told(self):
        at = {id(node): index for index, node in enumerate(self.nodes)}
        return (
            [(at.get(id(node)), value) for node, value in self.keys.items()],
            [(key, at[id(node)]) for key, node in self.values.items()],
            sorted(at.get(id(node)) for node in self.set),
        )


def reads(x, world):
    first, *_, last = world.nodes
    return x * world.keys[first], world.keys.get(last, 7), last in world.keys, len(world.keys)


def reads_values(x, world):
    return x + 1, world.values["a"] is world.nodes[0], world.values.get("z"), "b" in world.values, len(world.values)


def reads_set(x, world):
    return x + 1, world.nodes[0] in world.set, world.nodes[3] in world.set, len(world.set)


def iterates(x, world):
    return x + 1, list(world.keys.values()), [key for key, _ in world.values.items()], len(list(world.set))


def writes(x, world):
    world.keys[world.nodes[2]] = x.dim()
    world.keys[world.nodes[0]] = 9
    del world.keys[world.nodes[1]]
    world.values["c"] = world.nodes[3]
    world.set.add(world.nodes[2])
    world.set.discard(world.nodes[0])
    return x + len(world.keys) + len(world.set), len(world.values)


def makes(x, world):
    node = Node()
    keys, values, found = weakref.WeakKeyDictionary(), weakref.WeakValueDictionary(), weakref.WeakSet()
    keys[node], values["a"] = x, node
    found.add(node)
    return keys[node] + 1, values["a"] is node, node in found, len(keys) + len(values) + len(found), list(values)


def hands_out(x, world):
    keys, values, found = weakref.WeakKeyDictionary(), weakref.WeakValueDictionary(), weakref.WeakSet()
    first, second = world.nodes[:2]
    keys[first], keys[second], values["a"] = x + 1, 2, first
    found.add(second)
    return list(keys.values()), len(values), len(found), keys, values, found


def not_by_identity(x, world):
    return x * world.compared[Compared(1)]


def dies(x, world):
    keys, node = weakref.WeakKeyDictionary(), Node()
    keys[node] = 1
    before = len(keys)
    del node
    return x + before, len(keys)


def never_held(x, world):
    values = weakref.WeakValueDictionary()
    values["a"] = Node()
    return x + 1, len(values)


@functools.singledispatch
def size(thing):
    return 0


@size.register
def _(thing: int):
    return thing


@size.register(list)
@size.register(tuple)
def _(thing):
    return len(thing)


@size.register
def _(thing: torch.Tensor):
    return thing.dim()


class Sizes:
    @functools.singledispatchmethod
    def of(self, thing):
        return 0

    @of.register
    def _(self, thing: str):
        return len(thing)


def dispatches(x, world):
    return x * size(x), size(3), size([1, 2]), size((1,)), size(True), size(None), size.dispatch(list)([1])


def dispatches_methods(x, world):
    sizes = Sizes()
    return x + sizes.of("abc"), sizes.of(1)


WHOLE = [reads, reads_values, reads_set, iterates, writes, makes, hands_out, dispatches]
IN_PARTS = [not_by_identity, dies, never_held]
METHODS_ARE_KEPT = hasattr(functools.singledispatchmethod(len), "_method_cache")  # by object, on Python 3.13 alone
(IN_PARTS if METHODS_ARE_KEPT else WHOLE).append(dispatches_methods)


def same(fn: Any, fullgraph: bool) -> None:
    torchdynamo.reset()
    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=fullgraph)
    for _ in range(2):
        theirs, mine = World(), World()
        wanted, got = fn(X, theirs), compiled(X, mine)
        gc.collect()
        assert_alike(wanted[:4], got[:4])
        assert theirs.told() == mine.told()
        assert [len(each) for each in wanted[4:] if hasattr(each, "data")] == [
            len(each) for each in got[4:] if hasattr(each, "data")
        ]


@pytest.mark.parametrize("fn", WHOLE, ids=lambda fn: fn.__name__)
def test_in_one_graph(fn: Any) -> None:
    same(fn, True)


@pytest.mark.parametrize("fn", IN_PARTS, ids=lambda fn: fn.__name__)
def test_as_eager(fn: Any) -> None:
    same(fn, False)


def look_up(x, keys, key):
    return x * keys.get(key, 5)


def test_guards() -> None:
    """Another object is not the same key; what others put in does not matter to who is found."""
    compiled = torchdynamo.compile(look_up, backend="eager", fullgraph=True)
    nodes = [Node() for _ in range(3)]
    keys = weakref.WeakKeyDictionary({nodes[0]: 2, nodes[1]: 3})
    for node in (*nodes, *nodes):
        assert torch.equal(compiled(X, keys, node), look_up(X, keys, node))
    compiled(X, keys, nodes[0])
    before = len(_native.cache_entries(look_up.__code__))
    keys[Node()] = 1
    other = Node()
    keys[other] = 4
    compiled(X, keys, nodes[0])
    assert len(_native.cache_entries(look_up.__code__)) == before
    keys[nodes[0]] = 7
    assert torch.equal(compiled(X, keys, nodes[0]), X * 7)
    del keys[nodes[0]]
    assert torch.equal(compiled(X, keys, nodes[0]), X * 5)
