"""Compiled functions of `typed_use.py`, of which `make lint` checks the types, run as these say."""

from __future__ import annotations

import torch
import typed_use


def test_compiled_functions_keep_their_types() -> None:
    x = torch.ones(3)
    assert isinstance(typed_use.use(x), typed_use.Double)
    assert torch.equal(typed_use.optimized(x, count=3), x * 3)
    assert typed_use.compiled(x)[1] == 3
