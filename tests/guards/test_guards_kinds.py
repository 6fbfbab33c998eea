"""Every kind over a table of objects: the meaning in Python and the native check never disagree."""

from __future__ import annotations

import collections
import enum
import functools
import io
import math
import operator
from collections import OrderedDict, defaultdict, deque
from types import CellType
from typing import Any, NamedTuple

import numpy
import pytest
import torch
from guarding import Guarded, X, agree, frame_of_x, roots_of

from torchdynamo.core.source import Guard, Pinned, Source, local
from torchdynamo.core.value import ABSENT
from torchdynamo.guards.kinds import KINDS


class Colour(enum.Enum):
    RED = 1


class Whole(enum.IntEnum):
    ONE = 1


class Plain:
    shared = 3

    def method(self) -> int:
        return 1


class Child(Plain):
    pass


class Mortal:
    def __del__(self) -> None:
        pass


class Slotted:
    __slots__ = ("slot",)

    def __init__(self, *held: Any) -> None:
        for each in held:
            self.slot = each


class Str(str):
    __slots__ = ()


class Int(int):
    pass


class Pair(NamedTuple):
    a: int
    b: int


class LyingList(list):  # type: ignore[type-arg]
    """Says a length and an equality that are not so: nobody may ask it."""

    def __len__(self) -> int:
        raise AssertionError("asked")

    def __eq__(self, other: object) -> bool:
        raise AssertionError("asked")

    __hash__ = None  # type: ignore[assignment]


class LyingDict(dict):  # type: ignore[type-arg]
    def __contains__(self, key: object) -> bool:
        raise AssertionError("asked")

    def __iter__(self) -> Any:
        raise AssertionError("asked")

    def keys(self) -> Any:
        raise AssertionError("asked")

    def __len__(self) -> int:
        raise AssertionError("asked")


class LyingKey:
    """Hashes like the string it hides beside."""

    def __hash__(self) -> int:
        return hash("a")

    def __eq__(self, other: object) -> bool:
        raise AssertionError("asked")


def plain_function() -> int:
    return 1


def other_function() -> int:
    return 1


def copied_function() -> Any:
    return type(plain_function)(plain_function.__code__, {}, "copy")


def moved_to_end(*keys: str) -> OrderedDict[str, int]:
    made = OrderedDict.fromkeys(keys, 0)
    made.move_to_end(keys[0])
    return made


