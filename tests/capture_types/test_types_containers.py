"""What containers do at their edges: the order of sets, who is asked which question, what is changed meanwhile."""

from __future__ import annotations

import bisect
import copy
import functools
import heapq
from collections import deque

import pytest
import torch
from following import check
from pictures import assert_alike

import torchdynamo

# ruff: noqa: C405

X = torch.arange(4.0)
NEAR = {3, 11, 19, 1, 9}
FROZEN = frozenset(["b", "a", "c"])


class Always:
    def __eq__(self, other):
        return True

    __hash__ = None


class Never(Always):
    def __eq__(self, other):
        return False


class Words(list):
    def __init__(self, items, name=None):
        super().__init__(items)
        self.name = name


def histories(x):
    grown, from_list, from_dict, smaller = set(), set([8, 0, 16, 24]), set(dict.fromkeys([16, 0, 8])), {8, 0, 16, 24, 5}
    for n in (24, 8, 0, 16):
        grown.add(n)
    smaller.discard(8)
    smaller.add(40)
    orders = [list(s) for s in (grown, from_list, from_dict, smaller, grown | from_list, smaller - {0}, NEAR, FROZEN)]
    return x + 1, orders, {*grown}, sorted(smaller)


def methods(x):
    s = {1, 2}
    nothing = s.update([3], (4,)), s.intersection_update({1, 3, 4}), s.symmetric_difference_update([1, 9])
    t = s
    t |= {5}
    t &= frozenset([5, 3])
    d = {"a": 1}
    e = d
    e |= [("b", 2)]
    return x + 1, nothing, t is s, sorted(s), s.issubset([3, 5, 7]), d, d.update(c=3), {1} <= {1, 2}, s.union("a") > s


def wrong_operands(x):
    found = []
    for operator in ("__or__", "__and__", "__sub__", "__xor__", "__le__", "__lt__", "__eq__", "__ior__"):
        found.append(getattr({1}, operator)([1]))
    return x + 1, found


def questions(x):
    always, never = Always(), Never()
    box, line = [never], deque([never])
    return (
        x + 1,
        always in box,
        never in box,
        box.count(always),
        always in line,
        [always].index(3),
        (never,) == (always,),
    )


def made_anew(x):
    box, line, keys = [1, 2], deque([1, 2]), {1, 2}
    box.__init__([3])
    line.__init__([3], 1)
    keys.__init__([3])
    return x + 1, box, line, keys, Words([1, x], name="n"), Words("ab").name


def sorted_by_code(x):
    by_size = sorted([3, -1, 2], key=functools.cmp_to_key(lambda a, b: abs(b) - abs(a)))
    return x + 1, by_size, sorted([(1, [2]), (1, [1])]), max([[1], [2]])


class Pair(tuple):
    def __new__(cls, first, second):
        self = super().__new__(cls, (first, second, 3))
        self.own = 1
        return self


def heaps(x):
    heap = [5, 3, 8, 1]
    heapq.heapify(heap)
    heapq.heappush(heap, 2)
    line = [1, 4, 9]
    bisect.insort(line, 4)
    bisect.insort_left(line, 0, key=abs)
    popped = heapq.heappop(heap), heapq.heapreplace(heap, 7), heapq.heappushpop(heap, 0)
    return x + popped[0], heap, popped, line, bisect.bisect(line, 4)


VIEW = {"a": 1}.keys()


def tuples_of_own_making(x):
    return x + 1, Pair(x, 2), Pair(1, 2).own


KEPT = {"part": slice(1, 3), "by": 2}


def kept_slices(x):
    return x[KEPT["part"]] * KEPT["by"], KEPT["part"].start, [1, 2, 3][KEPT["part"]]


@pytest.mark.parametrize(
    "fn",
    [
        heaps,
        kept_slices,
        tuples_of_own_making,
        histories,
        methods,
        wrong_operands,
        questions,
        made_anew,
        sorted_by_code,
    ],
    ids=lambda fn: fn.__name__,
)
def test_as_eager(fn):
    check(fn, (X,))


def init_of_argument(x, box, keys):
    y = x + 1
    box.__init__([5])
    keys.add(7)
    keys.discard(1)
    return y, list(keys)


def grows_meanwhile(x, box, keys):
    y = x + 1
    for key in keys:
        keys.add(key + 1)
    return y


def view_that_existed(x, box, keys):
    return x + 1, list(VIEW)


def only_next(x, box, keys):
    class OnlyNext:
        def __next__(self):
            raise StopIteration

    y = x + 1
    return y, list(OnlyNext())


def map_of_nothing(x, box, keys):
    return x + 1, list(map())


def asks_itself(x, box, keys):
    def items():
        yield 1
        yield next(running)

    running = items()
    return x + 1, list(running)


def bad_pairs(x, box, keys):
    y, d = x + 1, {}
    box.append(d)
    d.update([(1, 2), 3])
    return y


def insort_before_the_list(x, box, keys):
    y = x + 1
    bisect.insort(box, 1, hi=-1)
    bisect.insort(box, 1, lo=-1)
    return y


OUTCOMES = [init_of_argument, grows_meanwhile, view_that_existed, only_next, map_of_nothing, asks_itself, bad_pairs]


@pytest.mark.parametrize(
    "fn",
    [*OUTCOMES, insort_before_the_list],
    ids=lambda fn: fn.__name__,
)
def test_outcomes_as_eager(fn):
    found = []
    for call in (fn, torchdynamo.compile(fn, backend="eager")):
        args = copy.deepcopy((X, [1, 2], {8, 0, 1}))
        try:
            result = call(*args)
        except Exception as error:
            result = (type(error), error.args)
        found.append((result, args[1], list(args[2])))
    assert_alike(*found)


def test_equal_sets_in_another_order():
    def listed(x, keys):
        return x + 1, list(keys)

    compiled = torchdynamo.compile(listed, backend="eager", fullgraph=True)
    for keys in ({8, 0}, {0, 8}, {8, 0}):
        assert compiled(X, keys)[1] == list(keys)


@pytest.mark.filterwarnings("error::torchdynamo.errors.FallbackWarning")
@pytest.mark.parametrize("name", ["issubset", "issuperset", "isdisjoint", "union", "__contains__", "__eq__"])
def test_methods_of_instances_that_are_only_passed_on(name):
    class Letters(frozenset):
        pass

    given = Letters("ab")
    method = getattr(given, name)

    def fn(x):
        return x + 1, method("a"), getattr(frozenset, name)(given, "abc")

    assert_alike(fn(X), torchdynamo.compile(fn, backend="eager")(X))
