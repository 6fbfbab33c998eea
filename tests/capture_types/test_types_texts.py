"""Texts and bytes taken apart and put together in captured frames."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from following import check

import torchdynamo

X = torch.arange(4.0)


def substitutes(x):
    seen = []

    def following(match):
        seen.append(match.group())
        return str(int(match.group()) + 1)

    text = re.sub(r"\d+", following, "a1b22c", count=1)
    kept = re.compile("b").sub(lambda match: None, "abab"), re.subn("x*", lambda match: "-", "axb")
    return x + len(seen), text, seen, kept, re.sub("a", r"<\g<0>>", "banana"), re.compile("a").subn("b", "aa")


def finds(x):
    spans = [match.span() for match in re.finditer("a.", "abacad")]
    steps = re.compile(b"\\d").finditer(b"1a2")
    return x + len(spans), spans, next(steps).group(), [match.group() for match in steps], re.split("(,)", "a,b")


def fails(x):
    try:
        re.sub("a", lambda match: 1 / 0, "banana")
    except ZeroDivisionError as error:
        return x + 1, str(error), re.sub("z", lambda match: 1 / 0, "banana")


def iterated(x):
    return x + 1, type(iter("abc")), type(iter("äbc")), list(iter("äb"))


PROGRAMS = [substitutes, finds, fails, iterated]


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_as_eager(fn: Any) -> None:
    torchdynamo.reset()
    check(fn, (X,))
