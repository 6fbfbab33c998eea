"""Numbers and texts of classes that extend Python's own, made in the frame: seen as what they are, and kept apart."""

from __future__ import annotations

import operator
import re
from typing import Any

import pytest
import torch
from following import check
from pictures import assert_alike
from torch._vendor.packaging.version import Version

import torchdynamo

# ruff: noqa: UP031, SIM300

X = torch.arange(3.0)


class Count(int):
    def twice(self):
        return self * 2


class Next(int):
    def __new__(cls, n):
        return super().__new__(cls, n + 1)


class Named(int):
    def __repr__(self):
        return "named"

    def __add__(self, other):
        return "added"


class Word(str):
    def up(self):
        return self.upper()


class Said(str):
    def __str__(self):
        return "said"


class Share(float):
    pass


class Pair(complex):
    pass


class Raw(bytes):
    def __new__(cls, raw):
        return super().__new__(cls, raw + b"!")


def numbers(x):
    a = Count(3)
    a.mark = [1]
    return (
        *(x * a, a + 1, 1 + a, a == 3, 3 == a, a.twice(), a < 4, -a, hash(a) == hash(3), bool(a), Count(), Count("7")),
        *(a is a, a is Count(3), [1, 2, 3, 4][a], {3: "x"}[a], {a: 1}[3], a in [1, 3], isinstance(a, int), type(a)),
        *(f"{a:03d}", str(a), repr(a), int(a), a.real, float(a), range(a), [0] * a, a.bit_length(), a // 2),
        *(divmod(a, 2), max(a, 2), a.mark, a, Next(4), Next(4) * x),
    )


def own_words(x):
    a = Named(3)
    return x + 1, str(a), repr(a), a + 1, a - 1, a


def texts(x):
    s = Word("ab")
    return (
        *(x + 1, s.up(), s + "c", "c" + s, s * 2, len(s), s[0], list(s), s == "ab", {"ab": 1}[s], "%s" % s, f"{s!r}"),
        *(s.replace("a", "b"), "-".join([s, "q"]), ",".join(s), s in "cabd", "a" in s, s.startswith("a"), s),
        *(sorted([Word("b"), Word("a")]), hash(s) == hash("ab"), Word(5), Word(b"x", "utf8"), s.split("b")),
        *({s: 1}, {s}, (s, 1), s != "q", s < "b", not s, s or 1),
    )


def said(x):
    s = Said("ab")
    return x + 1, str(s), s + "c", s.upper(), "x".join([s])


def others(x):
    f = Share(1.5)
    return x * f, f + 1, f.is_integer(), f.real, round(f), int(f), f, Pair(2, 1) + 1, Raw(b"a") + b"c", Raw(b"ab")[0]


@pytest.mark.parametrize("fn", [numbers, own_words, texts, said, others], ids=lambda fn: fn.__name__)
def test_as_eager(fn):
    check(fn, (X,))


def test_each_call_makes_its_own():
    def make(x):
        return x + 1, Count(5), Raw(b"")

    compiled = torchdynamo.compile(make, backend="eager", fullgraph=True)
    first, second = compiled(X), compiled(X)
    assert first[1] is not second[1]
    assert first[2] is not second[2]


def test_formats_that_ask_the_class():
    def told(x):
        return x + 1, f"{Said('ab')}", f"{Named(2)}", "%s" % Said("ab"), Said("ab").__format__("")

    compiled = torchdynamo.compile(told, backend="eager")
    assert_alike(told(X), compiled(X))


class Fibonacci(list):
    def __iter__(self):
        return (n for n in (1, 1, 2, 3))


def test_iterators_of_the_class():
    def iterators(x):
        made = Fibonacci([7])
        return x + 1, next(iter(made)), [*made], type(iter(made)).__name__

    check(iterators, (X,))


class Odd(str):
    """Some of what C may ask is its own: only what asks nothing takes it for the plain text."""

    def __eq__(self, other):
        raise ZeroDivisionError

    __hash__ = str.__hash__


WORD, ODD, SHARE = Word("ab.cd"), Odd("a1b2"), Share(1.5)


def there_before(x):
    parts = WORD.split("."), WORD.up(), f"{WORD}!", WORD + "e", len(WORD), WORD[1:], [*WORD], WORD == "ab.cd"
    return x * SHARE, parts, SHARE + 1, SHARE.is_integer(), round(SHARE)


def searched(x):
    found = re.search("1", ODD).span(), re.split("[0-9]", ODD), re.findall("B", ODD, re.I), re.sub("1", "-", ODD)
    spans = [match.group() for match in re.finditer("[a-z]", ODD)], re.compile("a").match(ODD).string is ODD
    return x + 1, found, spans, re.fullmatch("x", ODD), frozenset("ab12").issuperset(ODD), frozenset("ab") >= {"a"}


def versions(x):
    parsed = Version(torch.__version__)
    return x + (parsed >= Version("1.7")), torch.__version__ >= (2, 0), torch.__version__.split("+")[0]


@pytest.mark.parametrize("fn", [there_before, searched, versions], ids=lambda fn: fn.__name__)
def test_what_was_there_before(fn):
    check(fn, (X,))


def test_another_text_is_another_version():
    def told(x, word):
        return x + len(word.split("."))

    compiled = torchdynamo.compile(told, backend="eager", fullgraph=True)
    for word in (Word("a"), Word("a.b"), Word("a.b.c"), "a", Odd("a.b")):
        assert_alike(told(X, word), compiled(X, word))


class Indexed:
    def __init__(self, index: Any) -> None:
        self.index = index

    def __index__(self) -> Any:
        return self.index


@pytest.mark.parametrize("fn", [hex, bin, oct, chr, operator.index])
@pytest.mark.parametrize("given", [Indexed(65), Indexed("a"), object(), 66])
def test_functions_of_an_integer_ask_objects_for_it(fn: Any, given: Any) -> None:
    def attempt(x):
        try:
            return x + 1, fn(given)
        except TypeError as error:
            return x, str(error)

    x = torch.ones(2)
    assert repr(torchdynamo.compile(attempt, backend="eager", fullgraph=True)(x)) == repr(attempt(x))


class Numbered(int):
    """An integer with another `__index__`, which C does not ask."""

    def __index__(self) -> int:
        return 0


@pytest.mark.parametrize("given", [lambda: NUMBERED, lambda: Numbered(2)])
def test_an_index_of_a_class_of_integers_is_its_value(given: Any) -> None:
    def taken(x):
        at = given()
        return x[at], x[:at], [5, 6, 7][at], (5, 6, 7)[at], [5, 6, 7][:at], range(at), "ab" * at, bin(at)

    assert_alike(taken(X), torchdynamo.compile(taken, backend="eager")(X))


NUMBERED = Numbered(2)
