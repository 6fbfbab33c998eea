"""Keys that dicts take for one another, of other types: one comes, goes, or takes the other's place."""

from __future__ import annotations

import collections
import enum
import functools
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from mutating import Mutation, x


class Whole(enum.IntEnum):
    FOUR = 4


class Flags(enum.IntFlag):
    FOUR = 4


class Text(str, enum.Enum):
    A = "a"


class Named(str):
    """A string of a class of its own."""


class Lengths(tuple[int, ...]):
    """A tuple of a class of its own."""


Point = collections.namedtuple("Point", "x")


class Says:
    """Equal to what it says."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return bool(self.value == (other.value if isinstance(other, Says) else other))

    def __hash__(self) -> int:
        return hash(self.value)


class Alike:
    """Of the hash of a number, and equal to nothing else."""

    def __hash__(self) -> int:
        return 4


PAIRS: dict[str, tuple[Any, Any]] = {  # what the program asks for, and what the dict gets
    "a size for a tuple": ((4,), torch.Size([4])),
    "a tuple for a size": (torch.Size([4]), (4,)),
    "a named tuple for a tuple": ((4,), Point(4)),
    "a tuple's subclass for a tuple": ((4,), Lengths((4,))),
    "a size in a tuple": (((4,), 1), (torch.Size([4]), True)),
    "a number of NumPy's for an int": (4, np.int64(4)),
    "a number of NumPy's for a float": (4.0, np.float64(4)),
    "a number of NumPy's in a tuple": ((4,), (np.int32(4),)),
    "a bool for an int": (1, True),
    "an int for a bool": (True, 1),
    "a float for an int": (4, 4.0),
    "a complex for an int": (4, 4 + 0j),
    "a member for an int": (4, Whole.FOUR),
    "an int for a member": (Whole.FOUR, 4),
    "a flag for a member": (Whole.FOUR, Flags.FOUR),
    "a member for a string": ("a", Text.A),
    "a string for a member": (Text.A, "a"),
    "a string's subclass for a string": ("a", Named("a")),
    "a class with __eq__ for an int": (4, Says(4)),
    "a class with __eq__ for a string": ("a", Says("a")),
    "a class with __eq__ for None": (None, Says(None)),
    "a class with __eq__ for a member": (Text.A, Says("a")),
    "a class with __eq__ in a tuple": ((4, 4), (Says(4), 4)),
}
TWINS: dict[str, tuple[Any, Any]] = {  # of one hash, and not equal
    "another of the hash": (4, Alike()),
    "a class with __eq__ that says no": (
        4,
        type("No", (Says,), {"__eq__": lambda self, other: False, "__hash__": Says.__hash__})(4),
    ),
    "bytes for a string": ("a", b"a"),
}
DICTS: dict[str, Callable[[], Any]] = {
    "dict": dict,
    "OrderedDict": collections.OrderedDict,
    "defaultdict": lambda: collections.defaultdict(int),
    "a dict's subclass": type("Table", (dict,), {}),
}
WAYS: dict[str, Callable[[Any, Any], Callable[[torch.Tensor], torch.Tensor]]] = {
    "get": lambda box, key: lambda x: x * box.get(key, 2),
    "in": lambda box, key: lambda x: x * (3 if key in box else 2),
    "[]": lambda box, key: lambda x: x * (box[key] if len(box) else 2),
}


def step(box: Any, what: str, asked: Any, other: Any) -> None:
    """What there is in the dict: nothing, the key that is asked for, or another."""
    box.clear()
    if what:
        box[asked if what == "asked" else other] = 9.0 if what == "asked" else 7.0


def in_dict(make: Callable[[], Any], way: str, pair: tuple[Any, Any], before: str, after: str) -> Mutation:
    """What is in a dict that the program reads."""
    box = make()
    step(box, before, *pair)
    fn = WAYS[way](box, pair[0])
    told = fn(x())
    step(box, after, *pair)
    seen = not torch.equal(told, fn(x()))
    step(box, before, *pair)
    return Mutation(fn, lambda: (x(),), lambda stack: step(box, after, *pair), seen)


def in_set(make: Callable[[Any], Any], pair: tuple[Any, Any], before: str, after: str) -> Mutation:
    """A set in the place of another."""
    here = {"asked": make([pair[0]]), "other": make([pair[1]]), "": make([])}
    space = types.SimpleNamespace(box=here[before])

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * (3 if pair[0] in space.box else 2)

    seen = (pair[0] in here[before]) != (pair[0] in here[after])
    return Mutation(fn, lambda: (x(),), lambda stack: setattr(space, "box", here[after]), seen)


def held_by(kind: str, name: Any, back: bool) -> Mutation:
    """A name that is no plain string, in the dict of an object, a module or a function's globals."""
    owner: Any = types.ModuleType("here") if kind == "module" else Plain()
    own = {"fn": None, "torch": torch, "owner": owner} if kind == "globals" else vars(owner)
    text = "abs(x) - 5" if kind == "globals" else "x * getattr(owner, 'abs', 2)"
    exec(f"def fn(x):\n    return {text}", own if kind == "globals" else (space := {"owner": owner}))
    fn = (own if kind == "globals" else space)["fn"]

    def turn(there: bool) -> None:
        own.pop(name, None)
        if there:
            own[name] = (lambda x: x * 3) if kind == "globals" else 7.0

    turn(back)
    return Mutation(fn, lambda: (x(),), lambda stack: turn(not back))  # type: ignore[arg-type]


