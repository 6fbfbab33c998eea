"""Looking for what changed between calls runs no code of the program's, whatever lies now where something else lay."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import torchdynamo

ASKED: list[str] = []


class Making(dict):  # type: ignore[type-arg]
    def __missing__(self, key: Any) -> int:
        ASKED.append("missing")
        self[key] = 0
        return 0


class Told:
    """Has everything that lists, tensors and slices have, in Python."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            ASKED.append(name)
        raise AttributeError(name)

    def __getitem__(self, at: Any) -> Any:
        ASKED.append("item")
        raise IndexError(at)

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[Any]:
        return iter(())


def lists(held: Any, x: torch.Tensor) -> torch.Tensor:
    for item in held:
        x = x * 2 + (item if isinstance(item, int) else 1)
    return x


def tensors(held: Any, x: torch.Tensor) -> torch.Tensor:
    return x * held.sum() if isinstance(held, torch.Tensor) else x - 1


def slices(held: Any, x: torch.Tensor) -> torch.Tensor:
    return x[held] * 2 if isinstance(held, slice) else x - 1


CHANGES: dict[str, tuple[Any, list[Any]]] = {
    "items of lists": (lists, [[1, 2], [2, 3], [3, 4, 5], Making(a=1), Told(), collections.defaultdict(list)]),
    "keys of dicts": (lists, [{"a": 1, "b": 2}, {"b": 1, "c": 2}, {1: 2, 3: 4}, Making(a=1), Making(), Told()]),
    "sizes of tensors": (tensors, [torch.ones(2), torch.ones(3), torch.ones(3, 1), Told(), Making()]),
    "parts of slices": (slices, [slice(0, 1), slice(0, 2), slice(1, 3), Told(), Making()]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_nothing_of_the_programs_is_asked(name: str) -> None:
    fn, values = CHANGES[name]
    compiled = torchdynamo.compile(fn, backend="eager")
    for value in (*values, *values):
        wanted, before = fn(value, torch.ones(4)), dict(value) if isinstance(value, dict) else None
        ASKED.clear()
        assert torch.equal(compiled(value, torch.ones(4)), wanted)
        assert ASKED == []
        assert before is None or dict(value) == before