NAN = float("nan")
RED, PLAIN, KEY_OBJECT = Colour.RED, Plain(), Plain()
CONSTANTS: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**63, 2**100, -(2**100), 0.0, -0.0, 1.0, 1.5, math.inf, NAN, -NAN,
    float("nan"), 0j, complex(0.0, -0.0), complex(1, NAN), "", "a", "a" * 500, "ä", "b", b"", b"a", ..., NotImplemented,
    torch.float32, torch.float64, torch.strided, torch.sparse_coo, torch.contiguous_format, torch.channels_last,
    torch.device("cpu"), torch.device("cuda"), torch.device("cuda:0"), torch.device("meta"),
    (), (1,), (1.0,), (True,), (1, 2), (1, (2, NAN)), (1, (2, -0.0)), (1, (2, 0.0)), ("a", None, torch.float32),
    torch.Size([]), torch.Size([1]), torch.Size([1, 2]), slice(None), slice(1), slice(True), slice(1, 2, 3),
    range(0), range(1, 1), range(3), range(0, 3, 2), range(0, 4, 2), range(2**70),
    frozenset(), frozenset({1}), frozenset({True}), frozenset({1.0}), frozenset({1, 2}), frozenset({NAN}),
    frozenset({"a", (1, 2)}), (frozenset({1}), range(2), slice(3)),
]  # fmt: skip
OBJECTS: list[Any] = [
    *CONSTANTS, Str("a"), Int(1), Pair(1, 2), Colour.RED, Colour, Plain, Child, Plain(), Child(), PLAIN,
    [], [1], [1, 2], LyingList(), LyingList([1]), {}, {"a": 1}, {"b": 1}, {"a": 1, "b": 2}, {"b": 2, "a": 1},
    {1: "a"}, {True: "a"}, {1.0: "a"}, {KEY_OBJECT: 1}, {RED: 1}, {torch.float32: 1}, {(1, 2): 1}, {(1.0, 2): 1},
    {"a": 1, PLAIN: 2},
    {torch.Size([1, 2]): 1}, {Pair(1, 2): 1}, {(True, 2.0): 1}, {Whole.ONE: 1}, {"RED": 1}, {numpy.int64(1): 1},
    {1 + 0j: 1}, {(numpy.int64(1), 2): 1}, {b"a": 1}, {frozenset({1}): 1}, {frozenset({KEY_OBJECT}): 1},
    {torch.device("cpu"): 1},
    {LyingKey(): 0}, {LyingKey(): 0, "b": 1}, LyingDict(), LyingDict(a=1), LyingDict(a=1, b=2), {Str("a"): 1}, {NAN: 1},
    OrderedDict(a=1), OrderedDict(a=1, b=2), moved_to_end("a", "b"), moved_to_end("b", "a"), defaultdict(int, a=1),
    collections.Counter("aab"), set(), {1}, {True}, {1, 2}, {"a"}, {KEY_OBJECT}, {RED, 1}, {NAN}, {(1, 2)},
    {PLAIN}, frozenset({PLAIN, 1}),
    deque(), deque([1]), deque([1, 2], 2), bytearray(b"a"), memoryview(b"a"),
    plain_function, other_function, copied_function(), len, math.sin, operator.add, torch.add, torch.nn, torch,
    str.join, int.__add__, Plain.method, PLAIN.method, "a".join, functools.partial(len), property(), object(),
    torch.ones(2), torch.ones(2, dtype=torch.float64), torch.ones(3), torch.ones(2, 3), torch.ones(3, 2).t(),
    torch.ones(2, requires_grad=True), torch.nn.Parameter(torch.ones(2)), torch.ones(2, device="meta"), torch.ones(()),
    torch.ones(2, 2).to_sparse(), torch.ones(2, dtype=torch.complex64).conj(), torch.ones(4)[::2],
    torch.finfo(torch.half),
    {"a": Mortal()}, {Str("a"): Mortal()}, {LyingKey(): Mortal()}, LyingDict(a=Mortal()), {None: Mortal()},
    Slotted(), Slotted(1), Slotted(Mortal()), CellType(), CellType(1), CellType(Mortal()),
    {"b": io.FileIO(0, closefd=False)},
    torch.nn.Linear(2, 2), torch.ones(2)._is_view, operator.attrgetter("a"),
]  # fmt: skip
CLASSES: list[Any] = [
    type(None), bool, int, float, str, Str, Int, tuple, Pair, torch.Size, list, LyingList, dict, OrderedDict, LyingDict,
    set, frozenset, deque, Plain, Child, Colour, type, enum.EnumMeta, torch.Tensor, torch.nn.Parameter, torch.nn.Linear,
    type(len), type(plain_function), type(torch), torch.device, torch.dtype,
]  # fmt: skip
KEYS: list[Any] = [
    "a", "b", "c", "", 0, 1, True, 1.0, 2, None, (1, 2), (1.0, 2), NAN, RED, KEY_OBJECT, torch.float32, Whole.ONE,
    torch.Size([1, 2]), b"a", frozenset({True}), torch.device("cpu"), (KEY_OBJECT, 1),
]  # fmt: skip
ITEMS: list[Any] = [
    (), ("a",), ("b",), ("a", "b"), ("b", "a"), (1,), (True,), (1.0,), (1, 2), (2, 1), (KEY_OBJECT,), (RED,), (RED, 1),
    (torch.float32,), ((1, 2),), (NAN,), ("a", "c"), ("a", "b", "c"),
]  # fmt: skip
IDENTITIES: list[Any] = [
    Plain, Colour, RED, PLAIN, len, math.sin, torch.add, torch.nn, str.join, plain_function, torch.float32, None,
    Plain.method, torch.finfo(torch.half), OBJECTS[-1], next(each for each in OBJECTS if type(each) is torch.Tensor),
]  # fmt: skip
METAS: list[Any] = [KINDS["TENSOR_MATCH"].settle(Guard(X, "TENSOR_MATCH"), roots_of(frame_of_x, x=each)).arg
                    for each in OBJECTS if isinstance(each, torch.Tensor)]  # fmt: skip
METAS += [meta._replace(size=(None,) * len(meta.size), stride=None) for meta in METAS]
METAS += [meta._replace(size=None, stride=None) for meta in METAS]

NUMBERS = [Source("pinned", None, Pinned(number)) for number in (0, 1, 2, 300, -1)]
ARGUMENTS: dict[str, list[Any]] = {
    "TYPE_MATCH": CLASSES,
    "EQUALS_MATCH": CONSTANTS,
    "ID_MATCH": IDENTITIES,
    "FUNCTION_MATCH": [*IDENTITIES, other_function, copied_function()],
    "TENSOR_MATCH": METAS,
    "LENGTH": [0, 1, 2, 3],
    "DICT_KEYS": ITEMS,
    "HAS_KEY": KEYS,
    "NO_KEY": KEYS,
    "SET_CONTENTS": ITEMS,
    "NO_FINALIZER": ["a", "b", "slot", None],
    "CLASS_ATTR": [("shared", 3), ("shared", ABSENT), ("nothing", ABSENT), ("method", Plain.method), ("__len__", len),
                   ("__len__", ABSENT), ("__init__", object.__init__), ("RED", RED)],
    "SAME_OBJECT": [X, local("y"), Source("type", X)],
    "PLAIN_ITEMS": [None],
    "PLAIN_MAKER": [None],
    "COLLECTION": [0, 1 << 5, 1 << 6],
    "REMEMBERED": [KEY_OBJECT, RED],
    "KEYED": [X, local("y"), *NUMBERS],
    "NOT_KEYED": [X, local("y"), Source("type", X), *NUMBERS],
    "DISTINCT": [(X, local("y")), (X, X), (local("y"), Source("type", X))],
    "NO_OVERLAP": [((X,), (local("y"),)), ((X, local("y")), ()), ((X,), ()), ((X,), (X,)), ((), (X, X))],
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(ARGUMENTS))
def test_python_and_native_agree(kind: str) -> None:
    """All arguments of the kind against all objects; and some of either answer."""
    answers = set()
    for arg in ARGUMENTS[kind]:
        program = Guarded([Guard(X, kind, arg)], settled=False)
        for obj in OBJECTS:
            program.roots = roots_of(frame_of_x, x=obj, y=PLAIN)
            try:
                answers.add(program.holds())
            except AssertionError as error:
                raise AssertionError(f"{kind} {arg!r} on a {type(obj)}: {error}") from None
    assert answers == {True, False}


