"""Attention in any spelling becomes one operator, and results and gradients are eager's."""

from __future__ import annotations

import pytest
import torch
from attention_spellings import SPELLINGS
from attention_tracing import compiled, distance, outcome


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", list(SPELLINGS))
def test_a_spelling(name: str, training: bool) -> None:
    """It becomes the operator in forward and backward, and is about as near to float64 as eager."""
    spelling = SPELLINGS[name]
    torch.manual_seed(0)
    given = [torch.randn(shape).to(spelling.dtype) for shape in spelling.shapes]
    found, traced = compiled(spelling.write, given, training)
    wanted = spelling.training if training else spelling.inference
    assert traced.fused == [int(wanted)] * (2 if training else 1), traced.lines
    assert wanted or any("left as written" in line for line in traced.lines)
    if wanted:
        eager = outcome(spelling.write, given, training)
        exact = outcome(spelling.write, [each.double() for each in given], training)
        assert distance(found, exact) <= 1.5 * distance(eager, exact)
        assert found[0].stride() == eager[0].stride()


def test_most_spellings_are_replaced() -> None:
    assert len(SPELLINGS) >= 26
    assert sum(each.inference for each in SPELLINGS.values()) >= len(SPELLINGS) - 1
    assert sum(each.training for each in SPELLINGS.values()) >= len(SPELLINGS) - 4
