"""Which of equal constants something is: `is`, `id` and hashes that are made of addresses, as in eager."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo.bytecode import versions


def made(text: str) -> str:
    """A string of its own."""
    return str(text.encode(), "ascii")


MODE = "training"


def of_two(x: torch.Tensor, a: Any, b: Any) -> Any:
    return a is b, a in (b,), a in [b], {a: 1}.get(b), x + 1


def of_items(x: torch.Tensor, a: Any, b: Any) -> Any:
    return a in [b], x + 1


def of_items_of_a_tuple(x: torch.Tensor, a: Any, b: Any) -> Any:
    return a in (b,), x + 1


def of_equal_tuples(x: torch.Tensor, a: Any, b: Any) -> Any:
    return (a,) == (b,), (1, (a,)) in [(1, (b,))], x + 1


def of_equal_arguments(x: torch.Tensor, a: Any, b: Any) -> Any:
    return a == b, x + 1


NAN, OTHER = float("nan"), float("nan")
PAIRS = [[NAN, OTHER], [NAN, NAN], [OTHER, NAN], [1.0, NAN], [1.0, 1.0]]
TUPLES = [[(NAN,), (OTHER,)], [(NAN,), (NAN,)], [(OTHER,), (NAN,)]]


def of_a_literal(x: torch.Tensor, a: Any) -> Any:
    return a is MODE, a == MODE, x + 1


def of_what_is_made(x: torch.Tensor, a: Any) -> Any:
    text = a[:3] + a[3:]
    again = text
    x = x + 1
    before = text is a, text is again
    print(end="")
    return before, text is a, text is again, x * 2


def of_parts(x: torch.Tensor) -> Any:
    text = "abc"
    parts = text.__getnewargs__()  # type: ignore[attr-defined]
    return parts[0] is text, "".join(("training",)) is MODE, x + 1


def of_nan(x: torch.Tensor) -> Any:
    value, other = float("nan"), float("nan")
    return hash(value) == object.__hash__(value), value in [value], value in [other], {value: 1}.get(other), x + 1


def of_tuples(x: torch.Tensor) -> Any:
    ways = zip("abc", "def"), enumerate("abc"), itertools.product("ab", repeat=2), itertools.combinations("abcd", 2)
    kept = list(zip("abc", "def"))
    return [len(set(map(id, way))) for way in ways], len(set(map(id, kept))), x + 1


@pytest.mark.parametrize(
    ("fn", "calls"),
    [
        (
            of_two,
            [[made("training")] * 2, [made("training"), made("training")], [300.5, 300.5], [made("a")] * 2],
        ),
        (of_two, [[float("300.5"), float("300.5")], [300.5] * 2, [float("nan"), float("nan")], [float("nan")] * 2]),
        (of_two, [[int("300"), int("300")], [300] * 2, [7, 7], [b"ab", bytes([97, 98])]]),
        *((fn, calls) for fn in (of_items, of_items_of_a_tuple, of_equal_tuples) for calls in (PAIRS, PAIRS[::-1])),
        (of_equal_arguments, TUPLES),
        (of_equal_arguments, TUPLES[::-1]),
        (of_a_literal, [[MODE], [made(MODE)], ["other"], [made(MODE)]]),
        (of_a_literal, [[made(MODE)], [MODE]]),
        (of_what_is_made, [["training"], [made("training")]]),
        (of_parts, [[]]),
        (of_nan, [[]]),
        (of_tuples, [[]]),
    ],
)
def test_which(fn: Any, calls: list[list[Any]]) -> None:
    compiled = torchdynamo.optimize("eager")(fn)
    for args in [*calls, *calls]:
        *wanted, y = fn(torch.ones(2), *args)
        *got, mine = compiled(torch.ones(2), *args)
        assert got == wanted, args
        assert torch.equal(mine, y)


def given_back(x: torch.Tensor, text: str) -> Any:
    return x + 1, text, [text]


def test_a_constant_that_comes_in_goes_out() -> None:
    compiled = torchdynamo.compile(given_back, backend="eager", fullgraph=True)
    for text in (made("some"), made("some")):
        _, alone, (inside,) = compiled(torch.ones(2), text)
        assert alone is text
        assert inside is text


def test_a_string_that_is_made_is_one_and_another_in_each_call() -> None:
    def fn(x: torch.Tensor, text: str) -> Any:
        both = text + "thing"
        return x + 1, both, [both]

    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=True)
    results = [compiled(torch.ones(2), "some") for _ in range(2)]
    assert all(alone is inside and alone == "something" for _, alone, (inside,) in results)
    assert results[0][1] is not results[1][1]


@pytest.mark.skipif(not versions.EXCEPTION_TABLE, reason="it is a free variable of a continuation there: NameError")
def test_a_variable_that_is_emptied_through_its_cell() -> None:
    def fn(x: torch.Tensor) -> Any:
        value = 1

        def keeps() -> int:
            return value

        x = x + value
        print(end="")
        del keeps.__closure__[0].cell_contents  # type: ignore[index]
        try:
            print(value)
        except UnboundLocalError as error:
            return x, str(error)

    wanted, got = fn(torch.ones(2)), torchdynamo.optimize("eager")(fn)(torch.ones(2))
    assert got[1] == wanted[1]
    assert torch.equal(got[0], wanted[0])


def test_a_tuple_that_is_made_is_one_and_another_in_each_call() -> None:
    def fn(x: torch.Tensor, n: int) -> Any:
        pair = n, (n, "text")
        return x + 1, pair, [pair]

    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=True)
    results = [compiled(torch.ones(2), 5) for _ in range(2)]
    assert all(pair is inside and pair == (5, (5, "text")) for _, pair, (inside,) in results)
    assert results[0][1] is not results[1][1]
