"""The code that replaces a function's can be read with depyf: it names the graph that it calls."""

from __future__ import annotations

import re
from typing import Any

import depyf
import pytest
import torch

import torchdynamo
from torchdynamo.eval_frame import cache_entries

X = torch.ones(3)


def whole(a, b):
    return a + b * 2


def branches(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


def with_effects(a, log):
    log.append(a * 2)
    log[0] = 1
    return a + 1


def branches_with_effects(a, b, log):
    x = a + 1
    log.append(x)
    if b.sum() < 0:
        b = b * -1
    return x * b


def callee(a):
    a = a + 1
    torchdynamo.graph_break()
    return a * 2


def breaks_in_a_call(a):
    y = callee(a * 3)
    return y + 1


def breaks_in_a_module(a):
    return breaking(a * 3) + 1


class Breaking(torch.nn.Module):
    def forward(self, x):
        x = x + 1
        torchdynamo.graph_break()
        return x * 2


breaking = Breaking()


def checks(a, n):
    if n < 0:
        raise ValueError
    return a * n


CASES = {
    whole: (X, X),
    branches: (X, X),
    with_effects: (X, []),
    branches_with_effects: (X, X, []),
    breaks_in_a_call: (X,),
    breaks_in_a_module: (X,),
    checks: (X, torch.ones(())),
}


def depyf_reads(fn: Any) -> bool:
    """Return whether depyf knows this Python's bytecode, by code that nobody has changed."""
    try:
        return "return x * b" in depyf.decompile(fn.__code__)
    except Exception:  # whatever it meets in bytecode that it does not know
        return False


pytestmark = pytest.mark.skipif(not depyf_reads(branches), reason="depyf does not know the bytecode of this Python")


@pytest.mark.parametrize("fn", CASES, ids=lambda fn: fn.__name__)
def test_the_graph_has_its_name(fn: Any) -> None:
    torchdynamo.compile(fn, backend="eager")(*CASES[fn])
    (entry,) = cache_entries(fn)
    text = depyf.decompile(entry.code)
    assert re.search(r"= __compiled_fn_\d+\(a", text)
    assert not re.search(r"__co_consts\[\d+\]'\(a", text)
    assert text.startswith(f"def {fn.__name__}(")


def test_what_follows_a_break_is_the_users_code() -> None:
    torchdynamo.compile(branches, backend="eager")(X, X)
    text = depyf.decompile(cache_entries(branches)[0].code)
    assert text.count("return x * b") == 2
    assert "b = b * -1" in text
