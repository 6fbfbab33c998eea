"""An error of the graph leaves the blocks that the frame is in, as in eager: all kinds of `with`, and `finally`."""

from __future__ import annotations

import contextlib
import decimal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import torchdynamo

LOCK, SEEN = threading.Lock(), np.zeros(1)


def unknown() -> None:
    """Do what no graph can, and leave a trace."""
    torchdynamo.graph_break()
    SEEN[0] += 1


class Late:
    """A manager whose `__exit__` ends the graph."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        unknown()


@contextlib.contextmanager
def generated() -> Iterator[None]:
    try:
        yield
    finally:
        unknown()


def settings(x: Tensor) -> Tensor:
    with np.errstate(all="raise"):
        return torch.linalg.inv(x)


def context(x: Tensor) -> Tensor:
    with decimal.localcontext(decimal.Context(prec=5)):
        return torch.linalg.inv(x)


def locked(x: Tensor) -> Tensor:
    with LOCK:
        torchdynamo.graph_break()
        return torch.linalg.inv(x)


def locked_while_drawing(x: Tensor) -> Tensor:
    with LOCK:
        torchdynamo.graph_break()
        n = np.random.rand() + torch.rand(1)
        return torch.linalg.inv(x) * n


def locked_while_writing(x: Tensor) -> Tensor:
    with LOCK:
        torchdynamo.graph_break()
        np.multiply(x.numpy(), 2, x.numpy())
        return torch.linalg.inv(x.add_(0))


def without_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        torchdynamo.graph_break()
        return torch.linalg.inv(x)


def late(x: Tensor) -> Tensor:
    with Late():
        return torch.linalg.inv(x)


def by_generator(x: Tensor) -> Tensor:
    with generated():
        return torch.linalg.inv(x)


def at_last(x: Tensor) -> Tensor:
    try:
        return torch.linalg.inv(x) + np.random.rand()
    finally:
        unknown()


def in_an_inlined_call(x: Tensor) -> Tensor:
    return at_last(x) + 1


def state() -> Any:
    """Return what blocks that are not left would leave behind."""
    held = LOCK.locked()
    if held:
        LOCK.release()
    found = held, decimal.getcontext().prec, np.geterr()["divide"], torch.is_grad_enabled(), float(SEEN[0])
    decimal.getcontext().prec = 28
    np.seterr(divide="warn", over="warn", under="ignore", invalid="warn")
    return found, np.random.rand(), torch.rand(1).item()


def seen(fn: Callable[[Tensor], Tensor]) -> Any:
    np.random.seed(0)
    torch.manual_seed(0)
    SEEN[0] = 0
    found = []
    for x in (torch.eye(2), torch.ones(2, 2), torch.eye(2) * 2, torch.ones(2, 2)):
        try:
            result = fn(x).tolist()
        except torch.linalg.LinAlgError as error:
            result = str(error)
        found.append((result, x.tolist(), state()))
    return found


PROGRAMS = [settings, context, locked, locked_while_drawing, locked_while_writing, without_grad, late, by_generator]


@pytest.mark.parametrize("fn", [*PROGRAMS, at_last, in_an_inlined_call])
def test_an_error_leaves_blocks(fn: Callable[[Tensor], Tensor]) -> None:
    expected = seen(fn)
    torchdynamo.reset()
    assert seen(torchdynamo.compile(fn, backend="eager")) == expected


def caught(x: Tensor, kind: str) -> Any:
    try:
        if kind == "division":
            return x.numpy() / 0
        return x + 1 / (np.random.randint(0, 2) - 1)
    except FloatingPointError:
        return "floating point"
    except ZeroDivisionError:
        return "division"


@pytest.mark.parametrize("kind", ["division", "draw"])
def test_errors_derived_from_those_that_operators_raise_are_heard(kind: str) -> None:
    found = []
    for fn in (caught, torchdynamo.compile(caught, backend="eager")):
        np.random.seed(0)
        with np.errstate(all="raise"):
            found.append([str(fn(torch.ones(1), kind)) for _ in range(5)])
    assert found[0] == found[1]
