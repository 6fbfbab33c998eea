"""What only one process can know, and what a stored entry must not keep or ask: addresses, lifetimes, tracebacks."""

from __future__ import annotations

import functools
import gc
import traceback
import weakref
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo import _native, events
from torchdynamo.bytecode import versions

X = torch.ones(2)
LOG: list[Any] = []


pytestmark = pytest.mark.usefixtures("store")


def hits() -> int:
    return sum(event.stored == "hit" for event in events.recent())


def told() -> str:
    return " ".join(event.text for event in events.recent() if event.kind == "cache")


def test_keys_that_are_addresses() -> None:
    table: dict[int, int] = {}

    def numbered(x: torch.Tensor, who: object) -> torch.Tensor:
        table[id(who)] = table.get(id(who), 0) + 1
        return x + table[id(who)]

    compiled, owners = torchdynamo.compile(numbered, backend="eager"), [object() for _ in range(3)]
    assert [compiled(torch.zeros(1), owners[at]).item() for at in (0, 1, 0, 2, 1, 0)] == [1, 1, 2, 1, 2, 3]
    assert "the address of an object" in told()


def memo(x: torch.Tensor, owner: object, table: dict[Any, int]) -> torch.Tensor:
    key = (id(owner), x.dtype)
    if key not in table:
        table[key] = len(table) + 1
    return x * table[key]


def test_tuples_with_addresses_in_them() -> None:
    table: dict[Any, int] = {}
    compiled, one, other = torchdynamo.compile(memo, backend="eager"), object(), object()
    for owner, wanted in ((one, 1), (one, 1), (other, 2), (one, 1), (other, 2)):
        assert torch.equal(compiled(X, owner, table), X * wanted)


NAN = float("nan")


def of_nan(x: torch.Tensor, value: float) -> Any:
    return x + 1, value in (0.0, NAN), value is NAN


def of_texts(x: torch.Tensor, value: str) -> Any:
    own = "a text of some words"
    return x + 1, value is own


OWN = next(const for const in of_texts.__code__.co_consts if const == "a text of some words")


@pytest.mark.parametrize(("fn", "values"), [(of_nan, (NAN, float("nan"))), (of_texts, (OWN, "".join(list(OWN))))])
def test_which_of_equal_constants_one_is(fn: Any, values: tuple[Any, Any]) -> None:
    for value in values:
        compiled = torchdynamo.compile(fn, backend="eager")
        assert compiled(X, value)[1:] == fn(X, value)[1:]
        _native.clear_all()  # another process


class Watched:
    """Tells who asks."""

    def __getattribute__(self, name: str) -> Any:
        LOG.append(name)
        return object.__getattribute__(self, name)


def watching(x: torch.Tensor, watched: Watched) -> Any:
    return x + 1, watched


def test_objects_are_not_asked() -> None:
    for _ in range(2):
        LOG.clear()
        torchdynamo.compile(watching, backend="eager")(X, Watched())
        assert LOG == []
        _native.clear_all()
    assert hits() == 1


class Loud:
    def __del__(self) -> None:
        LOG.append("gone")


def holding(x: torch.Tensor, items: list[Any]) -> torch.Tensor:
    return x + len(items)


def test_nothing_lives_longer_than_its_call() -> None:
    """Neither for an entry that is written, nor for one that is read, nor for one that does not fit."""
    gc.disable()
    try:
        compiled = torchdynamo.compile(holding, backend="eager")
        for count in (1, 1, 2):
            LOG.clear()
            x = torch.ones(3, requires_grad=True) * 2
            seen, items = weakref.ref(x), [Loud() for _ in range(count)]
            compiled(x, items)
            del x, items
            assert seen() is None
            assert ["gone"] * count == LOG
            _native.clear_all()
    finally:
        gc.enable()
    assert hits() == 1


def nested(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    def inner(y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.embedding(at, y.reshape(-1, 1))

    return inner(x * 2) + 1


def left_in_a_loop(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    x = x * 2
    for turn in range(3):
        read = lambda: turn  # noqa: B023, E731
        torchdynamo.graph_break()
        x = x + read()
    return x[at]


@pytest.mark.parametrize("fn", [nested, left_in_a_loop])
def test_tracebacks_have_all_frames(fn: Any) -> None:
    if fn is left_in_a_loop and not versions.ONE_FRAME_SHOWN:
        pytest.skip("a continuation has a frame of its own there")

    def shown(run: Any) -> list[tuple[str, int | None]]:
        with pytest.raises(IndexError) as caught:
            run(X, torch.tensor([0, 7]))
        return [(each.name, each.lineno) for each in traceback.extract_tb(caught.value.__traceback__)[1:]]

    wanted, compiled = shown(fn), torchdynamo.compile(fn, backend="eager")
    for loaded in (False, True):
        assert torch.equal(compiled(X, torch.tensor([0, 1])), fn(X, torch.tensor([0, 1])))
        assert (hits() > 0) is loaded
        assert shown(compiled) == wanted
        torchdynamo.reset()


def in_one_way(fn: Any) -> Any:
    @functools.wraps(fn)
    def wrapper(*args: Any) -> Any:
        return fn(*args) * 2

    return wrapper


def test_functions_in_one_wrapper_do_not_take_each_others_room() -> None:
    """All wrappers have one code, and there are more of them than one key has entries."""
    wrapped = [in_one_way(eval(f"lambda x: x + {n}")) for n in range(12)]
    for turn in range(2):
        torchdynamo.reset()
        for n, fn in enumerate(wrapped):
            assert torch.equal(torchdynamo.compile(fn, backend="eager")(X), (X + n) * 2)
            _native.clear_all()  # the wrappers' versions in one process have a limit
        assert hits() == turn * len(wrapped)
    assert "does not fit" not in told()
