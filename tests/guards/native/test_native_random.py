"""Random object graphs, paths, facts and changes: the program says at every moment what reading the paths says."""

from __future__ import annotations

import builtins
import random
import types
from typing import Any

import pytest

from torchdynamo import _native

NAMES = "abc"


def frame(x: Any) -> None:
    """Whose argument is guarded."""


class Plain:
    pass


class Second(Plain):
    pass


class Slotted:
    __slots__ = tuple(NAMES)


def leaf(rng: random.Random) -> Any:
    return rng.choice([0, 1, True, 1.0, "a", None, (1, 2), 2**70])


def grow(rng: random.Random, depth: int) -> Any:
    """A random object, of objects, of ..."""
    if depth == 0 or rng.random() < 0.15:
        return leaf(rng)
    kind = rng.choice(["dict", "list", "tuple", "plain", "second", "slotted", "cell", "fresh"])
    if kind == "dict":
        return {name: grow(rng, depth - 1) for name in NAMES if rng.random() < 0.8}
    if kind in ("list", "tuple"):
        made = [grow(rng, depth - 1) for _ in range(rng.randrange(4))]
        return made if kind == "list" else tuple(made)
    if kind == "cell":
        return types.CellType(grow(rng, depth - 1)) if rng.random() < 0.9 else types.CellType()
    obj: Any = {
        "plain": Plain,
        "second": Second,
        "slotted": Slotted,
        "fresh": type("Fresh", (Plain,), {"a": leaf(rng)}),
    }[kind]()
    for name in NAMES:
        if rng.random() < 0.8:
            setattr(obj, name, grow(rng, depth - 1))
    return obj


def steps_from(obj: Any, rng: random.Random) -> list[tuple[str, Any, Any]]:
    """The steps that can be taken from an object: how, arg, where to."""
    found: list[tuple[str, Any, Any]] = [("type", None, type(obj))]
    if type(obj) is dict:
        found += [("key", name, value) for name, value in obj.items()]
    elif type(obj) in (list, tuple):
        found += [("item", index, value) for index, value in enumerate(obj)]
    elif type(obj) is types.CellType:
        found += [("contents", None, obj.cell_contents)] if full(obj) else []
    elif type(obj) is Slotted:
        found += [("attr", name, getattr(obj, name)) for name in NAMES if hasattr(obj, name)]
    elif isinstance(obj, Plain):
        found += [("dict", None, obj.__dict__)] * 3
    elif isinstance(obj, type):
        found += [("class_attr", name, getattr(obj, name)) for name in NAMES if hasattr(obj, name)]
    return found


def full(cell: types.CellType) -> bool:
    try:
        cell.cell_contents
    except ValueError:
        return False
    return True


MISSING = object()


def step(obj: Any, how: str, arg: Any) -> Any:
    """The step in Python; MISSING where it cannot be taken."""
    for also_how, also_arg, value in steps_from(obj, random.Random()):
        if also_how == how and also_arg == arg and type(also_arg) is type(arg):
            return value
    return MISSING


def facts_of(obj: Any, rng: random.Random) -> list[tuple[str, Any]]:
    """Native checks that are true of an object now."""
    if obj is MISSING:
        return []
    found: list[tuple[str, Any]] = [("type", type(obj))]
    if type(obj) in (int, bool, float, str, type(None)):
        found += [("equal", obj)] * 3
    if type(obj) in (list, tuple, dict, str):
        found += [("length", len(obj))]
    if type(obj) is dict:
        found += [("keys", tuple(("equal", key) for key in obj))]
        found += [("has_key" if name in obj else "no_key", ("equal", name)) for name in NAMES]
    if type(obj) is types.CellType and not full(obj):
        found += [("unbound_cell", None)]
    if type(obj) is Slotted:
        found += [("unbound_attr", name) for name in NAMES if not hasattr(obj, name)]
    if isinstance(obj, type):
        found += [("lookup_absent", (name,)) for name in NAMES if not hasattr(obj, name)]
        found += [("is", obj)]
    return found


def is_true(obj: Any, fact: tuple[str, Any]) -> bool:
    """The fact in Python."""
    check, arg = fact
    if obj is MISSING:
        return False
    if check == "type":
        return type(obj) is arg
    if check == "equal":
        return type(obj) is type(arg) and bool(obj == arg)
    if check == "is":
        return obj is arg
    return (check, arg) in facts_of(obj, random.Random())


class Path:
    """Nodes of a program, and the same walked in Python."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int, Any]] = [("local", -1, "x")]

    def add(self, parent: int, how: str, arg: Any) -> int:
        row = (how, parent, arg)
        if row not in self.rows:
            self.rows.append(row)
        return self.rows.index(row)

    def read(self, root: Any, node: int) -> Any:
        how, parent, arg = self.rows[node]
        if parent < 0:
            return root
        base = self.read(root, parent)
        return MISSING if base is MISSING else step(base, how, arg)


def choose(root: Any, rng: random.Random) -> tuple[Path, list[tuple[int, str, Any]]]:
    """Random paths into the graph, with facts that hold at their ends."""
    path, checks = Path(), []
    for _ in range(rng.randrange(1, 8)):
        node, obj = 0, root
        while rng.random() < 0.85:
            ways = steps_from(obj, rng)
            if not ways:
                break
            how, arg, obj = rng.choice(ways)
            node = path.add(node, how, arg)
        facts = facts_of(obj, rng)
        if facts:
            checks.append((node, *rng.choice(facts)))
    return path, checks


def mutate(root: Any, rng: random.Random) -> None:
    """One change somewhere in the graph."""
    obj = root
    while rng.random() < 0.75:
        inner = [value for _, _, value in steps_from(obj, rng)]
        if not inner:
            break
        obj = rng.choice(inner)
    name, value = rng.choice(NAMES), grow(rng, 2)
    if type(obj) is dict:
        rng.choice([lambda: obj.__setitem__(name, value), lambda: obj.pop(name, None), lambda: obj.__setitem__(9, 9)])()
    elif type(obj) is list:
        rng.choice([lambda: obj.append(value), lambda: obj.clear(), lambda: obj.reverse()])()
    elif type(obj) is types.CellType:
        obj.cell_contents = value
    elif isinstance(obj, (Plain, Slotted)):
        change = rng.randrange(5)
        if change == 0 and hasattr(obj, name) and name not in vars(type(obj)):
            delattr(obj, name)
        elif change == 1 and isinstance(obj, Plain):
            obj.__class__ = rng.choice([Plain, Second])
        elif change == 2 and isinstance(obj, Plain):
            obj.__dict__ = dict(obj.__dict__)
        else:
            setattr(obj, name, value)
    elif isinstance(obj, type) and obj.__module__ == __name__ and obj not in (Plain, Second, Slotted):
        setattr(obj, name, value)


@pytest.mark.parametrize("seed", range(24))
def test_the_program_and_the_paths_agree(seed: int) -> None:
    rng = random.Random(seed)
    held = missed = 0
    for _ in range(8):
        root = grow(rng, 5)
        path, checks = choose(root, rng)
        program = _native.GuardProgram(frame.__code__, tuple(path.rows), tuple(checks), ())
        for _ in range(20):
            facts = [is_true(path.read(root, node), (check, arg)) for node, check, arg in checks]
            there = [path.read(root, node) is not MISSING for node in range(len(path.rows))]
            expected = all(facts) and all(there)
            for _ in range(2):
                assert program.check({"x": root}, {}, vars(builtins)) is expected, (path.rows, checks, program.failed)
            held, missed = held + expected, missed + (not expected)
            mutate(root, rng)
    assert held
