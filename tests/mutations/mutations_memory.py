"""Tensors that share memory with what is no tensor: an array of NumPy's, a bytearray."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from mutating import Mutation

Arguments = tuple[Any, ...]


def array(shared: bool) -> Arguments:
    held = np.ones(4, dtype=np.float32)
    return torch.from_numpy(held if shared else held.copy()), held


def backwards(shared: bool) -> Arguments:
    held = np.arange(4, dtype=np.float32)
    return torch.from_numpy(held if shared else held.copy()), held[::-1]


def corner(shared: bool) -> Arguments:
    held = np.arange(16, dtype=np.float32).reshape(4, 4)
    return torch.from_numpy(held[:2] if shared else held[:2].copy()), held[1:, 1:]


def octets(shared: bool) -> Arguments:
    held = bytearray(b"\x01\x02\x03\x04")
    return torch.frombuffer(held if shared else held[:], dtype=torch.uint8), held


def item_after_write(t: torch.Tensor, held: Any) -> torch.Tensor:
    t.add_(1)
    return t * int(held[0])


def sum_after_write(t: torch.Tensor, held: Any) -> torch.Tensor:
    t.add_(1)
    return t * int(sum(held.ravel()))


def item_written(t: torch.Tensor, held: Any) -> torch.Tensor:
    held[0] = 9
    return t * 2


SHARED: list[tuple[Callable[..., Any], Callable[[bool], Arguments]]] = [
    (item_after_write, array),
    (item_after_write, octets),
    (sum_after_write, array),
    (sum_after_write, backwards),
    (sum_after_write, corner),
    (item_written, octets),
]


def turned(fn: Callable[..., Any], made: Callable[[bool], Arguments]) -> Mutation:
    """They come to share memory; where they do, the function is Python's."""
    shared = [False]
    return Mutation(fn, lambda: made(shared[-1]), lambda stack: shared.append(True))


def row(fn: Callable[..., Any], made: Callable[[bool], Arguments]) -> Callable[[], Mutation]:
    named = functools.partial(turned, fn, made)
    named.__name__ = f"{fn.__name__}_of_{made.__name__}"  # type: ignore[attr-defined]
    return named


MEMORY = [row(fn, made) for fn, made in SHARED]
