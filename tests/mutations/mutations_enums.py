"""Enumerations: values, attributes and methods of members, and what operators make of them."""

from __future__ import annotations

import bisect
import enum

from mutating import Mutation, changing, mutation, x


@mutation
def enum_value_changed() -> Mutation:

    class E(enum.Enum):
        A = 2.0

    return changing(lambda x: x * E.A.value, lambda: setattr(E.A, "_value_", 5.0))


@mutation
def enum_attr_changed() -> Mutation:

    class E(enum.Enum):
        A = 2.0

    E.A.k = 3.0
    return changing(lambda x: x * E.A.k, lambda: setattr(E.A, "k", 5.0))


@mutation
def enum_attr_list() -> Mutation:

    class E(enum.Enum):
        A = 2.0

    E.A.k = [3.0]
    return changing(lambda x: x * E.A.k[0], lambda: E.A.k.__setitem__(0, 5.0))


@mutation
def enum_method_patched() -> Mutation:

    class E(enum.Enum):
        A = 2.0

        def m(self):
            return 2.0

    return changing(lambda x: x * E.A.m(), lambda: setattr(E, "m", lambda self: 5.0))


@mutation
def enum_method_code() -> Mutation:

    class E(enum.Enum):
        A = 2.0

        def m(self):
            return 2.0

    def o(self):
        return 5.0

    return changing(lambda x: x * E.A.m(), lambda: setattr(E.m, "__code__", o.__code__))


@mutation
def enum_method_defaults() -> Mutation:

    class E(enum.Enum):
        A = 2.0

        def m(self, k=2.0):
            return k

    return changing(lambda x: x * E.A.m(), lambda: setattr(E.m, "__defaults__", (5.0,)))


@mutation
def enum_property_patched() -> Mutation:

    class E(enum.Enum):
        A = 2.0

        @property
        def m(self):
            return 2.0

    return changing(lambda x: x * E.A.m, lambda: setattr(E, "m", property(lambda self: 5.0)))


@mutation
def enum_bool() -> Mutation:

    class E(enum.Enum):
        A = 2.0

    return changing(lambda x: x * 2 if E.A else x * 3, lambda: setattr(E, "__bool__", lambda self: False))


@mutation
def enum_eq() -> Mutation:

    class E(enum.Enum):
        A = 2.0
        B = 3.0

    return changing(lambda x: x * 2 if E.A == E.B else x * 3, lambda: setattr(E, "__eq__", lambda self, o: True))


@mutation
def enum_str() -> Mutation:

    class E(enum.Enum):
        A = 2.0
        B = 3.0

    return changing(lambda x: (x * 2, str(E.A)), lambda: setattr(E, "__str__", lambda self: "zz"))


@mutation
def enum_name() -> Mutation:

    class E(enum.Enum):
        A = 2.0
        B = 3.0

    return changing(lambda x: x * len(E.A.name), lambda: setattr(E.A, "_name_", "zz"))


@mutation
def intenum_method() -> Mutation:

    class E(enum.IntEnum):
        A = 2
        B = 3

        def m(self):
            return 2

    return changing(lambda x: x * E.A.m(), lambda: setattr(E, "m", lambda self: 5.0))


@mutation
def intenum_add() -> Mutation:

    class E(enum.IntEnum):
        A = 2
        B = 3

    return changing(lambda x: x * (E.A + 1), lambda: setattr(E, "__add__", lambda self, o: 50))


@mutation
def flag_or() -> Mutation:

    class E(enum.Flag):
        A = 1
        B = 2

    return changing(lambda x: x * (E.A | E.B).value, lambda: setattr(E, "__or__", lambda self, o: self))


@mutation
def enum_mixin_arg() -> Mutation:

    class E(str, enum.Enum):
        A = "sum"
        B = "mean"

    g = [E.A]
    return changing(lambda x, e: getattr(x, e.value)(), lambda: g.__setitem__(0, E.B), lambda: (x(), g[0]))


@mutation
def enum_as_key() -> Mutation:

    class E(enum.Enum):
        A = 2.0
        B = 3.0

    d = {E.A: 2.0}
    return changing(
        lambda x: x * d.get(E.B, 3.0),
        lambda: [
            setattr(E, "__hash__", lambda self: 1),
            setattr(E, "__eq__", lambda self, o: True),
            d.clear(),
            d.update({E.A: 5.0}),
        ],
    )


