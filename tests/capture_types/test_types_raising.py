"""Programs that raise, print, draw or make classes: a graph before, Python in between, and the outcome is eager's."""

from __future__ import annotations

import copy
import itertools
import random
import threading
import warnings
from collections import OrderedDict, defaultdict, deque
from typing import Any

import pytest
import torch
from pictures import assert_alike

import torchdynamo

X = torch.arange(4.0)
CASES: list[Any] = []


def case(*args: Any) -> Any:
    """The function below is compiled and called with these arguments."""

    def register(fn: Any) -> Any:
        CASES.append(pytest.param(fn, args, id=fn.__name__))
        return fn

    return register


@case(X, [])
def raised_after_append(x, log):
    y = x + 1
    log.append(y)
    raise ValueError("after", len(log))


@case(X, {"a": 1})
def missing_key(x, d):
    d["b"] = x * 2
    return d["c"]


@case(X, [1, 2])
def index_out_of_range(x, items):
    items[0] = x + 1
    return items[7]


class Box:
    def __init__(self, x):
        self.x = x
        self.log = deque(maxlen=3)


@case(X, Box(X))
def attribute_error_in_helper(x, box):
    def helper(b):
        b.log.append("helper")
        return b.nothing

    box.x = x + 5
    return helper(box)


@case(X, [])
def raised_through_finally(x, log):
    try:
        x = x * 2
        raise KeyError("through")
    finally:
        log.append("finally")
        log.append(x)


@case(X, [])
def raised_in_with(x, log):
    class_ = Closing(log)
    with class_ as c:
        c.log.append(x + 1)
        raise RuntimeError("inside")


class Closing:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, value, traceback):
        self.log.append((kind.__name__, str(value), traceback is not None))
        return False


@case(X)
def caught_outside(x):
    out = []
    for n in range(3):
        try:
            out.append(10 // (1 - n) + x)
        except ZeroDivisionError as error:
            out.append(str(error))
    return out


@case(X)
def chained_errors(x):
    try:
        raise ValueError(str(x.shape[0]))
    except ValueError as error:
        raise TypeError("outer") from error


@case(X)
def warned(x):
    y = x + 1
    warnings.warn("careful", stacklevel=1)
    return y * 2


@case(X)
def drawn(x):
    y = x + 1
    n = random.random()
    return y * n, random.randint(0, 100), [random.choice("abc") for _ in range(3)]


@case(X)
def class_made(x):
    y = x + 1

    class Inner:
        k = 3

        def run(self, v):
            return v * self.k

    return Inner().run(y)


@case(X, [3, 1])
def printed(x, items):
    items.sort()
    y = x + items[0]
    print("half way", items)
    items.append(4)
    return y + len(items)


@case(X, OrderedDict(a=1), defaultdict(list), deque([1, 2]))
def containers_over_a_break(x, o, d, q):
    o["b"] = x + 1
    o.move_to_end("a")
    d["k"].append(o["b"])
    q.appendleft(x)
    print("break")
    o["c"] = d["k"][0] * 2
    q.rotate(1)
    return list(o), d, q


@case(X)
def iterators_over_a_break(x):
    pairs = zip([1, 2, 3], itertools.count())
    first = next(pairs)
    y = x + first[0]
    print("break")
    return y, list(itertools.islice(pairs, 2))


@case(X)
def generator_over_a_break(x):
    def steps():
        for i in range(3):
            yield x * i

    it = steps()
    a = next(it)
    print("break")
    return a, list(it)


@case(X)
def closure_over_a_break(x):
    total = 0

    def add(n):
        nonlocal total
        total += n
        return total

    add(1)
    y = x + total
    print("break")
    add(2)
    return y + total, total


LOCK = threading.Lock()


@case(X)
def lock_of_the_module(x):
    y = x + 1
    with LOCK:
        y = y * 2
    return y - 1


@case(X)
def tuple_key_error(x):
    return {(1, 2): x}[1, 3]


@case(X)
def stop_iteration(x):
    return next(iter([])) + x


@case(X)
def wrong_arguments(x):
    def f(a, *, b):
        return a

    return f(x + 1)


@case(X)
def generator_ignores_exit(x):
    def g():
        try:
            yield x
        except GeneratorExit:
            yield x + 1

    it = g()
    next(it)
    it.close()


@pytest.mark.parametrize(("fn", "args"), CASES)
@pytest.mark.filterwarnings("ignore:careful")
def test_outcome(fn: Any, args: tuple[Any, ...]) -> None:
    compiled = torchdynamo.compile(fn, backend="eager")
    theirs, wanted = outcome(fn, args)
    for _ in range(2):
        mine, got = outcome(compiled, args)
        assert_alike((wanted, theirs), (got, mine))


def outcome(fn: Any, args: tuple[Any, ...]) -> tuple[Any, Any]:
    """The arguments afterwards, and what was returned or raised."""
    given = copy.deepcopy(args)
    random.seed(0)
    torch.manual_seed(0)
    try:
        return given, ("returned", fn(*given))
    except Exception as error:
        cause = error.__cause__
        return given, ("raised", type(error), error.args, type(cause))
