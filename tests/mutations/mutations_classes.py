"""Classes that change under a program: protocols gained and lost, `super()`, context managers, containers of them."""

from __future__ import annotations

import functools
import weakref
from collections import defaultdict, deque
from contextlib import ExitStack
from typing import Any

import torch
from mutating import Mutation, Row, changing, mutation, one, setting_code, x
from torch import nn


def gaining(name: str, method: Any, fn: Any, base: type = object, **had: Any) -> Row:
    """A row: an instance's class is given a method, or another one, while the program holds the instance."""

    def made() -> Mutation:
        cls = type("Gaining", (base,), dict(had))
        return Mutation(fn, lambda: (x(), cls()), lambda stack: setattr(cls, name, method))

    made.__name__ = f"class_gets{name.rstrip('_')}"
    return mutation(made)


def if_true(x: torch.Tensor, obj: Any) -> torch.Tensor:
    return x + 1 if obj else x - 1


def walked(x: torch.Tensor, obj: Any) -> torch.Tensor:
    for number in obj:
        x = x * number
    return x


def called(x: torch.Tensor, obj: Any) -> torch.Tensor:
    return obj(x)


def entered(x: torch.Tensor, obj: Any) -> torch.Tensor:
    with obj as scale:
        return x * scale


gaining("__call__", lambda self, x: x * 5, called, __call__=lambda self, x: x * 2)
gaining("__iter__", lambda self: iter([4.0]), walked, __iter__=lambda self: iter([2.0, 3.0]))
gaining("__enter__", lambda self: 4.0, entered, __enter__=lambda self: 2.0, __exit__=lambda self, *exc: None)
gaining("__contains__", lambda self, item: True, lambda x, obj: x + (1 in obj), __contains__=lambda self, item: False)
gaining("__getitem__", lambda self, item: 7.0, lambda x, obj: x * obj[0], __getitem__=lambda self, item: 2.0)
gaining(
    "__missing__",
    lambda self, key: 7.0,
    lambda x, obj: x * (obj["a"] if callable(getattr(obj, "__missing__", 0)) else 1.0),
    dict,
)
gaining("__neg__", lambda self: 7.0, lambda x, obj: x * -obj, __neg__=lambda self: 2.0)
gaining("__radd__", lambda self, other: other * 7, lambda x, obj: 2.0 + obj + x, __radd__=lambda self, other: other * 3)
gaining("__index__", lambda self: 1, lambda x, obj: x * [2.0, 3.0][obj], __index__=lambda self: 0)
gaining("__float__", lambda self: 1.0, lambda x, obj: x * float(obj), __float__=lambda self: 4.0)
gaining("__str__", lambda self: "other", lambda x, obj: (x * 2, str(obj)), __str__=lambda self: "one")
gaining("__format__", lambda self, spec: "other", lambda x, obj: (x * 2, f"{obj}"), __format__=lambda self, spec: "one")
gaining("__len__", lambda self: 3, lambda x, obj: x * len(obj), list)
gaining(
    "__lt__", lambda self, other: False, lambda x, obj: x * 2 if obj < 3 else x * 3, __lt__=lambda self, other: True
)
gaining(
    "__reversed__",
    lambda self: iter([5.0]),
    lambda x, obj: walked(x, reversed(obj)),
    __reversed__=lambda self: iter([2.0]),
)
gaining("__next__", lambda self: 5.0, lambda x, obj: x * next(obj), __next__=lambda self: 2.0)
gaining("__hash__", lambda self: 5, lambda x, obj: (x * 2, hash(obj)), __hash__=lambda self: 2)
gaining(
    "__setattr__", lambda self, name, value: None, lambda x, obj: (setattr(obj, "a", 2.0), x * getattr(obj, "a", 1.0))
)


class Base:
    def scale(self) -> float:
        return 2.0


class Middle(Base):
    pass


class Leaf(Middle):
    def scale(self) -> float:
        return super().scale() * 2


