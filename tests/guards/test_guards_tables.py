"""Guards find a key wherever the table of its dict has it: among keys of its hash, and where others were deleted."""

from __future__ import annotations

import random
from collections.abc import Hashable
from typing import Any

import pytest
import torch

import torchdynamo

STEP = 1 << 61  # minus one is the modulus of Python's hashes: what differs by a multiple of it has one hash
SIZES = [0, 1, 5, 84, 85, 86, 170, 300, 22_000]  # on both sides of where the width of a table's numbers changes


def collides(number: int, times: int) -> int:
    """Return another integer of the same hash."""
    return number + times * (STEP - 1)


WANTED: dict[str, Hashable] = {
    "an integer": 7,
    "an integer of a hash of others": collides(7, 3),
    "a float": 7.5,
    "a tuple": (7, "a"),
    "a string": "seven",
}


def filled(size: int) -> dict[Any, float]:
    """Return a dict of that many keys beside some of one hash, from which half have been deleted."""
    keys: list[Any] = [*range(100, 100 + 2 * size), *(collides(7, times) for times in (1, 2))]
    random.Random(size).shuffle(keys)
    found: dict[Any, float] = dict.fromkeys(keys, 1.0)
    for key in keys[::2]:
        del found[key]
    return found


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", WANTED)
def test_a_key_that_comes_and_goes(name: str, size: int) -> None:
    wanted, table, x = WANTED[name], filled(size), torch.ones(2)
    compiled = torchdynamo.compile(lambda x, table: x * table.get(wanted, 2.0), backend="eager")
    for at in range(6):
        assert compiled(x, table)[0] == table.get(wanted, 2.0), at
        table[f"more {at}"] = 1.0
        if at % 2:
            del table[wanted]
        else:
            table[wanted] = 3.0
    assert len(torchdynamo.eval_frame.cache_entries(compiled.__wrapped__)) <= 2
