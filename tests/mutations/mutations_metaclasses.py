"""What classes say of themselves by their metaclass, and of their instances."""

from __future__ import annotations

import abc
import collections.abc
import typing
from typing import Any

from mutating import Mutation, changing, mutation


@mutation
def meta_getitem() -> Mutation:

    class Me(type):
        def __getitem__(c, k):
            return 2.0

    class C(metaclass=Me):
        pass

    return changing(lambda x: x * C[0], lambda: setattr(Me, "__getitem__", lambda c, k: 5.0))


@mutation
def meta_getitem_code() -> Mutation:

    class Me(type):
        def __getitem__(c, k):
            return 2.0

    class C(metaclass=Me):
        pass

    def o(c, k):
        return 5.0

    return changing(lambda x: x * C[0], lambda: setattr(Me.__getitem__, "__code__", o.__code__))


@mutation
def meta_getitem_default() -> Mutation:

    class Me(type):
        def __getitem__(c, k, z=2.0):
            return z

    class C(metaclass=Me):
        pass

    return changing(lambda x: x * C[0], lambda: setattr(Me.__getitem__, "__defaults__", (5.0,)))


@mutation
def class_getitem() -> Mutation:

    class C:
        def __class_getitem__(c, k):
            return 2.0

    return changing(lambda x: x * C[0], lambda: setattr(C, "__class_getitem__", classmethod(lambda c, k: 5.0)))


@mutation
def class_getitem_code() -> Mutation:

    class C:
        def __class_getitem__(c, k):
            return 2.0

    def o(c, k):
        return 5.0

    return changing(lambda x: x * C[0], lambda: setattr(C.__class_getitem__.__func__, "__code__", o.__code__))


def iterated_by_an_object(name: str, product: Any) -> Mutation:
    class Iterating:
        """What makes iterators, and is no function."""

        numbers = [2.0, 3.0]

        def __call__(self, *cls: Any) -> Any:
            return iter(self.numbers)

    cls = type("Meta", (type,), {name: Iterating()})("Made", (), {})
    return changing(lambda x: product(x, cls), lambda: Iterating.numbers.append(5.0))


@mutation
def items_of_a_class_by_an_object() -> Mutation:
    return iterated_by_an_object("__iter__", lambda x, cls: x * sum(cls))


@mutation
def items_of_a_class_from_the_end_by_an_object() -> Mutation:
    return iterated_by_an_object("__reversed__", lambda x, cls: x * sum(reversed(cls)))


@mutation
def meta_iter() -> Mutation:

    class Me(type):
        def __iter__(c):
            return iter([2.0])

    class C(metaclass=Me):
        pass

    def fn(x):
        for k in C:
            x = x * k
        return x

    return changing(fn, lambda: setattr(Me, "__iter__", lambda c: iter([5.0])))


@mutation
def meta_len() -> Mutation:

    class Me(type):
        def __len__(c):
            return 2

    class C(metaclass=Me):
        pass

    return changing(lambda x: x * len(C), lambda: setattr(Me, "__len__", lambda c: 5))


@mutation
def meta_bool() -> Mutation:

    class Me(type):
        pass

    class C(metaclass=Me):
        pass

    return changing(lambda x: x * 2 if C else x * 3, lambda: setattr(Me, "__bool__", lambda c: False))


@mutation
def meta_contains() -> Mutation:

    class Me(type):
        def __contains__(c, k):
            return True

    class C(metaclass=Me):
        pass

    return changing(lambda x: x * (2 if 3 in C else 5), lambda: setattr(Me, "__contains__", lambda c, k: False))


@mutation
def meta_add() -> Mutation:

    class Me(type):
        def __add__(c, k):
            return 2.0

    class C(metaclass=Me):
        pass

    return changing(lambda x: x * (C + 1), lambda: setattr(Me, "__add__", lambda c, k: 5.0))


@mutation
def meta_eq() -> Mutation:

    class Me(type):
        pass

    class C(metaclass=Me):
        pass

    class D(metaclass=Me):
        pass

    return changing(lambda x: x * (2 if C == D else 3), lambda: setattr(Me, "__eq__", lambda c, k: True))


@mutation
def meta_hash() -> Mutation:

    class Me(type):
        pass

    class C(metaclass=Me):
        pass

    return changing(lambda x: (x * 2, hash(C) == 5), lambda: setattr(Me, "__hash__", lambda c: 5))


@mutation
def meta_str() -> Mutation:

    class Me(type):
        pass

    class C(metaclass=Me):
        pass

    return changing(lambda x: (x * 2, str(C) == "z"), lambda: setattr(Me, "__str__", lambda c: "z"))


@mutation
def meta_method() -> Mutation:

    class Me(type):
        def m(c):
            return 2.0

    class C(metaclass=Me):
        pass

    return changing(lambda x: x * C.m(), lambda: setattr(Me, "m", lambda c: 5.0))


@mutation
def meta_method_shadowed() -> Mutation:

    class Me(type):
        def m(c):
            return 2.0

    class C(metaclass=Me):
        pass

    return changing(lambda x: x * C.m(), lambda: setattr(C, "m", staticmethod(lambda: 5.0)))


@mutation
def meta_getattr() -> Mutation:

    class Me(type):
        def __getattr__(c, n):
            return 2.0

    class C(metaclass=Me):
        pass

    return changing(lambda x: x * C.m, lambda: setattr(Me, "__getattr__", lambda c, n: 5.0))


