"""Lists and deques that are appended to, call by call: how long they are makes no difference until somebody asks."""

from __future__ import annotations

import collections

import pytest
import torch

import torchdynamo
from torchdynamo.report.explain import collecting

X = torch.arange(4.0)


class Silent(list):
    """What a subclass says of its length is nobody's business here."""

    def __len__(self):
        return 99


def numbers(seen, x):
    seen.append(1)
    seen.extend([x * 2, "a"])
    seen += (None, x)
    return x + 1


def itself(seen, x):
    seen.append(seen)
    return x + 1


def the_same_twice(seen, x):
    made = [x]
    seen.append(made)
    seen.append(made)
    made.append(1)
    return x + 1


def read_afterwards(seen, x):
    seen.append(x)
    return x + len(seen), seen[0]


def read_before(seen, x):
    count = len(seen)
    seen.append(count)
    return x + count


def taken_away(seen, x):
    seen.append(x)
    seen.append(x + 1)
    return x + seen.pop()


def looped_over(seen, x):
    seen.extend([x, x + 1])
    return sum(each.sum() for each in seen)


def made(kind):
    return collections.deque(maxlen=5) if kind is collections.deque else kind()


BLIND = [numbers, itself, the_same_twice]
SEEING = [read_afterwards, read_before, taken_away, looped_over]


@pytest.mark.parametrize("kind", [list, Silent, collections.deque], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("fn", [*BLIND, *SEEING], ids=lambda fn: fn.__name__)
def test_as_eager(fn, kind):
    theirs, ours = made(kind), made(kind)
    fast = torchdynamo.optimize("eager")(fn)
    with collecting() as events:
        for turn in range(4):
            assert repr(fn(theirs, X + turn)) == repr(fast(ours, X + turn))
            assert repr(theirs) == repr(ours)
    if fn in BLIND:
        assert len(events) == 1


def test_what_is_appended_is_the_object():
    """Not a copy, and not made twice."""
    seen = []
    torchdynamo.optimize("eager")(the_same_twice)(seen, X)
    torchdynamo.optimize("eager")(itself)(seen, X)
    assert seen[0] is seen[1] and seen[2] is seen


def test_two_names_of_one_list():
    def both(a, b, x):
        a.append(x)
        return x + len(b)

    fast, one = torchdynamo.optimize("eager")(both), []
    assert torch.equal(fast(one, one, X), X + 1)
    assert torch.equal(fast([], one, X), X + 1)
    assert torch.equal(fast(one, [], X), X)
    assert len(one) == 2
