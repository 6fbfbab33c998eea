"""io.StringIO and io.BytesIO made in a frame, and what print writes to them."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch

import torchdynamo

X = torch.ones(3)


def written(x):
    s = io.StringIO()
    s.write("a")
    s.writelines(["b", "c\n"])
    print("q", 1, [2], sep="-", file=s)
    return x, s.getvalue(), s.tell(), s.seekable(), s.truncate(2), s.getvalue(), s.seek(0), s.read()


def read(x):
    s = io.StringIO("a\nb\n\nc")
    return x, s.read(1), s.readline(), [line * 2 for line in s], s.readlines(), s.closed


def returned(x):
    s = io.StringIO("ab\ncd")
    s.readline()
    s.write("Z")
    return x, s


def with_its_own_lines(x):
    s = io.StringIO("a\r\nb", newline=None)
    return x, s.getvalue(), list(s)


def closed(x):
    with io.StringIO() as s:
        s.write("q")
        text = s.getvalue()
    try:
        s.write("r")
    except ValueError as error:
        return x, text, s.closed, str(error)


def of_bytes(x):
    s = io.BytesIO(b"abc")
    return x, s.read(2), s.getvalue(), s.seek(0, 2), s.write(b"d"), s


def print_to_the_users(x):
    class Words:
        def __init__(self):
            self.words = []

        def write(self, word):
            self.words.append(word)

    words = Words()
    print(1, "a", sep=None, end="!", file=words)
    return x, words.words


def print_refuses(x):
    s = io.StringIO()
    try:
        print(1, sep=3, file=s)
    except TypeError as error:
        return x, str(error), s.getvalue()


def wrong_text(x):
    try:
        io.StringIO().write(b"a")
    except TypeError as error:
        return x, str(error)


def shown(result: tuple[Any, ...]) -> str:
    return str([(each.getvalue(), each.tell()) if hasattr(each, "getvalue") else each for each in result])


ROWS = [written, read, returned, with_its_own_lines, closed, of_bytes, print_to_the_users, print_refuses, wrong_text]


@pytest.mark.parametrize("fn", ROWS)
def test_as_eager(fn: Any) -> None:
    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=True)
    for _ in range(2):
        assert shown(compiled(X)) == shown(fn(X))


def test_given() -> None:
    """What is in one that existed is another in each call."""

    def fn(x, file):
        y = x + 1
        file.write("a")
        return y * 2

    torchdynamo.reset()
    compiled, file = torchdynamo.compile(fn, backend="eager"), io.StringIO()
    for _ in range(2):
        assert torch.equal(compiled(X, file), X * 4)
    assert file.getvalue() == "aa"
