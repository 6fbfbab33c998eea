"""Errors that only values decide, raised where the frame catches them: what comes of that is what eager makes of it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo import _native


class Quiet:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return True


class Noting:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.seen = error[0]


@contextlib.contextmanager
def swallowing() -> Iterator[None]:
    try:
        yield
    except IndexError:
        pass


@contextlib.contextmanager
def passing() -> Iterator[None]:
    try:
        yield
    finally:
        pass


def in_try(x, i):
    try:
        return x[i]
    except IndexError:
        return x


def in_another_error(x, i):
    try:
        return x[i]
    except IndexError as error:
        raise KeyError(1) from error


def in_with(x, i):
    with Quiet():
        x = x[i]
    return x + 1


def in_generator_context(x, i):
    with swallowing():
        x = x[i]
    return x + 1


def in_suppress(x, i):
    with contextlib.suppress(IndexError):
        return picked(x, i)
    return x


def picked(x, i):
    return x[i]


def through_contexts(x, i):
    try:
        with Noting(), torch.no_grad(), passing():
            return picked(x, i)
    except Exception as error:
        return str(error)


def after_a_write(x, i):
    x.add_(1)
    try:
        return x[i]
    except IndexError:
        return x


def of_linalg(x, i):
    try:
        return torch.linalg.cholesky(torch.eye(2) * (4.5 - i[0]))
    except RuntimeError:
        return x


def across_breaks(x, i):
    """The rest of a `with` is a function of its own, which finds its `__exit__` on its stack."""
    notes = []
    with Quiet(), Noting():
        notes.append(x[i[0]])
        print(end="")
        notes.append(x[i[1] + 1])
        notes.append("all")
    try:
        notes.append(x[i])
        print(end="")
        notes.append(x[i + 1])
    except IndexError:
        notes.append("end")
    return notes


def attempt(fn: Callable[..., Any], *args: Any) -> Any:
    try:
        return fn(*args)
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize(
    "fn",
    [in_try, in_another_error, in_with, in_generator_context, in_suppress, through_contexts, of_linalg, after_a_write],
)
def test_caught(fn: Callable[..., Any]) -> None:
    compiled = torchdynamo.compile(fn, backend="eager")
    for index in (torch.tensor([1, 2]), torch.tensor([9, 2]), torch.tensor([3, 0])):
        assert repr(attempt(compiled, torch.arange(4.0), index)) == repr(attempt(fn, torch.arange(4.0), index))
    [entry] = _native.cache_entries(fn.__code__)
    assert entry.info.why is None


def handled_by_nobody(x, i):
    with Noting(), torch.no_grad(), passing():
        return picked(x.add_(1), i)


def test_who_only_passes_it_on_needs_no_care() -> None:
    """A graph that writes to its inputs cannot be run again, and need not be."""
    compiled = torchdynamo.compile(handled_by_nobody, backend="eager", fullgraph=True)
    assert compiled(torch.arange(4.0), torch.tensor([1])).item() == 2
    with pytest.raises(IndexError):
        compiled(torch.arange(4.0), torch.tensor([9]))


def test_caught_across_breaks() -> None:
    compiled = torchdynamo.compile(across_breaks, backend="eager")
    for pair in ((0, 1), (1, 3), (3, 1), (9, 1), (1, 9), (0, 1)):
        index = torch.tensor(pair)
        assert repr(compiled(torch.arange(4.0), index)) == repr(across_breaks(torch.arange(4.0), index))


@pytest.mark.parametrize("calculate", [math.acos, lambda number: 1 / number, math.log], ids=["acos", "divide", "log"])
def test_numbers_that_vary(calculate: Callable[[float], float]) -> None:
    def step(x, number):
        notes = [number]
        try:
            x = x * calculate(number)
        except (ValueError, ZeroDivisionError) as error:
            notes.append(str(error))
        return x, notes

    compiled = torchdynamo.compile(step, backend="eager")
    for number in (0.5, 0.6, -2.0, 0.7, 0.0, 0.8):
        assert repr(compiled(torch.ones(2), number)) == repr(step(torch.ones(2), number))


def waiting_for_others(x, i):
    try:
        x.index_copy_(0, i, x[:2] * 2)
    except NotImplementedError:
        x[i] = 0
    try:
        return x[i] + 1
    except (KeyError, OSError) as error:
        return error


def test_who_waits_for_another_error_does_not_hear() -> None:
    compiled = torchdynamo.compile(waiting_for_others, backend="eager", fullgraph=True)
    for i in (torch.tensor([0, 1]), torch.tensor([3, 2])):
        mine, eagers = torch.arange(4.0), torch.arange(4.0)
        assert torch.equal(compiled(mine, i), waiting_for_others(eagers, i))
        assert torch.equal(mine, eagers)
    with pytest.raises(IndexError):
        compiled(torch.arange(4.0), torch.tensor([7, 1]))


def waiting_for_another(x, i):
    try:
        return x[i] + 1
    except (KeyError, OSError) as error:
        return error


def test_another_error_of_that_name(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = torchdynamo.compile(waiting_for_another, backend="eager")
    i = torch.tensor([7, 1])
    with pytest.raises(IndexError):
        compiled(torch.arange(4.0), i)
    monkeypatch.setitem(globals(), "OSError", IndexError)
    assert type(compiled(torch.arange(4.0), i)) is IndexError
