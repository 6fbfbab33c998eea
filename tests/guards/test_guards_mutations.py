"""What can change under a guard between two calls: the guard notices, and what does not matter it forgives."""

from __future__ import annotations

import types
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from guarding import Guarded, X, frame_of_x

from torchdynamo.core.source import Guard, Pinned, Source, builtin, free, global_, instance_attr, local
from torchdynamo.core.value import ABSENT

SETTING = 1


def attr(name: str, base: Source = X) -> Source:
    return instance_attr(base, name)


def key(name: Any, base: Source = X) -> Source:
    return Source("key", base, name)


class Base:
    def __init__(self) -> None:
        self.n = 1
        self.child: Any = None

    def method(self) -> int:
        return 1


class Other(Base):
    pass


class Third(Base):
    def method(self) -> int:
        return 3


class Slots:
    __slots__ = ("a", "b")


def make(**attributes: Any) -> Any:
    """A fresh class with an instance, so that nothing leaks from test to test."""
    cls = type("Fresh", (Base,), {"flag": 1})
    obj = cls()
    obj.__dict__.update(attributes)
    return obj


# Each row: how to make x, its guards, a change that matters, a change that does not.
Row = tuple[Callable[[], Any], list[Guard], Callable[[Any], Any] | None, Callable[[Any], Any] | None]


def set_item(name: Any, value: Any) -> Callable[[Any], Any]:
    return lambda x: x.__setitem__(name, value)


def set_attr(name: str, value: Any) -> Callable[[Any], Any]:
    return lambda x: setattr(x, name, value)


def tensor(obj: Any) -> Any:
    return torch.ones(obj)


CELL = types.CellType


def function(a: int = 1, *, b: int = 2) -> int:
    return a + b


def copy_of_function() -> Any:
    made = types.FunctionType(function.__code__, globals(), "f", function.__defaults__)
    made.__kwdefaults__ = dict(function.__kwdefaults__ or {})
    return made


