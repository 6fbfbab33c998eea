"""Random worlds, programs and changes: after each change the compiled program does what the plain one does."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Callable
from typing import Any

import torch
from random_changes import change, things, undo_settings
from random_worlds import World, program

import torchdynamo
from torchdynamo import config
from torchdynamo.report.explain import collecting

FUZZ = int(os.environ.get("FUZZ_CHANGES", "0"))  # set by `make fuzz`: so many changes, and other ones each time
CHANGES_EACH = 12


def seen(world: World, fn: Callable[..., Any]) -> str:
    """What a call gives, or raises, and the world's tensors after it."""
    try:
        result = fn(torch.ones(2), world.root, world.items, world.table, world.net)
        told = (result.tolist(), str(result.dtype), result.requires_grad)
    except Exception as error:
        told = (type(error), str(error))
    tensors = [each for each in things(world) if isinstance(each, torch.Tensor)]
    return repr((told, [(each.tolist(), each.requires_grad, each.stride()) for each in tensors]))


class Twins:
    """Two worlds of one seed: what runs plainly in the one runs compiled in the other."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.plain, self.compiled = World(seed), World(seed)
        self.plain_fn = program(seed, self.plain)
        self.compiled_fn = torchdynamo.compile(program(seed, self.compiled), backend="eager")
        self.log: list[str] = []

    def call(self) -> None:
        """Once in each."""
        told = [seen(self.plain, self.plain_fn), seen(self.compiled, self.compiled_fn)]
        assert told[0] == told[1], f"seed {self.seed}, after {self.log}"

    def change(self) -> None:
        """The same in each."""
        self.log.append(change(self.plain))
        assert change(self.compiled) == self.log[-1]


def follow(seed: int) -> tuple[int, int]:
    """How many calls nothing had changed before, and how many of them compiled nothing."""
    torchdynamo.reset()
    twins = Twins(seed)
    calls = hits = 0
    with collecting() as events, config.patch(cache_size_limit=1000), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for _ in range(CHANGES_EACH):
                twins.call()
                before = len(events)
                twins.call()
                calls, hits = calls + 1, hits + (len(events) == before)
                twins.change()
            twins.call()
        finally:
            undo_settings()
    return calls, hits


def test_random_changes_are_seen() -> None:
    first = random.randrange(1 << 30) if FUZZ else 0
    calls = hits = changes = 0
    for seed in range(first, first + (FUZZ or 120) // CHANGES_EACH + 1):
        more_calls, more_hits = follow(seed)
        calls, hits, changes = calls + more_calls, hits + more_hits, changes + CHANGES_EACH
    print(f"{changes} changes seen; {100 * hits / calls:.1f}% of {calls} calls that nothing had changed were hits")
    assert hits == calls