@mutation
def meta_getattr_shadow() -> Mutation:

    class Me(type):
        def __getattr__(c, n):
            return 2.0

    class C(metaclass=Me):
        pass

    return changing(lambda x: x * C.m, lambda: setattr(C, "m", 5.0))


@mutation
def meta_getattribute_added() -> Mutation:

    class Me(type):
        pass

    class C(metaclass=Me):
        m = 2.0

    return changing(lambda x: x * C.m, lambda: setattr(Me, "__getattribute__", lambda c, n: 5.0))


@mutation
def meta_subclasscheck() -> Mutation:

    class Me(type):
        def __subclasscheck__(c, o):
            return True

    class C(metaclass=Me):
        pass

    return changing(
        lambda x: x * (2 if issubclass(int, C) else 3), lambda: setattr(Me, "__subclasscheck__", lambda c, n: False)
    )


@mutation
def meta_instancecheck_added() -> Mutation:

    class Me(type):
        pass

    class C(metaclass=Me):
        pass

    class D:
        pass

    d = D()

    def fn(x):
        return x * (2 if isinstance(d, C) else 3)

    return changing(fn, lambda: setattr(Me, "__instancecheck__", lambda *a: True))


@mutation
def meta_class_swapped() -> Mutation:

    class Me(type):
        k = 2.0

    class Mf(type):
        k = 3.0

    class C(metaclass=Me):
        pass

    return changing(lambda x: x * C.k, lambda: setattr(C, "__class__", Mf))


@mutation
def protocol_runtime() -> Mutation:

    @typing.runtime_checkable
    class P(typing.Protocol):
        def go(self): ...

    class D:
        pass

    d = D()
    return changing(lambda x: x * (2 if isinstance(d, P) else 3), lambda: setattr(d, "go", lambda: 1))


@mutation
def protocol_runtime_class() -> Mutation:

    @typing.runtime_checkable
    class P(typing.Protocol):
        def go(self): ...

    class D:
        pass

    d = D()
    return changing(lambda x: x * (2 if isinstance(d, P) else 3), lambda: setattr(D, "go", lambda s: 1))


def sequence_class(fn: typing.Any, change: typing.Any) -> Mutation:
    """Make a class that is a sequence, by its metaclass, of the numbers in a list."""
    numbers = [2.0, 3.0]

    class Meta(type):
        def __len__(cls) -> int:
            return len(numbers)

        def __getitem__(cls, at: int) -> float:
            return numbers[at]

    class C(metaclass=Meta):
        pass

    return changing(lambda x: fn(x, C), lambda: change(Meta, numbers))


def product(x: typing.Any, factors: typing.Any) -> typing.Any:
    for factor in factors:
        x = x * factor + 1
    return x


@mutation
def items_of_a_class_by_position() -> Mutation:
    return sequence_class(product, lambda meta, numbers: numbers.append(5.0))


@mutation
def items_of_a_class_from_the_end() -> Mutation:
    return sequence_class(lambda x, cls: product(x, reversed(cls)), lambda meta, numbers: numbers.append(5.0))


@mutation
def length_of_a_class_read_from_the_end() -> Mutation:
    return sequence_class(
        lambda x, cls: product(x, reversed(cls)), lambda meta, numbers: setattr(meta, "__len__", lambda cls: 1)
    )


@mutation
def items_of_a_class_from_the_end_by_a_method() -> Mutation:
    return sequence_class(
        lambda x, cls: product(x, reversed(cls)),
        lambda meta, numbers: setattr(meta, "__reversed__", lambda cls: iter([7.0])),
    )


def forgetting(forget: str, hook: Any = None) -> Mutation:
    """An abstract class is asked about a class that is registered, or by a hook, and forgets its answers."""
    abstract: Any = abc.ABCMeta("Abstract", (), {} if hook is None else {"__subclasshook__": classmethod(hook)})

    class Some:
        pass

    some = Some()
    if hook is None:
        abstract.register(Some)
    return changing(lambda x: x * (2 if isinstance(some, abstract) else 3), getattr(abstract, forget))


@mutation
def abstract_class_forgets_who_is_registered() -> Mutation:
    return forgetting("_abc_registry_clear")


@mutation
def abstract_class_forgets_what_its_hook_said() -> Mutation:
    asked: list[Any] = []

    def hook(cls: Any, other: Any) -> bool:
        asked.append(other)
        return len(asked) == 1

    return forgetting("_abc_caches_clear", hook)


@mutation
def abstract_class_forgets_what_its_hook_denied() -> Mutation:
    asked: list[Any] = []

    def hook(cls: Any, other: Any) -> bool:
        asked.append(other)
        return len(asked) > 1

    return forgetting("_abc_caches_clear", hook)


def matching(name: str) -> Mutation:
    """A class that an abstract class of collections counts as its own from then on, as patterns do."""

    class Pair:
        def __len__(self) -> int:
            return 2

        def __getitem__(self, at: int) -> int:
            return 5

        def get(self, key: str, default: Any = None) -> int:
            return 7

    class Below(Pair):
        pass

    pair = Below()

    def program(x: Any) -> Any:
        match pair:
            case [first, second]:
                return x * first - second
            case {"key": value}:
                return x * value
            case _:
                return x * 3

    return changing(program, lambda: getattr(collections.abc, name).register(Pair))


@mutation
def class_that_patterns_take_for_a_sequence() -> Mutation:
    return matching("Sequence")


@mutation
def class_that_patterns_take_for_a_mapping() -> Mutation:
    return matching("MutableMapping")
