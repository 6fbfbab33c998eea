"""Classes that extend Python's own: their instances are made again past what they say of being made, which has run."""

from __future__ import annotations

import collections

import pytest
import torch
from pictures import assert_alike

import torchdynamo

# ruff: noqa: UP031

X = torch.arange(3.0)
LOG: list[str] = []


def told(name, method):
    """The method, which says in the log that it ran."""

    def run(self, *args, **kwargs):
        LOG.append(name)
        return method(self, *args, **kwargs)

    return run


def telling(base, *names):
    """A class whose methods all say that they ran."""
    return type("Telling", (base,), {name: told(name, getattr(base, name)) for name in names})


class Twice(tuple):
    def __new__(cls, item):
        LOG.append("new")
        return super().__new__(cls, (item, item))

    def __init__(self, item):
        LOG.append("init")
        self.item = item


class Doubled(collections.namedtuple("Doubled", "a b")):
    def __new__(cls, item):
        LOG.append("new")
        return super().__new__(cls, item, item)


class Line(telling(list, "append", "extend", "__setitem__", "__len__")):
    def __init__(self, item):
        super().__init__([item])

    def __iter__(self):
        LOG.append("iter")
        return iter([9])


class Table(telling(dict, "__setitem__", "__delitem__", "update", "clear")):
    def __new__(cls, *args):
        LOG.append("new")
        return super().__new__(cls)

    def __init__(self, item):
        super().__init__(a=item)

    def keys(self):
        return ["not these"]

    def views(self):
        return super().keys(), super().values(), super().items()


class Ordered(telling(collections.OrderedDict, "__setitem__", "__delitem__", "update", "clear", "keys")):
    def __init__(self, item):
        super().__init__(a=item)


class Filling(telling(collections.defaultdict, "__setitem__")):
    def __init__(self, item):
        super().__init__(int, z=item)


class Bag(telling(set, "add", "discard", "update")):
    def __init__(self, item):
        super().__init__([item])


class Queue(telling(collections.deque, "append", "extend", "clear")):
    def __init__(self, item):
        super().__init__([item], 3)


class Tally(telling(collections.Counter, "__setitem__")):
    def __init__(self, item):
        super().__init__([item])


class Plain:
    def __new__(cls, *args):
        LOG.append("new")
        return super().__new__(cls)

    def __init__(self, item):
        self.item = item

    def __setattr__(self, name, value):
        LOG.append("set")
        super().__setattr__(name, value)

    def __reduce__(self):
        LOG.append("reduce")
        return Plain, (1,)


class Oops(Exception):
    def __new__(cls, *args):
        LOG.append("new")
        return super().__new__(cls, *args, 1)

    def __init__(self, item):
        LOG.append("init")
        self.item = item


class Letters(dict):
    def __init__(self):
        super().__init__()
        self.made = True

    def __setitem__(self, key, value):
        super().__setitem__(key * 2, value)


def as_eager(fn, *makers, fullgraph=True):
    """Result, arguments and log of the first and of later calls."""
    torchdynamo.reset()
    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=fullgraph)
    outcomes = []
    for call in (fn, compiled, compiled):
        args = [make() for make in makers]
        LOG.clear()
        outcomes.append((call(X, *args), args, list(LOG)))
    assert_alike(outcomes[0], outcomes[1])
    assert_alike(outcomes[0], outcomes[2])
    assert outcomes[1][0][1] is not outcomes[2][0][1]


MADE = [Twice, Doubled, Line, Table, Ordered, Filling, Bag, Queue, Tally, Plain, Oops]


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("cls", MADE, ids=lambda cls: cls.__name__)
def test_made(cls, fullgraph):
    def make(x):
        return x + 1, cls(2)

    as_eager(make, fullgraph=fullgraph)


CHANGES = [
    (Line, lambda box: (box.append(3), box.extend([4]), box.__setitem__(0, 5))),
    (Table, lambda box: (box.__setitem__("b", 3), box.update(c=1), box.pop("a"))),
    (Table, lambda box: box.clear()),
    (Ordered, lambda box: (box.__setitem__("b", 3), box.update(c=1), box.pop("a"))),
    (Ordered, lambda box: (box.__setitem__("b", 3), box.move_to_end("a"))),
    (Filling, lambda box: (box["q"], box.__setitem__("b", 3))),
    (Bag, lambda box: (box.add(3), box.discard(2), box.update([7]))),
    (Queue, lambda box: (box.append(3), box.extend([3, 4]))),
    (Tally, lambda box: (box.update("a"), box.__setitem__("k", 3))),
    (Plain, lambda box: setattr(box, "item", 4)),
]


@pytest.mark.parametrize(("cls", "change"), CHANGES, ids=lambda each: getattr(each, "__name__", ""))
def test_changed(cls, change):
    def changes(x, box):
        y = x + 1
        change(box)
        return y, [box]

    as_eager(changes, lambda: cls(2), fullgraph=False)


def test_views_past_the_class():
    def views(x):
        return x + 1, Table(1).views()

    as_eager(views)


def test_fromkeys_calls_the_class():
    def letters(x):
        return x + 1, Letters.fromkeys("ab", 1)

    as_eager(letters)


def test_results_of_operators():
    def results(x):
        return x + 1, [x.max(0), x.sort()]

    as_eager(results)


def test_text_of_tuples():
    def text(x):
        return x + 1, ["%s %s" % Twice(1), Doubled(2) + (1,)]

    as_eager(text)
