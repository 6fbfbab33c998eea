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


CASES = [(made, (X,)), (changed, (deque([X, X + 1, X + 2]), X))]


@pytest.mark.parametrize(("fn", "args"), CASES, ids=lambda v: getattr(v, "__name__", ""))
def test_as_eager(fn, args):
    check(fn, args)