class Plain:
    """An object with a dict."""


def in_class(back: bool) -> Mutation:
    """A class whose body had a name that is no plain string."""
    classes = [type("Has", (), {Named("abs"): 7.0}), type("Has", (), {})]  # type: ignore[dict-item]
    space = types.SimpleNamespace(cls=classes[not back])

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * getattr(space.cls, "abs", 2)

    return Mutation(fn, lambda: (x(),), lambda stack: setattr(space, "cls", classes[back]))


def an_id_for_a_tensor(back: bool) -> Mutation:
    """A tensor's hash is its id, which is an int, and has itself for a hash."""
    box: dict[Any, float] = {}
    key = torch.ones(2)

    def fn(x: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return x * (3 if key in box else 2)

    def turn(there: bool) -> None:
        box.clear()
        if there:
            box[key] = 1.0

    turn(back)
    return Mutation(fn, lambda: (x(), key), lambda stack: turn(not back))


def eq_comes_later(way: str) -> Mutation:
    """A member of an enum has the hash of its name; its class is given an `__eq__` when the dict is as it was."""
    kind = enum.Enum("kind", ["a"])  # type: ignore[misc]
    box = {"a": 7.0}
    fn = WAYS[way](box, kind["a"])

    def change(stack: ExitStack) -> None:
        kind.__eq__ = lambda self, other: other == "a"  # type: ignore[method-assign,assignment]
        kind.__hash__ = lambda self: hash("a")  # type: ignore[method-assign,assignment]

    return Mutation(fn, lambda: (x(),), change)


NANS = (float("nan"), float("nan"))


def nan(way: str, again: bool) -> Mutation:
    """NaN is found by identity: another one is another key."""
    space = types.SimpleNamespace(
        key=NANS[0], table={NANS[0]: 1}, set={NANS[0]}, frozenset=frozenset(NANS[:1]), list=[NANS[0]]
    )

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * (3 if space.key in getattr(space, way) else 2)

    def change(stack: ExitStack) -> None:
        if again:
            space.key = NANS[1]
        else:
            setattr(space, way, {NANS[1]: 1} if way == "table" else type(getattr(space, way))(NANS[1:]))

    return Mutation(fn, lambda: (x(),), change)


def named(row: Callable[..., Mutation], name: str, *args: Any) -> Callable[[], Mutation]:
    made = functools.partial(row, *args)
    functools.update_wrapper(made, row)
    made.__name__ = name  # type: ignore[attr-defined]
    return made


TURNS = (("", "other"), ("other", ""), ("asked", "other"), ("other", "asked"))


def rows() -> Iterator[Callable[[], Mutation]]:
    for text, pair in {**PAIRS, **TWINS}.items():
        for before, after in TURNS:
            turn = f"{before or 'nothing'} to {after or 'nothing'}"
            for way in ("get", "in"):
                yield named(in_dict, f"{text}: dict, {way}, {turn}", dict, way, pair, before, after)
    for box, make in DICTS.items():
        for text in ("a size for a tuple", "a member for a string", "a class with __eq__ for an int"):
            yield named(in_dict, f"{text}: {box}", make, "get", PAIRS[text], "", "other")
            yield named(in_dict, f"{text}: {box}, replaced", make, "[]", PAIRS[text], "asked", "other")
    for text, pair in PAIRS.items():
        for make in (set, frozenset):
            yield named(in_set, f"{text}: {make.__name__}, comes", make, pair, "", "other")
            yield named(in_set, f"{text}: {make.__name__}, replaced", make, pair, "asked", "other")
    for kind in ("object", "module", "globals"):
        for name in (
            Named("abs"),
            enum.Enum("E", {"A": "abs"}, type=str).A,
            *([Says("abs")] if kind == "object" else ()),
        ):  # type: ignore[attr-defined]
            for back in (False, True):
                yield named(held_by, f"{type(name).__name__}: {kind}, {'goes' if back else 'comes'}", kind, name, back)
    for back in (False, True):
        yield named(in_class, f"in a class: {back}", back)
        yield named(an_id_for_a_tensor, f"an id for a tensor: {back}", back)
        for way in ("table", "set", "frozenset", "list"):
            yield named(nan, f"nan, {way}: {back}", way, back)
    for way in ("get", "in"):
        yield named(eq_comes_later, f"an __eq__ comes later: {way}", way)


KEYS: list[Callable[[], Mutation]] = list(rows())
