"""weakref.ref to what the frame makes: alive while a variable holds it; where none does, Python is asked."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from following import check

import torchdynamo

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


@pytest.mark.parametrize("fn", [alive, held_by_another, kept])
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
