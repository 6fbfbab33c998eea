"""How a guard program is made, what it refuses, and what it hands over."""

from __future__ import annotations

import builtins
import gc
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest

from torchdynamo import _native


def frame(x: Any = None, y: Any = None, *args: Any, key: Any = None, **kwargs: Any) -> None:
    """Whose frame is guarded."""


def make(nodes: Any, checks: Any = (), bound: Any = (), function: Any = frame) -> Any:
    return _native.GuardProgram(function.__code__, tuple(nodes), tuple(checks), tuple(bound))


def ask(program: Any, **arguments: Any) -> bool:
    answer: bool = program.check(arguments, globals(), vars(builtins))
    return answer


X = ("local", -1, "x")


class Thing:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


def test_nothing_to_check() -> None:
    program = make([])
    assert ask(program)
    assert program.fetch({}, {}, {}) == ()


@pytest.mark.parametrize(
    ("nodes", "checks", "bound"),
    [
        ([("local", -1, "z")], [], []),
        ([("local", -1, 1)], [], []),
        ([("closure", -1, "z")], [], []),
        ([("nowhere", -1, "z")], [], []),
        ([("key", -1, "z")], [], []),
        ([("item", -1, 0)], [], []),
        ([X, ("item", 0, "a")], [], []),
        ([X, ("attr", 0, 1)], [], []),
        ([X, ("class_attr", 0, 1)], [], []),
        ([("key", 1, "a"), X], [], []),
        ([("key", 0, "a")], [], []),
        ([("key", 7, "a")], [], []),
        ([X, ("key", 0, "a"), ("class_attr", 0, "b")], [], []),
        ([X], [(1, "equal", 1)], []),
        ([X], [(-1, "equal", 1)], []),
        ([X], [(-2, "equal", 1)], []),
        ([X], [(0, "nonsense", 1)], []),
        ([X], [(0, "type", 1)], []),
        ([X], [(0, "code", 1)], []),
        ([X], [(0, "is_weak", 1)], []),
        ([X], [(0, "length", "a")], []),
        ([X], [(0, "keys", "a")], []),
        ([X], [(0, "keys", ("a",))], []),
        ([X], [(0, "set", (("equal",),))], []),
        ([X], [(0, "has_key", "a")], []),
        ([X], [(0, "lookup", "a")], []),
        ([X], [(0, "same", 3)], []),
        ([X], [(0, "distinct", (3,))], []),
        ([X], [(0, "distinct", 0)], []),
        ([X], [(0, "unbound_local", "z")], []),
        ([X], [(0, "equal")], []),
        ([X], [0], []),
        ([0], [], []),
        ([("local", -1)], [], []),
        ([X], [], [1]),
        ([X], [], [-1]),
        ([X], [], ["a"]),
    ],
)
def test_what_makes_no_sense_is_refused(nodes: Any, checks: Any, bound: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        make(nodes, checks, bound)


def test_arguments_of_every_sort_are_locals() -> None:
    names = ("x", "y", "args", "key", "kwargs")
    program = make([("local", -1, name) for name in names], bound=range(5))
    values = {"x": 1, "y": 2, "args": (3,), "key": 4, "kwargs": {"z": 5}}
    assert program.fetch(values, {}, {}) == tuple(values.values())
    del values["y"]
    assert program.fetch(values, {}, {}) is None
    assert program.failed == (1, -1)


def test_roots() -> None:
    def closed() -> Any:
        return made

    made = 7
    nodes = [("globals", -1, None), ("builtins", -1, None), ("closure", -1, "made"), ("contents", 2, None)]
    nodes += [("constant", -1, sys), ("key", 0, "X"), ("key", 1, "len")]
    program = make(nodes, bound=range(7), function=closed)
    cells = {"made": closed.__closure__[0]}  # type: ignore[index]
    assert program.fetch({}, globals(), vars(builtins), cells) == (
        globals(), vars(builtins), cells["made"], 7, sys, X, len,
    )  # fmt: skip


def test_the_failing_check_is_known() -> None:
    program = make([X, ("key", 0, "a"), ("key", 0, "b")], [(1, "equal", 1), (2, "equal", 2)])
    for x, failed in [({"a": 1}, (2, -1)), ({"a": 1, "b": 3}, (2, 1)), ({"a": 0, "b": 2}, (1, 0)), (3, (0, -1))]:
        assert not ask(program, x=x)
        assert program.failed == failed
    assert ask(program, x={"a": 1, "b": 2})


def test_it_describes_itself() -> None:
    nodes, checks = (X, ("key", 0, "a")), ((1, "equal", 1),)
    assert make(nodes, checks, (1,)).describe() == (nodes, checks, (1,))


def test_python_may_keep_something_with_it() -> None:
    program = make([X])
    assert program.guards is None
    program.guards = ["a"]
    assert program.guards == ["a"]
    program.guards.append(program)  # a cycle that the collector must see
    seen = weakref.ref(Thing())
    program.guards.append(Thing())
    seen = weakref.ref(program.guards[-1])
    del program
    gc.collect()
    assert seen() is None


def test_a_dict_seen_once_is_not_trusted_when_another_comes() -> None:
    program = make([X, ("key", 0, "a")], [(1, "equal", 1)], (1,))
    first, second = {"a": 1}, {"a": 1}
    for _ in range(3):
        assert ask(program, x=first)
        assert ask(program, x=second)
        second["a"] = 2
        assert not ask(program, x=second)
        second["a"] = 1


# Ways of writing to a dict {"a": 1, "b": ..., ...} after which "a" is not 1, and to another after which it still is.
WRITES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "setitem": lambda names: names.__setitem__("a", 2),
    "another object": lambda names: names.__setitem__("a", 10**9),
    "delete": lambda names: names.__delitem__("a"),
    "pop": lambda names: names.pop("a"),
    "popitem": lambda names: [names.popitem() for _ in range(len(names))],
    "clear": lambda names: names.clear(),
    "update": lambda names: names.update(a=2),
    "update with pairs": lambda names: names.update([("a", 2)]),
    "init": lambda names: names.__init__(a=2),  # type: ignore[misc]
    "or": lambda names: names.__ior__({"a": 2}),
    "cleared and filled": lambda names: (names.clear(), names.update({"a": 2})),
    "deleted and default": lambda names: (names.__delitem__("a"), names.setdefault("a", 2)),
    "global": lambda names: exec("global a\na = 2", names),
    "global deleted": lambda names: exec("global a\ndel a", names),
}