ROWS: dict[str, Row] = {
    "attribute": (make, [Guard(attr("n"), "EQUALS_MATCH", 1)], set_attr("n", 2), set_attr("m", 2)),
    "attribute, another type": (make, [Guard(attr("n"), "EQUALS_MATCH", 1)], set_attr("n", True), set_attr("n", 1)),
    "attribute deleted": (make, [Guard(attr("n"), "EQUALS_MATCH", 1)], lambda x: delattr(x, "n"), None),
    "attribute appears": (make, [Guard(Source("dict", X), "NO_KEY", "m")], set_attr("m", 1), set_attr("k", 1)),
    "whole dict replaced": (
        make, [Guard(attr("n"), "EQUALS_MATCH", 1)], set_attr("__dict__", {"n": 2}), set_attr("__dict__", {"n": 1})),
    "class reassigned": (make, [Guard(X, "TYPE_MATCH", None)], set_attr("__class__", Other), None),
    "class of a child reassigned": (
        lambda: make(child=make()), [Guard(attr("child"), "TYPE_MATCH", None)],
        lambda x: setattr(x.child, "__class__", Other), lambda x: setattr(x.child, "k", 1)),
    "child replaced": (
        lambda: make(child=make(n=5)), [Guard(attr("n", attr("child")), "EQUALS_MATCH", 5)],
        lambda x: setattr(x, "child", make(n=6)), lambda x: setattr(x, "child", make(n=5))),
    "child changed": (
        lambda: make(child=make(n=5)), [Guard(attr("n", attr("child")), "EQUALS_MATCH", 5)],
        lambda x: setattr(x.child, "n", 6), lambda x: setattr(x.child, "k", 6)),
    "class attribute patched": (
        make, [Guard(Source("type", X), "CLASS_ATTR", ("flag", 1))], lambda x: setattr(type(x), "flag", 2),
        lambda x: setattr(type(x), "other", 2)),
    "class attribute deleted": (
        make, [Guard(Source("type", X), "CLASS_ATTR", ("flag", 1))], lambda x: delattr(type(x), "flag"), None),
    "inherited method overridden": (
        make, [Guard(Source("type", X), "CLASS_ATTR", ("method", Base.method))],
        lambda x: setattr(type(x), "method", lambda self: 2), None),
    "class attribute appears": (
        make, [Guard(Source("type", X), "CLASS_ATTR", ("forward", ABSENT))],
        lambda x: setattr(type(x), "forward", 1), lambda x: setattr(x, "forward", 1)),
    "class attribute, step by step": (
        make, [Guard(Source("class_attr", Source("type", X), "flag"), "EQUALS_MATCH", 1)],
        lambda x: setattr(type(x), "flag", 2), lambda x: setattr(type(x), "flag", 1)),
    "bases replaced": (
        make, [Guard(Source("type", X), "CLASS_ATTR", ("method", Base.method))],
        lambda x: setattr(type(x), "__bases__", (Third,)),
        lambda x: setattr(type(x), "__bases__", (Other,))),
    "list grows": (lambda: [1], [Guard(X, "LENGTH", 1)], lambda x: x.append(1), set_item(0, 5)),
    "list item": (
        lambda: [1, 2], [Guard(Source("item", X, 1), "EQUALS_MATCH", 2)], set_item(1, 3), set_item(0, 3)),
    "list item from the end": (
        lambda: [1, 2], [Guard(Source("item", X, -1), "EQUALS_MATCH", 2)], lambda x: x.append(3), set_item(0, 3)),
    "list cleared": (lambda: [1], [Guard(Source("item", X, 0), "EQUALS_MATCH", 1)], lambda x: x.clear(), None),
    "deque rotates": (
        lambda: deque([1, 2, 3]), [Guard(Source("item", X, 1), "EQUALS_MATCH", 2)], lambda x: x.rotate(),
        lambda x: x.append(3)),
    "deque drops": (lambda: deque([1, 2], 2), [Guard(Source("item", X, 0), "EQUALS_MATCH", 1)], lambda x: x.append(3),
                    None),
    "dict value": (lambda: {"a": 1}, [Guard(key("a"), "EQUALS_MATCH", 1)], set_item("a", 2), set_item("b", 2)),
    "dict key of another type": (lambda: {1: 1}, [Guard(key(1), "EQUALS_MATCH", 1)], set_item(True, 2), set_item(2, 2)),
    "dict key gone": (lambda: {"a": 1}, [Guard(X, "HAS_KEY", "a")], lambda x: x.clear(), set_item("b", 1)),
    "dict keys, order": (
        lambda: {"a": 1, "b": 2}, [Guard(X, "DICT_KEYS", ("a", "b"))], lambda x: x.update(a=x.pop("a")),
        set_item("a", 7)),
    "ordered dict, order": (
        lambda: OrderedDict(a=1, b=2), [Guard(X, "DICT_KEYS", ("a", "b"))], lambda x: x.move_to_end("a"),
        lambda x: x.move_to_end("b")),
    "dict grows": (lambda: {"a": 1}, [Guard(X, "LENGTH", 1)], set_item("b", 1), set_item("a", 2)),
    "set": (lambda: {1, "a"}, [Guard(X, "SET_CONTENTS", (1, "a"))], lambda x: x.add(2), lambda x: x.add(1)),
    "set, one for another": (
        lambda: {1, "a"}, [Guard(X, "SET_CONTENTS", (1, "a"))], lambda x: (x.remove(1), x.add(True)), None),
    "cell": (lambda: CELL(1), [Guard(Source("contents", X), "EQUALS_MATCH", 1)], set_attr("cell_contents", 2), None),
    "cell emptied": (
        lambda: CELL(1), [Guard(Source("contents", X), "EQUALS_MATCH", 1)], lambda x: delattr(x, "cell_contents"),
        None),
    "cell filled": (CELL, [Guard(X, "UNBOUND")], set_attr("cell_contents", 2), None),
    "cell filled, by its contents": (
        CELL, [Guard(Source("contents", X), "UNBOUND")], set_attr("cell_contents", 2), None),
    "slot": (
        lambda: with_slot(1), [Guard(Source("attr", X, "a"), "EQUALS_MATCH", 1)], set_attr("a", 2), set_attr("b", 2)),
    "slot emptied": (
        lambda: with_slot(1), [Guard(Source("attr", X, "a"), "EQUALS_MATCH", 1)], lambda x: delattr(x, "a"), None),
    "slot filled": (Slots, [Guard(Source("attr", X, "a"), "UNBOUND")], set_attr("a", 2), set_attr("b", 2)),
    "function code": (
        copy_of_function, [Guard(X, "FUNCTION_MATCH", function)], set_attr("__code__", make.__code__),
        set_attr("__name__", "g")),
    "function defaults": (
        copy_of_function, [Guard(Source("item", Source("attr", X, "__defaults__"), 0), "EQUALS_MATCH", 1)],
        set_attr("__defaults__", (3,)), set_attr("__defaults__", (1,))),
    "function without defaults": (
        copy_of_function, [Guard(Source("item", Source("attr", X, "__defaults__"), 0), "EQUALS_MATCH", 1)],
        set_attr("__defaults__", None), None),
    "function keyword defaults": (
        copy_of_function, [Guard(key("b", Source("attr", X, "__kwdefaults__")), "EQUALS_MATCH", 2)],
        lambda x: x.__kwdefaults__.update(b=3), lambda x: x.__kwdefaults__.update(c=3)),
    "function attribute": (
        copy_of_function, [Guard(Source("dict", X), "NO_KEY", "mark")], set_attr("mark", 1), set_attr("other", 1)),
    "method of an instance": (
        make, [Guard(Source("dict", X), "NO_KEY", "method")], set_attr("method", len), None),
    "tensor resized": (lambda: torch.ones(2), [Guard(X, "TENSOR_MATCH")], lambda x: x.resize_(3), lambda x: x.add_(1)),
    "tensor strides": (
        lambda: torch.ones(2, 2), [Guard(X, "TENSOR_MATCH")], lambda x: x.t_().as_strided_((2, 2), (1, 2)), None),
    "tensor data": (
        lambda: torch.ones(2), [Guard(X, "TENSOR_MATCH")], lambda x: setattr(x, "data", torch.ones(3)),
        lambda x: setattr(x, "data", torch.zeros(2))),
    "tensor data, another dtype": (
        lambda: torch.ones(2), [Guard(X, "TENSOR_MATCH")], lambda x: setattr(x, "data", torch.ones(2).double()), None),
    "tensor requires grad": (lambda: torch.ones(2), [Guard(X, "TENSOR_MATCH")], lambda x: x.requires_grad_(), None),
    "tensor class": (
        lambda: torch.nn.Parameter(torch.ones(2)), [Guard(X, "TENSOR_MATCH")],
        set_attr("__class__", torch.nn.UninitializedParameter), None),
    "tensor grad": (
        lambda: torch.ones(2), [Guard(Source("attr", X, "grad"), "EQUALS_MATCH", None)],
        set_attr("grad", torch.ones(2)), set_attr("mark", 1)),
    "tensor hooks": (
        lambda: torch.ones(2, requires_grad=True), [Guard(Source("attr", X, "_backward_hooks"), "EQUALS_MATCH", None)],
        lambda x: x.register_hook(print), None),
    "parameter replaced": (
        lambda: torch.nn.Linear(2, 2), [Guard(key("weight", attr("_parameters")), "TENSOR_MATCH")],
        set_attr("weight", torch.nn.Parameter(torch.ones(3, 2))),
        set_attr("weight", torch.nn.Parameter(torch.ones(2, 2)))),
    "hook added": (
        lambda: torch.nn.Linear(2, 2), [Guard(attr("_forward_hooks"), "LENGTH", 0)],
        lambda x: x.register_forward_hook(print), lambda x: x.eval()),
    "submodule shadowed": (
        lambda: torch.nn.Sequential(torch.nn.ReLU()), [Guard(Source("dict", X), "NO_KEY", "0")],
        lambda x: x.__dict__.__setitem__("0", 1), None),
}  # fmt: skip


