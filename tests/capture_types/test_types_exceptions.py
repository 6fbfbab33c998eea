"""Exceptions that are made, raised, caught, kept and asked about: what eager Python says of them is what we say."""

from __future__ import annotations

import sys
import threading

import pytest
import torch
from following import check
from pictures import assert_alike

import torchdynamo

# Programs that are wrong are what is tested.
# ruff: noqa: B030, B904, C408, F821, PLE0704

X = torch.arange(4.0)


class Own(Exception):
    def __init__(self, code, self_=0):
        super().__init__(f"code {code}")
        self.code = code


def made_and_returned(x):
    stop, system, missing = StopIteration(2), SystemExit(3), FileNotFoundError(2, "gone", "name")
    return x + 1, stop, stop.value, system, system.code, missing, missing.errno, OSError(2, "gone"), Own(5)


def with_keywords(x):
    error = ImportError("no", name="module", path="there")
    unset = AttributeError("a")
    return x + 1, error, error.name, error.path, error.msg, unset.name, str(error)


def causes(x):
    error, cause = ValueError(1), KeyError("k")
    error.__cause__ = cause
    return x + 1, error.__cause__ is cause, error.__suppress_context__, cause.__cause__, error.__traceback__, str(cause)


def caught_and_forgotten(x):
    try:
        raise Own(3) from KeyError("why")
    except (ValueError, Own) as error:
        return x * error.code, str(error), str(error.__cause__), error.args


def nothing_handled(x):
    return sys.exc_info() == (None, None, None), x + 1


def keyword_named_self(x):
    def inner(**kwargs):
        return kwargs

    return inner(self=x, vm=1, fn=2, cls=3), dict(self=1), x + 1


def own_locks(x):
    lock, again = threading.Lock(), threading.RLock()
    held = threading.Lock()
    held.acquire()
    with lock, again, again:
        inside = lock.locked(), lock.acquire(False)
    return x + 1, inside, lock.locked(), held.locked()


@pytest.mark.parametrize(
    "fn",
    [made_and_returned, with_keywords, causes, caught_and_forgotten, nothing_handled, keyword_named_self, own_locks],
)
def test_as_eager(fn):
    check(fn, (X,))


def story(error):
    """An exception and where it comes from."""
    if error is None:
        return None
    fields = [getattr(error, name, None) for name in ("value", "code", "errno", "name")]
    chain = story(error.__cause__), story(error.__context__), error.__suppress_context__
    return type(error), error.args, fields, chain, error.__traceback__ is None


def kept_after_handling(x, log):
    y = x + 1
    try:
        try:
            raise KeyError(1)
        except KeyError:
            raise ValueError(2)
    except ValueError as error:
        log.append(error)
    return y * 2


def kept_with_cause(x, log):
    try:
        raise StopIteration(5) from Own(3)
    except StopIteration as error:
        log.append(error)
    return x + 1


def raised_again(x, log):
    y = x + 1
    try:
        raise log[0]
    except ValueError as error:
        return y, error.__context__ is None


def written(x, log):
    log[0].__context__ = KeyError(3)
    log[0].__cause__ = Own(1)
    return x + 1


def wrong_cause(x, log):
    y = x + 1
    log.append(y)
    raise ValueError(1) from 3


def wrong_class(x, log):
    y = x + 1
    try:
        raise ValueError(1)
    except 3:
        return y


def no_keywords(x, log):
    y = x + 1
    return y, ValueError(a=1)


def nothing_to_raise(x, log):
    y = x + 1
    log.append(y)
    raise


def kept_by_an_inner_function(x, log):
    y = x + 1

    def inner():
        return error

    try:
        y.no_such_thing()
    except AttributeError:
        log.append(type(inner()))
    return y


@pytest.mark.parametrize("handling", [False, True])
@pytest.mark.parametrize(
    "fn",
    [
        *(kept_after_handling, kept_with_cause, raised_again, written),
        *(wrong_cause, wrong_class, no_keywords, nothing_to_raise, kept_by_an_inner_function),
    ],
)
def test_stories_as_eager(fn, handling):
    def outcome(call, log):
        try:
            result = call(X, log)
        except Exception as error:
            result = story(error)
        return result, [story(each) if isinstance(each, BaseException) else each for each in log]

    found = []
    for call in (fn, torchdynamo.compile(fn, backend="eager")):
        for _ in range(2):
            log = [ValueError("entry")]
            if handling:
                try:
                    raise LookupError("outer")
                except LookupError:
                    found.append(outcome(call, log))
            else:
                found.append(outcome(call, log))
    for other in found[1:]:
        assert_alike(found[0], other)