@pytest.mark.parametrize("kind", sorted(ARGUMENTS))
def test_below_a_dict_they_agree_too(kind: str) -> None:
    """The same for values of a dict, where what cannot change under a witness is asked only when it moved."""
    box: dict[str, Any] = {}
    source = Source("key", X, "value")
    for arg in ARGUMENTS[kind]:
        program = Guarded([Guard(source, kind, arg)], settled=False, x=box, y=PLAIN)
        for obj in OBJECTS:
            box["value"] = obj
            program.holds()


@pytest.mark.parametrize("kind", ["ID_MATCH", "FUNCTION_MATCH", "DICT_KEYS", "SET_CONTENTS", "CLASS_ATTR"])
def test_settled_facts_mean_the_same(kind: str) -> None:
    """Letting go of an object changes no answer while it lives."""
    for arg in ARGUMENTS[kind]:
        for obj in OBJECTS:
            roots = roots_of(frame_of_x, x=obj, y=PLAIN)
            guard = Guard(X, kind, arg)
            assert agree(KINDS[kind].settle(guard, roots), roots) is agree(guard, roots)


def test_every_kind_is_tried_somewhere() -> None:
    assert set(KINDS) - set(ARGUMENTS) == {"GLOBAL_STATE", "NUMBERS", "UNBOUND", "UNREGISTERED"}


def test_a_constant_equals_itself_and_no_other() -> None:
    """Of the table of constants, only the three same nans and what is spelt twice are one."""
    for i, a in enumerate(CONSTANTS):
        for j, b in enumerate(CONSTANTS):
            same = agree(Guard(X, "EQUALS_MATCH", a), roots_of(frame_of_x, x=b))
            expected = i == j or (type(a) is type(b) and repr(a) == repr(b) and "-nan" not in (repr(a), repr(b)))
            if a is CONSTANTS[16] or b is CONSTANTS[16]:  # nan with its sign set: other bits
                expected = i == j
            assert same is expected, (a, b)


@pytest.mark.parametrize("obj", [[1], Plain(), (1, []), Colour.RED, torch.ones(1)], ids=lambda obj: type(obj).__name__)
def test_what_is_no_constant_is_refused(obj: Any) -> None:
    with pytest.raises(TypeError, match="not a constant"):
        Guarded([Guard(X, "EQUALS_MATCH", obj)], x=obj)


def test_a_pinned_class_is_its_own_source() -> None:
    source = Source("pinned", None, Pinned(Plain))
    assert Guarded([Guard(source, "CLASS_ATTR", ("shared", 3))]).holds()


@pytest.mark.parametrize("cls", [dict, OrderedDict])
def test_items_by_their_position(cls: type) -> None:
    """Both readings find the same key and value, as the dict changes and its order does."""
    table = cls({7: "a", 8: "b", 9: "c"})
    found = [Source(how, X, at) for how in ("key_at", "value_at") for at in range(3)]
    program = Guarded([Guard(source, "EQUALS_MATCH", source.load(roots_of(frame_of_x, x=table))) for source in found],
                      x=table, y=PLAIN)  # fmt: skip
    assert [program.holds() for _ in range(4)] == [True] * 4
    table[8] = "d"
    assert not program.holds()
    table[8] = "b"
    assert program.holds()
    table[7] = table.pop(7)
    assert not program.holds()
    for key in (8, 9):
        table[key] = table.pop(key)
    assert program.holds()
    del table[9]
    assert not program.holds()
    table.clear()
    assert not program.holds()
    program.roots = roots_of(frame_of_x, x=[7, 8, 9], y=PLAIN)
    assert not program.holds()
    if cls is OrderedDict:
        table.update({7: "a", 8: "b", 9: "c"})
        program.roots = roots_of(frame_of_x, x=table, y=PLAIN)
        assert program.holds()
        table.move_to_end(7)
        assert not program.holds()
        table.move_to_end(7, last=False)
        assert program.holds()
