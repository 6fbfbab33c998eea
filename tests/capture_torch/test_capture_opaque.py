"""What libraries ask torch.compile to keep whole is followed; only our own `allow_in_graph` makes an opaque node."""

from __future__ import annotations

import functools
from typing import Any

import torch
from pictures import assert_alike

import torchdynamo
from torchdynamo.graph.check import problems


def run(fn: Any, *args: Any) -> list[Any]:
    """The targets of the one graph, after comparing two calls with eager."""
    graphs = []

    def backend(gm: Any, example_inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    compiled = torchdynamo.compile(fn, backend=backend, fullgraph=True)
    for _ in range(2):
        assert_alike(fn(*args), compiled(*args))
    (gm,) = graphs
    return [problem for problem in problems(gm) if "no operator" in problem]


@torch.compiler.allow_in_graph
def library(x, parts):
    return sum(torch.split(x, x.shape[0] // parts))


def test_marked_for_torch_compile():
    assert not run(lambda x: library(x, 2) + 1, torch.randn(4, 3))


@torchdynamo.allow_in_graph
def own(x):
    return x * 2


def test_marked_for_us():
    assert run(lambda x: own(x) + 1, torch.randn(4, 3))


class Spec:
    """A key that is compared by what it holds."""

    def __init__(self, shape, names):
        self.shape = shape
        self.names = names

    def __eq__(self, other):
        return self.shape == other.shape and self.names == other.names

    def __hash__(self):
        return hash(self.shape)


class Names(dict):
    def __hash__(self):
        return hash(tuple(self))


class Engine:
    def __hash__(self):
        return id(self)

    def __eq__(self, other):
        return self is other


ENGINE = Engine()


@functools.lru_cache
def plan(specs, engine):
    """Too much for following: only its answer is."""
    exec("made = lambda x: x.reshape(-1) + 1", space := {})
    return space["made"], len(specs)


def planned(x):
    function, count = plan((Spec(tuple(x.shape), Names(a=1)), Spec((1,), Names())), ENGINE)
    return function(x) * count


def test_answers_of_caches():
    """Keys that the frame makes are made for real to ask the cache."""
    plan.cache_clear()
    assert not run(planned, torch.randn(4, 3))
    assert plan.cache_info().misses == 1