@mutation
def super_finds_a_class_in_between() -> Mutation:
    leaf = Leaf()

    def change(stack: ExitStack) -> None:
        Middle.scale = lambda self: 5.0  # type: ignore[method-assign]
        stack.callback(lambda: delattr(Middle, "scale"))

    return Mutation(lambda x: x * leaf.scale(), one, change)


@mutation
def super_finds_other_code() -> Mutation:
    def other(self: Any) -> float:
        return 9.0

    leaf = Leaf()
    return Mutation(lambda x: x * leaf.scale(), one, setting_code(Base.scale, other))


@mutation
def object_in_a_list_replaced() -> Mutation:
    held: list[Base] = [Base()]
    return Mutation(lambda x: x * held[0].scale(), one, lambda stack: held.__setitem__(0, Leaf()))


@mutation
def attribute_of_an_object_in_a_dict() -> Mutation:
    class Box:
        value = 1.0

    held = {"a": Box()}
    return Mutation(lambda x: x + held["a"].value, one, lambda stack: setattr(held["a"], "value", 3.0))


@mutation
def tensor_in_a_list_replaced() -> Mutation:
    held = [torch.ones(2)]
    return Mutation(lambda x: x + held[0], one, lambda stack: held.__setitem__(0, torch.zeros(2)))


@mutation
def tensor_in_a_list_of_another_size() -> Mutation:
    held = [torch.ones(2)]
    return Mutation(lambda x: x + held[0], one, lambda stack: held.__setitem__(0, torch.zeros(1)))


@mutation
def modules_in_a_plain_list() -> Mutation:
    held: list[nn.Module] = [nn.ReLU()]
    return Mutation(lambda x: held[0](x) * 2, one, lambda stack: held.__setitem__(0, nn.Softmax(-1)))


@mutation
def deque_rotated() -> Mutation:
    held = deque([2.0, 3.0])
    return Mutation(lambda x: x * held[0], one, lambda stack: held.rotate())


@mutation
def default_factory_replaced() -> Mutation:
    held: defaultdict[str, float] = defaultdict(lambda: 2.0)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * held.pop("a") if "a" in held else x * held.default_factory()  # type: ignore[misc]

    return Mutation(fn, one, lambda stack: setattr(held, "default_factory", lambda: 5.0))


@mutation
def weak_reference_dies() -> Mutation:
    held = [Base()]
    weak = weakref.ref(held[0])
    return Mutation(lambda x: x + 1 if weak() is None else x * 2, one, lambda stack: held.clear())


@mutation
def keywords_of_a_partial() -> Mutation:
    partial = functools.partial(lambda x, scale: x * scale, scale=2.0)
    return Mutation(lambda x: partial(x), one, lambda stack: partial.keywords.__setitem__("scale", 3.0))


@mutation
def name_of_a_function() -> Mutation:
    def named(x: torch.Tensor) -> torch.Tensor:
        return x

    return Mutation(lambda x: x * len(named.__name__), one, lambda stack: setattr(named, "__name__", "much longer"))


@mutation
def function_of_the_same_code_in_another_module() -> Mutation:
    import types

    spaces = [{"SCALE": 2.0, "__builtins__": __builtins__}, {"SCALE": 3.0, "__builtins__": __builtins__}]
    exec("def scaled(x): return x * SCALE", spaces[0])
    held = [spaces[0]["scaled"]]
    other = types.FunctionType(held[0].__code__, spaces[1])
    return Mutation(lambda x: held[0](x) + 1, one, lambda stack: held.__setitem__(0, other))


@mutation
def function_of_the_same_code_with_another_closure() -> Mutation:
    def make(scale: float) -> Any:
        return lambda x: x * scale

    held = [make(2.0)]
    return Mutation(lambda x: held[0](x), one, lambda stack: held.__setitem__(0, make(3.0)))