@mutation
def enum_iteration() -> Mutation:

    class E(enum.Enum):
        A = 2.0
        B = 3.0

    def fn(x):
        for e in E:
            x = x * e.value
        return x

    return changing(fn, lambda: E._member_names_.append("A"))


@mutation
def enum_getitem_map() -> Mutation:

    class E(enum.Enum):
        A = 2.0
        B = 3.0

    return changing(lambda x: x * E["A"].value, lambda: E._member_map_.update(A=E.B))


@mutation
def enum_call_map() -> Mutation:

    class E(enum.Enum):
        A = 2.0
        B = 3.0

    return changing(
        lambda x: x * len(E(2.0).name + ("" if E(2.0) is E.A else "zz")),
        lambda: E._value2member_map_.update({2.0: E.B}),
    )


@mutation
def enum_len() -> Mutation:

    class E(enum.Enum):
        A = 2.0
        B = 3.0

    return changing(lambda x: x * len(E), lambda: E._member_names_.append("A"))


@mutation
def enum_name_without_a_member() -> Mutation:

    class E(enum.Enum):
        A = 2.0
        B = 3.0

    return changing(lambda x: x * sum(e.value for e in E), lambda: E._member_map_.pop("B"))


@mutation
def enum_name_without_a_member_reversed() -> Mutation:

    class E(enum.Enum):
        A = 2.0
        B = 3.0

    return changing(lambda x: x * list(reversed(E))[0].value, lambda: E._member_map_.pop("B"))


@mutation
def enum_reversed() -> Mutation:

    class E(enum.Enum):
        A = 2.0
        B = 3.0

    return changing(lambda x: x * next(reversed(E)).value, lambda: E._member_names_.reverse())


@mutation
def enum_eq_in_a_tuple() -> Mutation:

    class E(enum.Enum):
        A = 2.0
        B = 3.0

    return changing(lambda x: x * 2 if (E.A,) == (E.B,) else x * 3, lambda: setattr(E, "__eq__", lambda self, o: True))


@mutation
def enum_index() -> Mutation:

    class E(enum.Enum):
        A = 2.0

    def fn(x):
        try:
            return x * [5, 6, 7][E.A] * int(bin(E.A), 2)
        except TypeError as error:
            return x * len(str(error))

    return changing(fn, lambda: setattr(E, "__index__", lambda self: 2))


def counted() -> tuple[type[enum.Enum], list[int]]:
    """Return an enumeration whose members are compared, hashed and counted by what a list holds, and that list."""
    held = [1]

    class E(enum.Enum):
        A = 2.0
        B = 3.0

        def __eq__(self, other: object) -> bool:
            return held[0] == 1

        def __hash__(self) -> int:
            return held[0]

        def __lt__(self, other: object) -> bool:
            return held[0] == 1

        def __index__(self) -> int:
            return held[0]

    return E, held


def by_state(ask) -> None:
    """Make a row of what a program asks the members of an enumeration whose methods look at something that changes."""

    def row() -> Mutation:
        E, held = counted()
        box = {E.A: 1}, {E.A}, frozenset({E.A}), (E.A, 1)
        return changing(lambda x: (x * 2, ask(E, box)), lambda: held.__setitem__(0, 2))

    row.__name__ = f"enum_that_asks_{ask.__name__}"
    mutation(row)


@by_state
def in_a_tuple(E, box):
    return (E.A,) == (E.B,), box[3] == (E.B, 1), hash((E.A,))


@by_state
def in_order(E, box):
    return max((E.A, 1), (E.B, 1)), bisect.bisect([E.A], E.B)


@by_state
def as_a_number(E, box):
    return [5, 6, 7][E.A], "abc"[E.A], range(E.A), bin(E.A), "ab" * E.A, slice(E.A).indices(5)


@by_state
def as_a_key(E, box):
    return box[0].get(E.B), E.B in box[0], {E.A: 1}.get(E.B), len({E.A, E.B})


@by_state
def in_a_set(E, box):
    return E.B in box[1], E.B in box[2], box[1] == {E.B}, box[2] <= frozenset([E.B])