@pytest.mark.parametrize("write", sorted(WRITES))
@pytest.mark.parametrize("ordered", [False, True])
def test_each_write_to_a_dict_is_noticed(write: str, ordered: bool) -> None:
    nodes = [X, ("key", 0, "a"), ("key", 0, "b"), ("key", 0, "c"), ("key", 2, "d")]
    checks = [(1, "equal", 1), (2, "type", dict), (3, "type", tuple), (4, "type", tuple)]
    program = make(nodes, checks)
    names: dict[str, Any] = (OrderedDict if ordered else dict)(a=1, b={"d": (1,)}, c=(2,))
    for _ in range(4):
        assert ask(program, x=names)
    WRITES[write](names)
    assert not ask(program, x=names)
    names.update({"a": 1, "b": {"d": (3,)}, "c": (4,)})
    for _ in range(4):
        assert ask(program, x=names)
    names["b"]["d"] = 5
    assert not ask(program, x=names)


@pytest.mark.parametrize("write", ["set", "set again", "delete", "through the dict"])
def test_each_write_to_many_attributes_is_noticed(write: str) -> None:
    """An object with more attributes than it keeps in itself has them in a dict alone."""
    thing = Thing(**{f"flag{i}": i % 2 == 0 for i in range(60)})
    nodes: list[Any] = [X, ("dict", 0, None), *(("key", 1, f"flag{i}") for i in range(60))]
    program = make(nodes, [(0, "type", Thing), *((2 + i, "is", i % 2 == 0) for i in range(60))])
    for _ in range(4):
        assert ask(program, x=thing)
    for _ in range(3):
        if write == "set":
            thing.flag40 = False  # type: ignore[attr-defined]
        elif write == "set again":
            thing.flag40 = True  # type: ignore[attr-defined]
            assert ask(program, x=thing)
            thing.flag40 = 1  # type: ignore[attr-defined]
        elif write == "delete":
            del thing.flag40
        else:
            vars(thing)["flag40"] = None
        assert not ask(program, x=thing)
        thing.flag40 = True  # type: ignore[attr-defined]
        assert ask(program, x=thing)


def test_a_dict_in_the_place_of_one_that_died() -> None:
    program = make([X, ("key", 0, "a")], [(1, "equal", 1)])
    for number in range(200):
        box = {"a": number % 2}
        assert ask(program, x=box) is (number % 2 == 1)
        del box


def test_an_object_in_the_place_of_one_that_died() -> None:
    program = make([X, ("dict", 0, None), ("key", 1, "a")], [(0, "type", Thing), (2, "equal", 1)])
    for number in range(200):
        assert ask(program, x=Thing(a=number % 2)) is (number % 2 == 1)
        assert not ask(program, x=[number])
        assert not ask(program, x=object())


def counts(thing: Any) -> list[int]:
    return [sys.getrefcount(each) for each in (thing, thing.a, thing.a.b, thing.__dict__)]


def test_a_dict_held_weakly_by_nobody_else() -> None:
    """The program owns nothing it looks at."""
    thing = Thing(a=Thing(b=[1]))
    nodes = [X, ("dict", 0, None), ("key", 1, "a"), ("dict", 2, None), ("key", 3, "b"), ("item", 4, 0)]
    program = make(nodes, [(5, "equal", 1)], (4,))
    before = counts(thing)
    for _ in range(1000):
        assert program.fetch({"x": thing}, {}, {}) == (thing.a.b,)
    assert counts(thing) == before
    dead = weakref.ref(thing)
    del thing
    gc.collect()
    assert dead() is None
    assert not ask(program, x=Thing())


