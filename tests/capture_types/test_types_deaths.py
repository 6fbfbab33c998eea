"""Objects with a `__del__`, and generators that wait in a block: where nobody notices when these end they are followed,
else they are Python's.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import types
from collections import deque
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo.bytecode import versions

LOG: list[Any] = []
X = torch.ones(2)


def skip_where_it_dies_late() -> None:
    """Skip the test where what is alive at a break dies with the function: its continuation has a frame of its own."""
    if not versions.ONE_FRAME_SHOWN:
        pytest.skip("what is alive at a break dies with the function there")


class Quiet:
    """Closed already, or closed now: nobody can tell."""

    def __init__(self, n):
        self.n, self.closed = n, False

    def close(self):
        if not self.closed:
            self.closed = True

    def __del__(self):
        self.close()


class Loud(Quiet):
    def __del__(self):
        LOG.append(self.n)


class Asking(Quiet):
    def __del__(self):
        if LOG and LOG[-1] == "asked":
            LOG.append("answered")


class Holder(Quiet):
    def __init__(self, n):
        super().__init__(n)
        self.items = []

    def __del__(self):
        if self.items:
            LOG.append(len(self.items))


class Failing(Quiet):
    def __del__(self):
        raise ValueError("nobody hears")


def one(x):
    return x * Quiet(2).n


def several(x):
    for n in range(3):
        q = Quiet(n)
        x = x + q.n
    return x, q.closed


def copied(x):
    return x + copy.copy(Quiet(3)).n


def returned(x):
    q = Quiet(1)
    return x + 1, q


def carried_by_an_exception(x):
    try:
        raise ValueError(Quiet(1))
    except ValueError as error:
        return x + error.args[0].n


def let_go(x):
    q = Loud(2)
    y = x * q.n
    del q
    LOG.append("after")
    return y


def replaced(x):
    q = Loud(1)
    y = x + 1
    q = None
    LOG.append("after")
    return y, q


def asks_what_changes(x):
    q = Asking(1)
    LOG.append("asked")
    del q
    LOG.append("after")
    return x + 1


def shares_what_it_asks(x):
    q = Holder(1)
    items = q.items
    del q
    items.append(1)
    return x + 1


def in_a_loop(x):
    for n in range(3):
        q = Loud(n)
        x = x + q.n
    return x * 2


def loud_and_returned(x):
    q = Loud(1)
    return x + 1, q


def failing(x):
    return x + Failing(1).n


def given(x):
    def inner(q):
        y = x + q.n
        del q
        LOG.append("after")
        return y

    return torchdynamo.compile(inner, backend="eager")(Loud(5))


def written_over(x):
    def inner(box, items, plain):
        y = x + 1
        box["q"] = None
        LOG.append("a dict's")
        items[0] = None
        LOG.append("a list's")
        plain.q = None
        LOG.append("an attribute")
        del items[-1]
        LOG.append("deleted from a list")
        del box["r"]
        LOG.append("deleted from a dict")
        return y * 2

    plain = Quiet(0)
    plain.q = Loud(3)
    compiled = torchdynamo.compile(inner, backend="eager")
    return compiled({"q": Loud(1), "r": Loud(5)}, [Loud(2), Loud(4)], plain)


def carried_out(x):
    def raises(y):
        print(y.shape, end="")
        raise ValueError(q)

    q = Loud(6)
    try:
        torchdynamo.compile(raises, backend="eager")(x)
    except ValueError:
        pass
    q = None
    LOG.append("after")
    return x + 1, q


class Later:
    """Gets its `__del__` when what lets go of it is compiled."""


class Place:
    pass


def in_an_attribute(place, items, table):
    place.other = 1
    LOG.append("before")
    place.q = None
    return X + 1


def in_a_list(place, items, table):
    items.append(1)
    LOG.append("before")
    items[0] = None
    return X + 1


def in_a_cleared_list(place, items, table):
    items.append(1)
    LOG.append("before")
    items.clear()
    return X + 1


def in_a_dict(place, items, table):
    table["other"] = 1
    LOG.append("before")
    table["q"] = None
    return X + 1


def in_a_cleared_dict(place, items, table):
    table["other"] = 1
    LOG.append("before")
    table.clear()
    return X + 1


def given_some(fn: Any) -> list[Any]:
    place = Place()
    place.q = Later()
    LOG.clear()
    fn(place, [Later()], {"q": Later()})
    return LOG[:2]


@pytest.mark.parametrize(
    "fn",
    [in_an_attribute, in_a_list, in_a_cleared_list, in_a_dict, in_a_cleared_dict],
)
def test_classes_that_get_a_finalizer(fn: Any, monkeypatch: Any) -> None:
    for finalizer in (None, lambda self: LOG.append("gone")):
        if finalizer is not None:
            monkeypatch.setattr(Later, "__del__", finalizer, raising=False)
        wanted = given_some(fn)
        with torchdynamo.optimize("eager"):
            assert given_some(fn) == wanted


class Ending:
    def __del__(self):
        LOG.append("gone")


@pytest.mark.parametrize("fn", [in_a_list, in_a_cleared_list, in_a_dict, in_a_cleared_dict])
def test_objects_of_another_class_in_the_place_of_those_without_a_finalizer(fn: Any) -> None:
    def given(cls: type) -> list[Any]:
        LOG.clear()
        fn(Place(), [cls()], {"q": cls()})
        return LOG[:2]

    for cls in (Later, Ending, Later):
        wanted = given(cls)
        with torchdynamo.optimize("eager"):
            assert given(cls) == wanted


class Slotted:
    __slots__ = ("q",)


HELD = None
MODULE = types.ModuleType("module_with_a_mortal")


def held_by(cls: type) -> Any:
    def made(q: Any) -> Any:
        place = cls()
        place.q = q
        return place

    return made


def held_by_a_cell(q: Any) -> Any:
    def change() -> None:
        nonlocal q
        LOG.append("before")
        q = None
        LOG.append("after")

    return change


def held_by_the_module(q: Any) -> None:
    MODULE.q = q


def held_globally(q: Any) -> None:
    global HELD
    HELD = q


def setting(place: Any) -> None:
    place.q = None


def deleting(place: Any) -> None:
    del place.q


def through_its_dict(place: Any) -> None:
    place.__dict__["q"] = None


def on_a_module(place: Any) -> None:
    MODULE.q = None


def as_a_global(place: Any) -> None:
    global HELD
    HELD = None


PLACES = [
    (setting, held_by(Place)),
    (deleting, held_by(Place)),
    (through_its_dict, held_by(Place)),
    (setting, held_by(Slotted)),
    (deleting, held_by(Slotted)),
    (setting, held_by(torch.nn.Module)),
    (setting, held_by(lambda: torch.ones(1))),
    (on_a_module, held_by_the_module),
    (as_a_global, held_globally),
    (lambda change: change(), held_by_a_cell),
    (lambda items: items.pop(0), lambda q: [q]),
    (lambda items: items.remove(items[0]), lambda q: [q]),
    (lambda items: items.popleft(), lambda q: deque([q])),
    (lambda items: items.clear(), lambda q: deque([q])),
    (lambda items: items.remove(items[0]), lambda q: deque([q])),
    (lambda table: table.pop("q"), lambda q: {"q": q}),
]


def drop(x: torch.Tensor, how: Any, place: Any) -> torch.Tensor:
    LOG.append("before")
    how(place)
    LOG.append("after")
    return x + 1


@pytest.mark.parametrize(("how", "made"), PLACES)
@pytest.mark.parametrize("classes", [(Later, Ending, Later), (Ending, Later, Ending)])
def test_a_place_that_holds_now_this_now_that(how: Any, made: Any, classes: Any, monkeypatch: Any) -> None:
    """Code that never looks at what it drops: the class of that decides whether it may be dropped later."""
    skip_where_it_dies_late()
    monkeypatch.setitem(sys.modules, MODULE.__name__, MODULE)
    torchdynamo.reset()
    for cls in classes:
        seen = []
        for on in (False, True):
            LOG.clear()
            with torchdynamo.optimize("eager") if on else contextlib.nullcontext():
                drop(X, how, made(cls()))
            seen.append(list(LOG))
        assert seen[0] == seen[1]


def test_a_place_that_is_filled_with_tensors_in_turn_is_captured_once() -> None:
    def keep(x: torch.Tensor, place: Place) -> torch.Tensor:
        place.last = x * 2
        return x + 1

    compiled, place = torchdynamo.compile(keep, backend="eager"), Place()
    place.last = None
    for _ in range(3):
        compiled(X, place)
        assert torch.equal(place.last, X * 2)
    assert sum(event.kind == "compile" for event in torchdynamo.events.recent()) == 1


def deleted_unread(x: torch.Tensor, q: Any) -> torch.Tensor:
    LOG.append("before")
    del q
    LOG.append("after")
    return x + 1


def deleted_after_a_break(x: torch.Tensor, q: Any) -> torch.Tensor:
    x = x + 1
    torchdynamo.graph_break()
    del q
    return x + 1


def deleted_twice(x: torch.Tensor, q: Any) -> torch.Tensor:
    try:
        del q
        del q  # noqa: F821
    except UnboundLocalError as error:
        LOG.append(str(error))
    return x + 1


@pytest.mark.parametrize("fn", [deleted_unread, deleted_after_a_break, deleted_twice])
def test_a_parameter_with_a_finalizer_that_is_deleted_unread(fn: Any) -> None:
    for cls in (Ending, Later, Ending):
        compiled = torchdynamo.compile(fn, backend="eager")
        seen = []
        for run in (fn, compiled):
            q = cls()
            LOG.clear()
            seen.append((run(X, q).tolist(), list(LOG)))
        assert seen[0] == seen[1]


def outcome(fn: Any) -> tuple[str, list[Any]]:
    """What it gives, and what was logged until all of that is gone."""
    LOG.clear()
    result = fn(X)
    text = str([vars(each) if isinstance(each, Quiet) else each for each in result])
    del result
    return text, list(LOG)


# ---- generators that wait in a block ---------------------------------------------------------------------------------


def turns(x):
    try:
        for n in range(3):
            yield x * n
    finally:
        LOG.append("left")


def passed_on(x):
    yield from turns(x)


def left_in_a_loop(x):
    for found in turns(x):
        x = x + found
        if len(LOG) == 0:
            break
    LOG.append("after the loop")
    return x, x


def left_through_another(x):
    found = next(passed_on(x))
    LOG.append("after it")
    return found, x


def left_in_with(x):
    def made():
        with torch.no_grad():
            yield x + 1

    found = next(made())
    return found, torch.is_grad_enabled()


def run_out(x):
    return sum(turns(x)), x


def left_where_nothing_is_done(x):
    def made():
        for n in range(3):
            try:
                yield x * n
            except ValueError:
                LOG.append("caught")

    return next(made()), x


LATER = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="it dies with the function there")


@pytest.mark.parametrize("fn", [pytest.param(left_in_a_loop, marks=LATER), left_through_another, left_in_with])
def test_generators_that_are_left_in_a_block(fn: Any) -> None:
    if fn.__name__ == "left_in_with":
        skip_where_it_dies_late()
    compiled = torchdynamo.compile(fn, backend="eager")
    for _ in range(2):
        assert outcome(compiled) == outcome(fn)


@pytest.mark.parametrize("fn", [run_out, left_where_nothing_is_done])
def test_generators_whose_end_nobody_notices(fn: Any) -> None:
    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=True)
    for _ in range(2):
        assert outcome(compiled) == outcome(fn)


@pytest.mark.parametrize("fn", [one, several, copied, returned, carried_by_an_exception])
def test_unnoticed(fn: Any) -> None:
    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=True)
    for _ in range(2):
        assert outcome(compiled) == outcome(fn)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "fn",
    [
        let_go,
        replaced,
        asks_what_changes,
        shares_what_it_asks,
        in_a_loop,
        loud_and_returned,
        failing,
        given,
        written_over,
    ],
)
def test_noticed(fn: Any) -> None:
    if fn in (let_go, replaced, asks_what_changes, shares_what_it_asks, written_over):
        skip_where_it_dies_late()
    torchdynamo.reset()
    compiled = torchdynamo.compile(fn, backend="eager")
    for _ in range(2):
        assert outcome(compiled) == outcome(fn)