def with_slot(value: Any) -> Slots:
    made = Slots()
    made.a = value
    return made


def settled_for(guards: list[Guard], x: Any) -> list[Guard]:
    """A type left open is that of what the path leads to now."""
    asked = Guarded([], x=x)
    return [g._replace(arg=type(g.source.load(asked.roots))) if g.kind == "TYPE_MATCH" else g for g in guards]


@pytest.mark.parametrize("name", ROWS)
def test_a_change_that_matters_is_noticed(name: str) -> None:
    construct, guards, breaks, _ = ROWS[name]
    x = construct()
    asked = Guarded(settled_for(guards, x), x=x)
    assert asked.holds()
    if breaks is not None:
        breaks(x)
        assert not asked.holds()
        asked.roots = Guarded([], x=construct()).roots  # another of its kind, in the first state
        assert asked.holds() or name in OF_ITS_OWN


OF_ITS_OWN = {"class reassigned", "class of a child reassigned"}  # made anew, the class is another


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row[3] is not None])
def test_a_change_that_does_not_matter_is_forgiven(name: str) -> None:
    construct, guards, breaks, forgiven = ROWS[name]
    x = construct()
    asked = Guarded(settled_for(guards, x), x=x)
    assert asked.holds()
    assert forgiven is not None
    forgiven(x)
    assert asked.holds()
    if breaks is not None:
        breaks(x)
        assert not asked.holds()