def test_instances_keep_no_dict_that_they_had_not() -> None:
    """Making the dict of an instance leaves the instance as it was to everybody else."""
    thing = Thing()
    thing.a = 1  # type: ignore[attr-defined]
    program = make([X, ("dict", 0, None), ("key", 1, "a")], [(2, "equal", 1)])
    assert ask(program, x=thing)
    thing.a = 2  # type: ignore[attr-defined]
    assert thing.__dict__ == {"a": 2}
    assert not ask(program, x=thing)


class Spy:
    """Counts who asks it."""

    asked = 0

    def __eq__(self, other: object) -> bool:
        Spy.asked += 1
        return True

    def __hash__(self) -> int:
        Spy.asked += 1
        return hash("a")

    def __bool__(self) -> bool:
        Spy.asked += 1
        return True


class Guarded:
    @property
    def a(self) -> int:
        Spy.asked += 1
        return 1

    def __getattr__(self, name: str) -> int:
        Spy.asked += 1
        return 1


def test_attributes_are_compared_where_they_lie() -> None:
    """Whatever tells a Python's version of writes to a dict: a hit runs no step for an object's attributes."""
    thing = Thing()
    thing.a, thing.b = (1,), "b"  # type: ignore[attr-defined]
    thing.inner = Thing(d=1)  # type: ignore[attr-defined]
    nodes = [X, ("dict", 0, None), ("key", 1, "a"), ("key", 1, "b"), ("key", 1, "inner"), ("dict", 4, None)]
    checks = [(0, "type", Thing), (2, "type", tuple), (3, "equal", "b"), (1, "no_key", ("equal", "c"))]
    checks += [(4, "type", Thing), (5, "has_key", ("equal", "d"))]
    program = make(nodes, checks, (2,))
    for _ in range(3):
        assert ask(program, x=thing)
    assert min(program.costs()) >= 0
    thing.b = "c"  # type: ignore[attr-defined]
    assert not ask(program, x=thing)
    thing.b = "b"  # type: ignore[attr-defined]
    assert ask(program, x=thing)
    Thing().c = 1  # type: ignore[attr-defined]
    assert ask(program, x=thing)
    thing.c = 1  # type: ignore[attr-defined]
    assert not ask(program, x=thing)
    del thing.c  # type: ignore[attr-defined]
    thing.a = (2,)  # type: ignore[attr-defined]
    assert program.fetch({"x": thing}, {}, {}) == ((2,),)
    del thing.a  # type: ignore[attr-defined]
    assert not ask(program, x=thing)


def test_nobodys_code_runs() -> None:
    spy, box = Spy(), {Spy(): 1}
    programs = [
        make([X], [(0, "equal", "a")]),
        make([X], [(0, "is", 1)]),
        make([X], [(0, "has_key", ("equal", "a"))]),
        make([X], [(0, "no_key", ("equal", "b"))]),
        make([X], [(0, "keys", (("equal", "a"),))]),
        make([X], [(0, "set", (("equal", "a"),))]),
        make([X, ("key", 0, "a")]),
        make([X, ("attr", 0, "a")]),
        make([X, ("dict", 0, None), ("key", 1, "a")]),
        make([X, ("item", 0, 0)]),
        make([X], [(0, "length", 1)]),
    ]
    things = [spy, box, {spy}, [spy], Guarded()]
    Spy.asked = 0
    for program in programs:
        for thing in things:
            ask(program, x=thing)
    assert Spy.asked == 0


def test_a_finalizer_does_not_run_in_the_middle() -> None:
    """Collections that an allocation would start wait until the check is over."""
    log = []

    class Final:
        def __del__(self) -> None:
            log.append("ran")

    nodes = [("local", -1, "x"), *((("attr"), 0, "__defaults__") for _ in range(5))]
    program = make(nodes, [(1, "type", tuple)], range(6))
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(50):
            final = Final()
            final.itself = final  # type: ignore[attr-defined]
            del final
            assert ask(program, x=with_default)
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert log.count("ran") == 50


def with_default(a: int = 1) -> int:
    return a


def test_large_programs_are_made_fast_enough() -> None:
    nodes: list[Any] = [X]
    nodes += [("key", 0, f"k{i}") for i in range(5000)]
    program = make(nodes, [(i + 1, "equal", i) for i in range(5000)], range(1, 5001))
    assert program.fetch({"x": {f"k{i}": i for i in range(5000)}}, {}, {}) == tuple(range(5000))


def test_a_deep_path() -> None:
    nodes: list[Any] = [X]
    nodes += [("item", i, 0) for i in range(3000)]
    box: list[Any] = []
    inner = box
    for _ in range(3000):
        inner.append([])
        inner = inner[0]
    program = make(nodes, [(3000, "length", 0)])
    assert ask(program, x=box)
    inner.append(1)
    assert not ask(program, x=box)
    while box:  # taken apart by hand: so deep a nest would be freed recursively
        box = box.pop()  # type: ignore[assignment]
        if not isinstance(box, list):
            break
