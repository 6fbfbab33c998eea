"""Things wrapped round other things: bars round loops, proxies round objects, partial methods, iterators."""

from __future__ import annotations

import functools
import subprocess
import sys
import weakref
from typing import Any

import pytest
import torch
from following import check

import torchdynamo

X = torch.arange(4.0)


class Counted:
    """A loop that counts its turns, as progress bars do."""

    def __init__(self, items, **settings):
        self.items, self.turns, self.settings = items, 0, settings

    def __len__(self):
        return len(self.items)

    def __iter__(self):
        for item in self.items:
            self.turns += 1
            yield item

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.closed = True


class Prefetching:
    def __init__(self, items):
        self.items = items

    def __iter__(self):
        self.steps = iter(self.items)
        self.ahead = next(self.steps, None)
        return self

    def __next__(self):
        if self.ahead is None:
            raise StopIteration
        item, self.ahead = self.ahead, next(self.steps, None)
        return item


def filled(self, a, b=1, *, c):
    self.parts = a, b, c


class Partly:
    __init__ = functools.partialmethod(filled, b=5)
    add = functools.partialmethod(filled, 7, c=8)


class Named:
    def __init__(self, **given):
        self.__dict__.update(given)


def counted(x):
    with Counted(range(3), colour="red") as bar:
        for at in bar:
            x = x + at
    return x, bar.turns, bar.closed, len(bar), bar.settings


def wrapped_twice(x):
    bar = Counted(Prefetching([x, x + 1, x * 2]))
    return sum(bar), bar.turns, [at for at, _ in enumerate(zip(Counted("ab"), Prefetching([1, 2, 3])))]


def partial_methods(x):
    made = Partly(1, c=x)
    first = made.parts
    made.add(b=3)
    return first[2] + 1, first[:2], made.parts


def proxies(x):
    thing = Named(value=x)
    proxy = weakref.proxy(thing)
    proxy.more = proxy.value + 1
    try:
        return thing.more, proxy.absent
    except AttributeError as error:
        return thing.more, str(error)


@pytest.mark.parametrize("fn", [counted, wrapped_twice, partial_methods, proxies], ids=lambda fn: fn.__name__)
def test_as_eager(fn: Any) -> None:
    check(fn, (X,))


def dead_proxy(x):
    proxy = weakref.proxy(Named(value=1))
    try:
        return x + proxy.value
    except ReferenceError as error:
        return x, str(error)


def test_dead_proxy() -> None:
    assert str(torchdynamo.compile(dead_proxy, backend="eager")(X)) == str(dead_proxy(X))


BARS = """
import io, torch, torchdynamo, tqdm

X = torch.ones(3)

def off(x):
    with tqdm.tqdm(range(3), disable=True) as bar:
        for at in bar:
            x = x + at
            bar.set_postfix(at=at)
    return x, len(bar), bar.disable

def drawn(x, out):
    for at in tqdm.tqdm(range(3), file=out):
        x = x + at
    return x

compiled = torchdynamo.compile(off, backend="eager", fullgraph=True)
for _ in range(2):
    assert torch.equal(compiled(X)[0], X + 3) and compiled(X)[1:] == (3, True)
out = io.StringIO()
assert torch.equal(torchdynamo.compile(drawn, backend="eager")(X, out), X + 3) and "3/3" in out.getvalue()
again = torchdynamo.compile(lambda x: off(x), backend="eager", fullgraph=True)  # now that there have been others
assert torch.equal(again(X)[0], X + 3)
"""


def test_bars() -> None:
    """Those that are switched off are in the graph; those that draw are Python's, and leave a thread behind."""
    done = subprocess.run([sys.executable, "-c", BARS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
