"""Guards keep nothing alive, and checking them leaves every count as it was."""

from __future__ import annotations

import gc
import resource
import sys
import weakref
from typing import Any

import torch
from guarding import Guarded, X

from torchdynamo.core.source import Guard, Source, instance_attr, local


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)
        self.act = self.activate  # reaches itself
        self.names = ["a", 1]

    def activate(self, x: torch.Tensor) -> torch.Tensor:
        return x


def method(self: Any, x: Any) -> Any:
    """Whose frame is guarded."""


def guarded(model: Model, x: torch.Tensor) -> Guarded:
    self = local("self")
    modules = instance_attr(self, "_modules")
    fc = Source("key", modules, "fc")
    weights = Source("key", Source("dict", fc), "_parameters")
    weight, bias = Source("key", weights, "weight"), Source("key", weights, "bias")
    act = instance_attr(self, "act")
    guards = [
        Guard(Source("globals"), "GLOBAL_STATE"),
        Guard(self, "TYPE_MATCH", Model),
        Guard(Source("dict", self), "DICT_KEYS", tuple(model.__dict__)),
        Guard(modules, "LENGTH", 1),
        Guard(fc, "TYPE_MATCH", torch.nn.Linear),
        Guard(fc, "ID_MATCH", model.fc),
        Guard(weight, "TENSOR_MATCH"),
        Guard(bias, "TENSOR_MATCH"),
        Guard(weight, "DISTINCT", (weight, bias)),
        Guard(weight, "NO_OVERLAP", ((weight,), (bias,))),
        Guard(Source("attr", weight, "grad"), "EQUALS_MATCH", None),
        Guard(act, "TYPE_MATCH", type(model.act)),
        Guard(Source("attr", act, "__self__"), "SAME_OBJECT", self),
        Guard(Source("attr", act, "__func__"), "FUNCTION_MATCH", Model.activate),
        Guard(Source("item", instance_attr(self, "names"), 1), "EQUALS_MATCH", 1),
        Guard(Source("type", self), "CLASS_ATTR", ("activate", Model.activate)),
        Guard(local("x"), "TENSOR_MATCH"),
    ]
    return Guarded(guards, method, bound=[weight, bias, act], self=model, x=x)


def reachable(model: Model) -> list[Any]:
    return [
        model,
        model.fc,
        model.fc.weight,
        model.__dict__,
        model._modules,
        model.fc._parameters,
        model.act,
        model.names,
    ]


def test_checking_changes_no_count() -> None:
    model, x = Model(), torch.ones(4)
    asked = guarded(model, x)
    assert asked.fetch() == (model.fc.weight, model.fc.bias, model.act)
    objects = [*reachable(model), x, asked.program, Model, Model.activate, None]
    gc.collect()
    before = [sys.getrefcount(each) for each in objects]
    for _ in range(10_000):
        asked.fetch()
    roots = asked.roots
    asked.program.repeat(10_000, roots.locals, roots.globals, roots.builtins)
    gc.collect()
    after = [sys.getrefcount(each) for each in objects]
    assert [b - a for a, b in zip(before[:-1], after[:-1], strict=True)] == [0] * (len(objects) - 1)
    assert abs(after[-1] - before[-1]) < 100  # None has other friends


def test_checking_takes_no_memory() -> None:
    model, x = Model(), torch.ones(4)
    asked = guarded(model, x)
    roots = asked.roots
    other = {**roots.locals, "x": torch.ones(5)}
    for each in (roots.locals, other):
        asked.program.repeat(10_000, each, roots.globals, roots.builtins)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for each in (roots.locals, other):
        asked.program.repeat(200_000, each, roots.globals, roots.builtins)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2000  # kB


def test_a_model_dies_while_its_guards_live() -> None:
    model, x = Model(), torch.ones(4)
    asked = guarded(model, x)
    assert asked.holds()
    dead = [weakref.ref(each) for each in (model, model.fc, model.fc.weight, x)]
    guards, program = asked.guards, asked.program
    del asked, model, x
    gc.collect()
    assert [ref() for ref in dead] == [None] * 4
    asked = guarded(Model(), torch.ones(4))
    again = asked.roots
    assert not program.check(again.locals, again.globals, again.builtins)  # another model's layer
    assert "ID_MATCH" in {guard.kind for guard in guards}


def test_a_function_and_what_it_closes_over_die() -> None:
    def closed(tensor: torch.Tensor) -> Any:
        return lambda: tensor

    tensor = torch.ones(3)
    inner = closed(tensor)
    asked = Guarded([Guard(X, "FUNCTION_MATCH", inner)], x=inner)
    assert asked.holds()
    dead = weakref.ref(tensor)
    guards, program = asked.guards, asked.program
    del asked, inner, tensor
    gc.collect()
    assert dead() is None
    assert guards and program is not None


def test_an_id_used_again_is_another_object() -> None:
    for _ in range(100):
        thing = torch.nn.Identity()
        asked = Guarded([Guard(X, "ID_MATCH", thing)], x=thing)
        assert asked.holds()
        asked.roots = Guarded([]).roots
        del thing
        asked.roots = Guarded([], x=torch.nn.Identity()).roots
        assert not asked.holds()


def test_programs_are_freed() -> None:
    model, x = Model(), torch.ones(4)
    before = sys.getrefcount(Model), sys.getrefcount(method.__code__)
    for _ in range(100):
        assert guarded(model, x).native()
    gc.collect()
    assert (sys.getrefcount(Model), sys.getrefcount(method.__code__)) == before
