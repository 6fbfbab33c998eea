"""Every row of the tables is one graph that agrees with eager bit for bit, or breaks by name."""

from __future__ import annotations

import copy

import pytest
import torch
import torch_cases_functions
import torch_cases_modules
import torch_cases_tensors
from torch_alike import Alike
from torch_cases import CASES, Case

import torchdynamo
from torchdynamo.errors import Unsupported

TABLES = (torch_cases_functions, torch_cases_modules, torch_cases_tensors)


@pytest.mark.filterwarnings("error::torchdynamo.errors.FallbackWarning")
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
            Alike()((wanted, theirs), (got, mine))
