"""collections.deque."""

from __future__ import annotations

from collections import deque

import pytest
import torch
from following import check

X = torch.arange(4.0)


def made(x):
    d = deque([x, x + 1], maxlen=2)
    d.append(x * 2)
    d.appendleft(x * 3)
    return d, len(d), d[0], d.maxlen, 2 in deque([1, 2])


def changed(d, x):
    d.append(x)
    first = d.popleft()
    d.rotate(1)
    return first + d[0]


class Noted:
    """Says whom it was compared with."""

    def __init__(self, number, seen):
        self.number, self.seen = number, seen

    def __eq__(self, other):
        self.seen.append((self.number, other.number))
        return self.number == other.number


class Growing:
    """Makes the deque longer when it is compared."""

    def __init__(self, box, equal):
        self.box, self.equal = box, equal

    def __eq__(self, other):
        self.box.append(None)
        return self.equal


def searched(x, search):
    seen = []
    d = deque([Noted(1, seen), Noted(2, seen), Noted(3, seen)])
    return x, search(d, Noted(2, seen)), len(d), seen


def searched_while_it_grows(x, search, equal):
    d = deque()
    d.extend([Growing(d, False), Growing(d, equal)])
    try:
        return x, search(d, 5), len(d)
    except (IndexError, RuntimeError) as error:
        return x, type(error), str(error), len(d)


SEARCHES = (deque.remove, deque.index, deque.count, deque.__contains__)
CASES = [
    (made, (X,)),
    (changed, (deque([X, X + 1, X + 2]), X)),
    *((searched, (X, search)) for search in SEARCHES),
    *((searched_while_it_grows, (X, search, equal)) for search in SEARCHES for equal in (True, False)),
]


@pytest.mark.parametrize(("fn", "args"), CASES, ids=lambda v: getattr(v, "__name__", ""))
def test_as_eager(fn, args):
    check(fn, args)