def test_global_changed() -> None:
    asked = Guarded([Guard(global_("SETTING"), "EQUALS_MATCH", 1)], frame_here)
    try:
        assert asked.holds()
        globals()["SETTING"] = 2
        assert not asked.holds()
        globals()["SETTING"] = 1
        assert asked.holds()
    finally:
        globals()["SETTING"] = 1


def frame_here() -> None:
    """Its globals are this module's."""


def test_builtin_shadowed() -> None:
    guards = [Guard(Source("globals"), "NO_KEY", "len"), Guard(builtin("len"), "FUNCTION_MATCH", len)]
    asked = Guarded(guards, frame_here)
    assert asked.holds()
    try:
        globals()["len"] = print
        assert not asked.holds()
    finally:
        del globals()["len"]
    assert asked.holds()


def test_free_variable() -> None:
    factor = 2

    def scaled() -> int:
        return factor

    asked = Guarded([Guard(free("factor"), "EQUALS_MATCH", 2)], scaled)
    assert asked.holds()
    factor = 3
    assert not asked.holds()


def test_an_argument_that_is_gone() -> None:
    asked = Guarded([Guard(X, "EQUALS_MATCH", 1)], x=1)
    assert asked.holds()
    asked.roots = Guarded([], y=1).roots
    assert not asked.holds()
    assert Guarded([Guard(X, "UNBOUND")], y=1).holds()
    assert not Guarded([Guard(X, "UNBOUND")], x=1).holds()


def test_same_and_distinct() -> None:
    a, b = make(), make()
    same = Guarded([Guard(X, "SAME_OBJECT", local("y"))], x=a, y=a)
    distinct = Guarded([Guard(X, "DISTINCT", (X, local("y")))], x=a, y=b)
    assert same.holds() and distinct.holds()
    same.roots, distinct.roots = distinct.roots, same.roots
    assert not same.holds() and not distinct.holds()


def test_many_are_distinct() -> None:
    items = [object() for _ in range(300)]
    sources = tuple(Source("item", X, index) for index in range(300))
    asked = Guarded([Guard(X, "DISTINCT", sources)], x=items)
    assert asked.holds()
    items[299] = items[7]
    assert not asked.holds()


