"""A model of six blocks with a branch each: breaks by call and line, the same in every place that shows them."""

from __future__ import annotations

import json
import logging

import pytest
import torch
from torch import nn

import torchdynamo
from torchdynamo.bytecode.versions import OUTLINES
from torchdynamo.report.screen import as_text, screen


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        h = self.linear(x).relu()
        if h.sum() > 0:
            h = h * 2
        return x + h


BRANCH = Block.forward.__code__.co_firstlineno + 2


class Stack(nn.Module):
    def __init__(self, adds: bool) -> None:
        super().__init__()
        self.adds = adds
        self.blocks = nn.ModuleList(Block() for _ in range(6))

    def forward(self, x):
        if self.adds:
            x = x + 1
        for block in self.blocks:
            x = block(x)
        return x


class Counting(Stack):
    def forward(self, x):
        for _, block in enumerate(self.blocks):
            x = block(x)
        return x * 2


@pytest.mark.parametrize(
    ("model", "per_call"),
    [(Stack(True), 6.0), (Stack(False), 6.0 if OUTLINES else 1.0), (Counting(False), 6.0)],
    ids=["operators in front", "nothing in front", "an iterator in front"],
)
def test_each_branch_counts_once_per_call(model: Stack, per_call: float) -> None:
    """The loop's body is a part of the model's frame: calls are counted of the model, not of the body.

    Where bodies stay Python, so does a frame with nothing in front of the loop, and blocks are counted by themselves.
    """
    x = torch.ones(2, 4)
    compiled = torchdynamo.compile(model, backend="eager")
    with torch.no_grad():
        for _ in range(5):
            assert torch.equal(compiled(x), model(x))
    after = torchdynamo.report()
    (row,) = (each for each in after["breaks"] if each["slug"] == "data-dependent-branch")
    assert (row["line"], row["calls"], row["per_call"], row["of"]) == (BRANCH, 30, per_call, "forward")

    with torch.no_grad():
        found = torchdynamo.explain(model, calls=3)(x)
    (row,) = (each for each in found.to_dict()["breaks"] if each["slug"] == "data-dependent-branch")
    assert (row["line"], row["calls"], row["per_call"]) == (BRANCH, 18, 6.0)
    ran = [each for function in after["functions"] for each in function["versions"] if each["operators"]]
    assert sum(each["calls"] for each in ran) >= 5 * 12  # each block before and after its branch
    assert "x6 per call" in str(found)
    assert json.loads(found.to_json())["breaks"] == found.to_dict()["breaks"]


def numbers_read(x):
    return x * x.sum().item()


def names(x, word):
    return x + len(word)


def test_a_value_under_way_at_a_break_has_no_name_in_messages() -> None:
    compiled = torchdynamo.compile(numbers_read, backend="eager")
    for value in (1.0, 2.0, 3.0):
        compiled(torch.full((3,), value))
    text = as_text(screen(torchdynamo.report().to_dict()))
    assert "__stack" not in text
    assert "<intermediate value>" in text


def test_the_log_of_a_recompile_says_what_to_write(caplog: pytest.LogCaptureFixture) -> None:
    compiled = torchdynamo.compile(names, backend="eager")
    with caplog.at_level(logging.INFO, "torchdynamo.recompiles"):
        for word in ("a", "bb"):
            compiled(torch.ones(3), word)
    (record,) = caplog.records
    assert "word: 'a' -> 'bb'" in record.getMessage()
    assert "Each string needs its own version" in record.getMessage().splitlines()[-1]
