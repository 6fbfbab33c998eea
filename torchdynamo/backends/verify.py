"""Compare a backend's results with those of the captured graph, for `config.verify_correctness`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchdynamo.backends.preserve import RandomState
from torchdynamo.errors import VerificationError
from torchdynamo.graph.modes import Modes

Run = Callable[..., Any]


def verify(as_captured: Run, compiled: Run, example_inputs: Sequence[Any], backend: str, graph: str) -> None:
    """Run both callables on copies of the inputs and compare results and mutated inputs.

    Tolerances are those of `torch.testing.assert_close`. Random numbers and modes are restored. Raises
    VerificationError.
    """
    wanted, found = (outcome(run, example_inputs) for run in (as_captured, compiled))
    try:
        torch.testing.assert_close(found, wanted, equal_nan=True, check_stride=False)
    except AssertionError as difference:
        text = f"incorrect results of backend {backend!r} on graph {graph}: {difference}"
        raise VerificationError(text, backend, graph) from None


def outcome(run: Run, example_inputs: Sequence[Any]) -> list[torch.Tensor]:
    """Return the detached tensors of a run: its results, then its inputs as the run leaves them."""
    modes, random = Modes.now(), RandomState()
    given = [copied(each) for each in example_inputs]
    try:
        results = run(*given)
    finally:
        modes.restore()
        random.restore()
    return [each.detach() for each in (*results, *given) if isinstance(each, torch.Tensor)]


def copied(value: Any) -> Any:
    """Return a copy of a tensor with its contents and layout, a leaf if the original is one; a symbol's hint as int."""
    if isinstance(value, torch.SymInt):
        return int(value.node.hint)
    if not isinstance(value, torch.Tensor):
        return value
    copy = value.detach().clone().requires_grad_(value.requires_grad)
    return copy if value.is_leaf else copy.view_as(copy)
