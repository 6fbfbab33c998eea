"""What nobody asked the class about, until it said something: methods that come to be where Python would look first."""

from __future__ import annotations

import abc
import copy
import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from mutating import Mutation, changing, mutation


def adding(name: str, value: Any, use: Callable[[Any], Any], base: type = object, *given: Any, **own: Any) -> Mutation:
    """A method comes to a class of which an instance is used."""
    kind = type("Kind", (base,), own)
    box = kind(*given)
    return changing(lambda x: x * use(box), lambda: setattr(kind, name, value))


@mutation
def reflected_operator_of_a_subclass_added() -> Mutation:
    """That of a subclass goes first."""
    below = type("Below", (), {"__add__": lambda self, other: 1})
    kind = type("Kind", (below,), {})
    one, other = below(), kind()
    return changing(lambda x: x * (one + other), lambda: setattr(kind, "__radd__", lambda self, other: 2))


@mutation
def text_of_an_object_added() -> Mutation:
    return adding("__str__", lambda self: "five", lambda box: len(f"{box}"), __repr__=lambda self: "no")


@mutation
def format_of_an_object_added() -> Mutation:
    return adding("__format__", lambda self, how: "five", lambda box: len(f"{box}"), __repr__=lambda self: "no")


@mutation
def iteration_of_a_list_added() -> Mutation:
    return adding("__iter__", lambda self: iter([5]), lambda box: 1 + sum(box), list)


@mutation
def iteration_of_a_tuple_added() -> Mutation:
    return adding("__iter__", lambda self: iter((5, 6)), lambda box: max(*box), tuple, (2, 3))


@mutation
def iteration_of_a_sequence_added() -> Mutation:
    """Before, it went by `__getitem__`."""
    return adding("__iter__", lambda self: iter([5]), lambda box: sum(box), __getitem__=lambda self, at: [1, 2][at])


@mutation
def keywords_of_a_dict_added() -> Mutation:
    return adding("__len__", lambda self: 5, lambda box: 1 + len(box), dict)


@mutation
def copying_added() -> Mutation:
    def made(self: Any, how: int) -> Any:
        return list, ([1, 2],)

    return adding("__reduce_ex__", made, lambda box: len(copy.copy(box)), k=2, __len__=lambda self: self.k + 1)


@mutation
def metaclass_that_answers_for_instances_added() -> Mutation:
    meta = type("Meta", (type,), {})
    kind = meta("Kind", (), {})
    return changing(
        lambda x: x * (2 if isinstance(5, kind) else 3),
        lambda: setattr(meta, "__instancecheck__", lambda cls, obj: True),
    )


@mutation
def constructor_added_after_it_was_missed() -> Mutation:
    kind = type("Kind", (), {})

    def fn(x: torch.Tensor) -> Any:
        try:
            kind(1)  # type: ignore[call-arg]
        except TypeError:
            return x + 1
        return x * 2

    return changing(fn, lambda: setattr(kind, "__init__", lambda self, v: None))


def made_or_not(kind: type) -> Callable[[torch.Tensor], Any]:
    def fn(x: torch.Tensor) -> Any:
        try:
            kind()
        except TypeError:
            return x + 1
        return x * 2

    return fn


@mutation
def class_becomes_abstract() -> Mutation:
    kind: Any = abc.ABCMeta("Kind", (), {})
    return changing(made_or_not(kind), lambda: setattr(kind, "__abstractmethods__", frozenset({"get"})))


@mutation
def class_is_abstract_no_more() -> Mutation:
    kind: Any = abc.ABCMeta("Kind", (), {"get": abc.abstractmethod(lambda self: None)})
    return changing(made_or_not(kind), lambda: setattr(kind, "__abstractmethods__", frozenset()))


@mutation
def annotation_added() -> Mutation:
    class Kind:
        k: int = 1

    return changing(lambda x: x * len(Kind.__annotations__), lambda: Kind.__annotations__.update(j=str))


@mutation
def property_of_modules_added() -> Mutation:
    kind = type("Kind", (types.ModuleType,), {})
    module = kind("anywhere")
    module.k = 2
    return changing(lambda x: x * module.k, lambda: setattr(kind, "k", property(lambda self: 9)))


@mutation
def dictionary_of_a_module() -> Mutation:
    module = types.ModuleType("elsewhere")
    module.k = 2  # type: ignore[attr-defined]
    sys.modules["elsewhere"] = module
    return changing(lambda x: x * vars(module)["k"], lambda: setattr(module, "k", 3))


@mutation
def slot_under_another_name() -> Mutation:
    class Kind:
        __slots__ = ("j", "k")

    box = Kind()
    box.j, box.k = 2, 3
    return changing(lambda x: x * box.k, lambda: setattr(Kind, "k", vars(Kind)["j"]))


@mutation
def function_registered_for_a_class() -> Mutation:
    """What singledispatch remembers is forgotten; the new reference to the class is not the old one."""

    @functools.singledispatch
    def scale(box: Any, x: torch.Tensor) -> Any:
        return x + 1

    class Kind:
        pass

    box = Kind()
    return changing(lambda x: scale(box, x), lambda: scale.register(Kind)(lambda box, x: x * 3))


@mutation
def bases_with_a_slot() -> Mutation:
    class Below:
        def get(self, x: torch.Tensor) -> Any:
            return x + 1

    class Other:
        def get(self, x: torch.Tensor) -> Any:
            return x * 2

    class Kind(Below):
        def get(self, x: torch.Tensor) -> Any:
            return super().get(x) * 3

    box = Kind()
    return changing(lambda x: box.get(x), lambda: setattr(Kind, "__bases__", (Other,)))
