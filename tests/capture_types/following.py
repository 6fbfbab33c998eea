"""Compile a small function as one graph, and hold it against eager: result, sharing, mutated arguments."""

from __future__ import annotations

import copy
import types
from typing import Any

import torch
from pictures import assert_alike

import torchdynamo
from torchdynamo import _native


def check(fn: types.FunctionType, args: tuple[Any, ...], again: bool = True) -> None:
    """The compiled `fn` does what `fn` does; twice, and the second call is a hit on what the first made."""
    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=True)
    torch.manual_seed(0)
    theirs = copy.deepcopy(args)
    wanted = fn(*theirs)
    for call in range(2):
        mine = copy.deepcopy(args)
        torch.manual_seed(0)
        got = compiled(*mine)
        assert_alike((wanted, theirs), (got, mine))
        if again or not call:
            assert len(_native.cache_entries(fn.__code__)) == 1