def test_shared_memory() -> None:
    whole = torch.ones(10)
    guard = Guard(X, "NO_OVERLAP", ((X,), (local("y"),)))
    asked = Guarded([guard], x=whole[:5], y=whole[5:])
    assert asked.holds()
    for x, y, apart in [
        (whole[:5], whole[4:], False),
        (whole[:5], whole[:5], False),
        (whole[:0], whole, True),
        (whole[5:], whole[:5], True),
        (whole, torch.ones(10), True),
        (torch.ones(3), torch.from_numpy(whole.numpy())[:3], True),
        (whole[:3], torch.from_numpy(whole.numpy())[2:], False),
        (whole, whole.view(torch.int32)[9:], False),
        (torch.ones(2, device="meta"), torch.ones(2, device="meta"), True),
    ]:
        asked.roots = Guarded([], x=x, y=y).roots
        assert asked.holds() is apart


def test_a_module_of_python() -> None:
    module = types.ModuleType("guarded_by_a_test")
    module.n = 1  # type: ignore[attr-defined]
    asked = Guarded([Guard(attr("n"), "EQUALS_MATCH", 1)], x=module)
    assert asked.holds()
    module.n = 2  # type: ignore[attr-defined]
    assert not asked.holds()


def test_an_attribute_written_again_and_again() -> None:
    """A counter beside what is guarded moves the witness on every call, and nothing comes of it."""
    x = make(count=0)
    asked = Guarded([Guard(attr("n"), "EQUALS_MATCH", 1)], x=x)
    for _ in range(100):
        x.count += 1
        assert asked.holds()
    x.n = 2
    assert not asked.holds()


def test_class_attributes_set_without_being_looked_up() -> None:
    """A class that was changed has no version until somebody asks it something."""
    cls = type("Fresh", (), {"a": 1})
    source = Source("pinned", None, Pinned(cls))
    asked = Guarded([Guard(source, "CLASS_ATTR", ("a", 1)), Guard(source, "CLASS_ATTR", ("b", ABSENT))])
    assert asked.holds()
    for value in (2, 3, 1):
        cls.a = value  # type: ignore[attr-defined]
        assert asked.native() is (value == 1)
    cls.b = 1  # type: ignore[attr-defined]
    assert not asked.native()
    del cls.b  # type: ignore[attr-defined]
    assert asked.native()


def test_instances_that_have_no_dict_yet() -> None:
    """Attributes of a plain object live in the object until somebody asks for its dict: the guard may."""
    for _ in range(50):
        x = Base()
        asked = Guarded([Guard(attr("n"), "EQUALS_MATCH", 1)], x=x)
        assert asked.native()
        x.n = 2
        assert not asked.native()


def test_globals_of_another_function() -> None:
    """A frame of another function with the same code has other globals."""
    asked = Guarded(
        [Guard(global_("setting"), "EQUALS_MATCH", 1)], types.FunctionType(frame_of_x.__code__, {"setting": 1})
    )
    assert asked.holds()
    asked.roots = asked.roots.__class__({}, {"setting": 2}, asked.roots.builtins, {})
    assert not asked.holds()
    asked.roots = asked.roots.__class__({}, {}, asked.roots.builtins, {})
    assert not asked.holds()


def test_what_an_object_is_the_key_of() -> None:
    """`state[param]`: found by identity, wherever the key is by now."""
    key, box = torch.ones(1), {"first": 0}
    box[key] = "value"  # type: ignore[index]
    source = Source("keyed", X, local("y"))
    program = Guarded([Guard(source, "EQUALS_MATCH", "value")], bound=[source], x=box, y=key)
    assert program.holds() and program.fetch() == ("value",)
    del box["first"]
    assert program.holds()
    program.roots.locals["y"] = torch.ones(1)
    assert not program.holds()
    box[program.roots.locals["y"]] = "value"
    assert program.holds()
    program.roots.locals["x"] = [key]
    assert not program.holds()
