"""Programs nobody wrote, eager and compiled: results, errors, mutated arguments, globals and prints are the same."""

from __future__ import annotations

import functools
import os
from collections import Counter
from random import Random

import pytest
import torch
import worlds
import writing
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import torchdynamo

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))  # set by `make fuzz`: so many, and other ones each time
CALLS = (0, 0, 1, 2, 3, 4, 0)  # which arguments the calls of a program get


class Tally:
    """How much of what was written could be captured."""

    def __init__(self) -> None:
        self.programs = 0
        self.whole = 0
        self.graphs = 0
        self.calm = 0  # without a break on purpose, and without an exception that leaves the function
        self.calm_whole = 0
        self.reasons: Counter[str] = Counter()

    def add(self, verdict: worlds.Verdict, calm: bool) -> None:
        self.programs += 1
        self.whole += verdict.whole
        self.graphs += verdict.graphs
        self.calm += calm and not verdict.raised
        self.calm_whole += calm and not verdict.raised and verdict.whole
        self.reasons.update(set(verdict.breaks))

    @property
    def share(self) -> float:
        """Of the programs that nothing in them should split: how many are one graph."""
        return self.calm_whole / self.calm

    def __str__(self) -> str:
        share = f"{self.programs} programs, {self.whole / self.programs:.0%} captured whole, {self.graphs} graphs; "
        share += f"of {self.calm} without a break on purpose {self.share:.0%}"
        return f"{share}; ended by {', '.join(f'{name} ({n})' for name, n in self.reasons.most_common())}"


@pytest.mark.long
def test_programs(capsys):
    tally = Tally()

    @settings(
        max_examples=EXAMPLES or 200,
        deadline=None,
        derandomize=not EXAMPLES,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=False), st.sampled_from([4, 8, 12]))
    def program(random: Random, size: int) -> None:
        writer = writing.Writer(random, size)
        source = writer.write()
        try:
            tally.add(worlds.compare(source, [functools.partial(writing.inputs, n) for n in CALLS]), writer.calm)
        finally:
            torchdynamo.reset()
            torch.set_grad_enabled(True)

    program()
    with capsys.disabled():
        print(f"\n{tally}")
    assert tally.share >= 0.9
