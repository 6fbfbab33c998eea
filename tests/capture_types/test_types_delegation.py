"""`yield from`: what is sent and thrown goes to the generator inside."""

from __future__ import annotations

import pytest
import torch
from following import check

X = torch.arange(3.0)


def inner(log):
    got = yield 1
    log.append(got)
    try:
        yield got * 2
    except ValueError as error:
        log.append(str(error))
        yield 99
    finally:
        log.append("finally")
    return 7


def outer(log):
    result = yield from inner(log)
    log.append("out")
    yield result


def catching(log):
    try:
        yield from inner(log)
    except KeyError:
        log.append("key")
        yield 5


def over_list():
    try:
        yield from [1, 2, 3]
    except ValueError:
        yield 8


def ending():
    try:
        yield 1
    except ValueError:
        return 3


def goes_on():
    yield (yield from ending())


def sent_and_thrown(x):
    log = []
    steps = outer(log)
    return x + 1, next(steps), steps.send(5), steps.throw(ValueError("a")), next(steps), list(steps), log


def thrown_through(x):
    log = []
    steps = catching(log)
    return x + 1, next(steps), steps.send(5), steps.throw(KeyError("a")), log


def thrown_at_a_list(x):
    steps = over_list()
    return x + 1, next(steps), steps.throw(ValueError("a"))


def returned_from(x):
    steps = goes_on()
    return x + 1, next(steps), steps.throw(ValueError("a")), list(steps)


def closed(x):
    log = []
    steps = outer(log)
    next(steps)
    steps.send(1)
    steps.close()
    return x + 1, log


def not_caught(x):
    log = []
    steps = catching(log)
    next(steps)
    steps.send(1)
    try:
        steps.throw(TypeError("t"))
    except TypeError as error:
        log.append(repr(error))
    return x + 1, log


def sent_to_a_list(x):
    steps = over_list()
    next(steps)
    try:
        steps.send(3)
    except AttributeError as error:
        return x + 1, str(error)


class Refusing:
    """An iterator with a `throw` of its own, which ends or goes on."""

    def __init__(self):
        self.left = 2

    def __iter__(self):
        return self

    def __next__(self):
        return self.left

    def throw(self, error):
        self.left -= 1
        if not self.left:
            raise StopIteration(str(error))
        return -self.left


def thrown_at_an_object(x):
    def delegating():
        yield (yield from Refusing())

    steps = delegating()
    first = next(steps), steps.throw(ValueError("a"))
    return x + 1, first, steps.throw(ValueError("b")), list(steps)


def closed_in_the_middle(x):
    log = []

    def delegating():
        try:
            yield from inner(log)
        finally:
            log.append("outer")

    steps = delegating()
    next(steps)
    steps.send(1)
    steps.close()
    return x + 1, log, list(steps)


PROGRAMS = [
    sent_and_thrown,
    thrown_through,
    thrown_at_a_list,
    thrown_at_an_object,
    returned_from,
    closed,
    closed_in_the_middle,
    not_caught,
    sent_to_a_list,
]


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_as_eager(fn):
    check(fn, (X,))