@mutation
def decorated_function_changes() -> Mutation:
    def twice(fn: Any) -> Any:
        @functools.wraps(fn)
        def wrapped(x: torch.Tensor) -> torch.Tensor:
            return fn(fn(x))

        return wrapped

    def add(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def other(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    decorated = twice(add)
    return Mutation(lambda x: decorated(x), one, setting_code(add, other))


@mutation
def class_that_is_made_changes() -> Mutation:
    class Made:
        def __init__(self) -> None:
            self.scale = 2.0

    def init(self: Any) -> None:
        self.scale = 3.0

    return Mutation(lambda x: x * Made().scale, one, lambda stack: setattr(Made, "__init__", init))


@mutation
def class_that_is_made_gets_new() -> Mutation:
    class Made:
        scale = 2.0

    def new(cls: Any) -> Any:
        made = object.__new__(cls)
        made.scale = 3.0
        return made

    return Mutation(lambda x: x * Made().scale, one, lambda stack: setattr(Made, "__new__", staticmethod(new)))


@mutation
def class_that_is_made_with_arguments_loses_new() -> Mutation:
    """C looks for a `__new__` also where one was deleted, and `object.__new__` then refuses arguments."""

    class Made:
        def __init__(self, scale: float) -> None:
            self.scale = scale

    def change() -> None:
        made: Any = Made
        made.__new__ = lambda cls, *args: object.__new__(cls)
        del made.__new__

    return changing(lambda x: x * Made(2.0).scale, change)


@mutation
def metaclass_gets_call() -> Mutation:
    class Meta(type):
        pass

    class Made(metaclass=Meta):
        scale = 2.0

    class Other:
        scale = 3.0

    return Mutation(lambda x: x * Made().scale, one, lambda stack: setattr(Meta, "__call__", lambda cls: Other()))


@mutation
def metaclass_gets_a_property() -> Mutation:
    class Meta(type):
        pass

    class Made(metaclass=Meta):
        scale = 2.0

    return Mutation(lambda x: x * Made.scale, one, lambda s: setattr(Meta, "scale", property(lambda cls: 3.0)))


@mutation
def bases_that_isinstance_rests_on() -> Mutation:
    class Low:
        pass

    class Kind:
        pass

    class Child(Low):
        pass

    child = Child()
    return Mutation(
        lambda x: x + 1 if isinstance(child, Kind) else x * 2, one, lambda stack: setattr(Child, "__bases__", (Kind,))
    )


def saying(name: str, value: Any, was: Any) -> Row:
    """A row: what a class says of itself, asked of the class and through an instance."""

    def made() -> Mutation:
        cls = type("Said", (), {"__doc__": "said", "__module__": __name__})
        thing = cls()

        def fn(x: Any) -> Any:
            return x * (2 if getattr(cls, name) == was else 3) + (getattr(type(thing), name) == was)

        return Mutation(fn, one, lambda stack: setattr(cls, name, value))

    made.__name__ = f"class_says{name.rstrip('_')}"
    return mutation(made)


saying("__name__", "Other", "Said")
saying("__qualname__", "Other", "Said")
saying("__module__", "other", __name__)
saying("__doc__", "other", "said")


@mutation
def bases_that_are_read() -> Mutation:
    class Low:
        pass

    class Kind:
        pass

    class Child(Low):
        pass

    class Grandchild(Child):
        pass

    def fn(x: Any) -> Any:
        return x * len(Child.__bases__[0].__name__) + len([base for base in Grandchild.__mro__ if base is Low])

    return Mutation(fn, one, lambda stack: setattr(Child, "__bases__", (Kind,)))


@mutation
def bases_of_an_exception() -> Mutation:
    class First(Exception):
        pass

    class Second(Exception):
        pass

    class Thrown(First):
        pass

    def fn(x: Any) -> Any:
        try:
            raise Thrown
        except First:
            return x * 2
        except Exception:
            return x * 3

    return Mutation(fn, one, lambda stack: setattr(Thrown, "__bases__", (Second,)))
