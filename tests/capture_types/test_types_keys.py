"""Keys whose code says what they equal, in a dict that was there before: it is asked as often as Python asks it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

import torchdynamo

X = torch.ones(2)


class Text(str):
    """Equal to what it looks like, and tells who asked."""

    asked: list[Any]

    def __eq__(self, other: object) -> bool:
        self.asked.append(other)
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        return str.__hash__(self)


def contained(x, found):
    return x + 1, "a" in found, "b" in found


def looked_up(x, found):
    return x + 1, found.get("a"), found.get("b", 5)


def looked_up_or_not(x, found):
    try:
        return x + 1, found["b"]
    except KeyError:
        return x, found["a"]


def put(x, found):
    found["a"] = 2
    return x + 1, len(found)


@pytest.mark.parametrize("fn", [contained, looked_up, looked_up_or_not, put])
def test_asked_as_often(fn: Any) -> None:
    told = []
    for run in (fn, torchdynamo.compile(fn, backend="eager")):
        key = Text("a")
        key.asked = asked = []
        told.append(([run(X, {key: 1, "c": 2})[1:] for _ in range(2)], list(asked)))
    assert told[0] == told[1]


def test_ids_beside_addresses() -> None:
    """Numbers that are keys may be ids: an object that was there is guarded, and its id is a number like them."""
    first, second = object(), object()
    table = {id(first): 1, "other": 2}

    def fn(x: torch.Tensor, who: object) -> Any:
        return x + table.get(id(who), 5), id(who) in table

    compiled = torchdynamo.optimize("eager", nopython=True)(fn)
    for who in (first, second, first, second):
        result, there = compiled(torch.zeros(1), who)
        assert (result.item(), there) == ((1, True) if who is first else (5, False))
    table[id(second)] = 7
    assert compiled(torch.zeros(1), second)[0].item() == 7


def test_a_threads_number_in_a_dict_of_the_programs() -> None:
    sharing: dict[Any, int] = {}

    def fn(x: torch.Tensor) -> Any:
        return x + 1 if threading.get_ident() in sharing else x + 2

    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=True)
    assert compiled(X)[0] == 3
    sharing["other"] = 1
    assert compiled(X)[0] == 3
    sharing[threading.get_ident()] = 1  # an address, for all that capture knows
    compiled = torchdynamo.compile(fn, backend="eager")
    assert compiled(X)[0] == 2


def test_ids_that_are_put_beside_addresses() -> None:
    owners, made = [object() for _ in range(3)], {}

    def fn(x: torch.Tensor, who: object) -> torch.Tensor:
        made[id(who)] = made.get(id(who), 0) + 1
        return x + made[id(who)]

    compiled = torchdynamo.optimize("eager")(fn)
    counts = [compiled(torch.zeros(1), owners[at]).item() for at in (0, 1, 0, 2, 1, 0)]
    assert counts == [1, 1, 2, 1, 2, 3]
    assert made == {id(owner): count for owner, count in zip(owners, (3, 2, 1), strict=True)}


class Named:
    """Hashed by what identifies it, together with something else."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __hash__(self) -> int:
        return hash((self.name, id(self), hash(id(self.__dict__.get("missing")))))

    def __eq__(self, other: object) -> bool:
        return self is other


def test_hashes_of_ids() -> None:
    known = Named("a")

    def fn(x: torch.Tensor) -> Any:
        first, second = Named("a"), Named("a")
        numbers = {first: 1, second: 2, known: 3}
        numbers[second] += 2
        both = {hash((1, id(x))), hash((1, id(x))), hash((2, id(x)))}
        return x + numbers[second], len(numbers), known in numbers, Named("a") in numbers, len(both)

    compiled = torchdynamo.optimize("eager", nopython=True)(fn)
    assert str(compiled(X)) == str(fn(X))


def test_what_is_asked_of_such_a_hash() -> None:
    def fn(x: torch.Tensor) -> Any:
        mine = object()
        return x + 1, hash((1, mine)) == hash((1, mine)), isinstance(hash(id(mine)), int), hash((x,)) == hash((x,))

    assert str(torchdynamo.optimize("eager")(fn)(X)) == str(fn(X))


class Owner:
    pass


def test_tuples_with_ids_in_them() -> None:
    """`(id(self), ...)` as the key of a table that was there, as memos of methods have it: of that very object."""
    table: dict[Any, int] = {}

    def asked(x, owner):
        key = (id(owner), x.dtype)
        if key not in table:
            table[key] = len(table) + 1
        return x * table[key]

    compiled = torchdynamo.compile(asked, backend="eager", fullgraph=True)
    one, other, x = Owner(), Owner(), torch.ones(2)
    for owner, wanted in ((one, 1), (one, 1), (other, 2), (one, 1), (other, 2)):
        assert torch.equal(compiled(x, owner), x * wanted)
    assert list(table) == [(id(one), x.dtype), (id(other), x.dtype)]


def test_keys_that_only_identity_tells_apart() -> None:
    """Modules, tensors and objects are found as keys, and a dict with such keys is iterated by position."""
    one, two, three = (torch.nn.Linear(2, 2) for _ in range(3))
    found: dict[Any, int] = {one: 1, two: 2, X: 3, "text": 4}

    def fn(x: torch.Tensor, key: Any) -> Any:
        for each, factor in found.items():
            if isinstance(each, torch.nn.Module):
                x = each(x) * factor
        return x, key in found, found.get(key), [*found.values()], [type(each) for each in reversed(found)]

    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=True)

    def same(key: Any) -> None:
        wanted, got = fn(X, key), compiled(X, key)
        assert torch.equal(wanted[0], got[0])
        assert wanted[1:] == got[1:]

    for key in (one, two, three, X, torch.ones(1)):
        same(key)
    found[three] = found.pop(one)
    for key in (one, three):
        same(key)
    del found["text"]
    same(three)


def test_ids_as_numbers() -> None:
    """The id of what was there is a number, and guards the object; that of what the frame makes nobody knows."""

    def fn(x: Any, owner: Any, number: int) -> Any:
        return x + 1, id(owner) == number, number != id(owner), id(owner) % 1000, id(owner) - number

    for one, other in (([1], [1]), (X, torch.ones(2)), (torch.nn.ReLU(), torch.nn.ReLU()), (list, dict)):
        torchdynamo.reset()
        compiled = torchdynamo.compile(fn, backend="eager", fullgraph=True)
        for owner, number in ((one, id(one)), (other, id(one)), (other, id(other))):
            assert compiled(X, owner, number)[1:] == fn(X, owner, number)[1:]
    with pytest.raises(torchdynamo.exc.Unsupported, match="call of id"):
        torchdynamo.compile(lambda x: (x + 1, id([x]) == 5), backend="eager", fullgraph=True)(X)
