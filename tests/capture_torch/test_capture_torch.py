"""Every row of the tables is one graph that agrees with eager bit for bit, or breaks by name."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.overrides
import torch_cases_distributions
import torch_cases_functions
import torch_cases_leaves
import torch_cases_modules
import torch_cases_numpy
import torch_cases_random
import torch_cases_repeating
import torch_cases_tensors
from pictures import assert_alike
from torch.utils._pytree import tree_leaves
from torch_cases import CASES, Case

import torchdynamo
from torchdynamo import _native
from torchdynamo.core import policy
from torchdynamo.errors import Unsupported

TABLES = (
    *(torch_cases_functions, torch_cases_leaves, torch_cases_modules, torch_cases_numpy, torch_cases_random),
    *(torch_cases_tensors, torch_cases_distributions, torch_cases_repeating),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_agrees_with_eager(case: Case) -> None:
    compiled = torchdynamo.compile(case.fn, backend="eager", fullgraph=True)
    with torch.set_grad_enabled(case.grad):
        if case.breaks is not None:
            with pytest.raises(Unsupported) as caught:
                compiled(*copy.deepcopy(case.args))
            assert caught.value.reason == case.breaks
            return
        for _ in range(2):  # the second call is a hit
            mine, theirs = copy.deepcopy(case.args), copy.deepcopy(case.args)
            state = torch.get_rng_state()
            wanted = case.fn(*theirs)
            torch.set_rng_state(state)
            got = compiled(*mine)
            assert _native.cache_entries(case.fn.__code__), "it ran as plain Python"
            assert_alike((wanted, theirs), (got, mine))
            if backward(wanted) + backward(got):
                assert_alike(theirs, mine, "gradients")


def backward(result: Any) -> int:
    """Send gradients back from every tensor of a result; how many there were."""
    roots = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad and not t.is_leaf]
    if roots:
        torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])
    return len(roots)


def test_operators_in_python_are_those_that_pytorch_lists() -> None:
    # In a process of its own: in this one, other tests may have added functions to torch, or had some replaced.
    program = """
import torch
from types import FunctionType
from torchdynamo.core import policy
listed = [fn for group in torch.overrides.get_overridable_functions().values() for fn in group]
assert policy.graph_functions() == {id(fn) for fn in listed if type(fn) is FunctionType}
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=120)


def test_function_put_in_the_place_of_an_operator_is_no_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    def gelu(x: torch.Tensor) -> torch.Tensor:
        return x

    monkeypatch.setattr(torch.nn.functional, "gelu", gelu)
    assert id(gelu) not in policy.graph_functions.__wrapped__()


def test_windows_that_do_not_overlap():
    def inverse(x, window):
        return torch.istft(torch.stft(x, 8, 4, return_complex=True, window=torch.ones(8)), 8, 4, window=window)

    x, compiled = torch.randn(1, 40), torchdynamo.compile(inverse, backend="eager", fullgraph=True)
    assert_alike(inverse(x, torch.ones(8)), compiled(x, torch.ones(8)))
    with pytest.raises(RuntimeError, match="window overlap add min: 1"):
        compiled(x, torch.zeros(8))
