"""torch.distributions: its checks of arguments."""

from __future__ import annotations

from torch.distributions import constraints

from torchdynamo.capture.speculate.assertions import fails_early

# Of matrices: where these return early, the argument is not valid, and whoever asked raises.
for _constraint in (constraints.positive_definite, constraints.positive_semidefinite):
    fails_early.set(type(_constraint).check.__code__, True)
