"""Compare a backend's results with those of the captured graph, for `config.verify_correctness`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchdynamo import config
from torchdynamo.backends.preserve import RandomState
from torchdynamo.core.reasons import explained
from torchdynamo.errors import FallbackWarning, VerificationError
from torchdynamo.graph.modes import Modes
from torchdynamo.hook.user_warnings import warn_user

Run = Callable[..., Any]
Advice = Callable[[Sequence[Any]], str]
"""(inputs) -> what a message ends with."""


def no_advice(inputs: Sequence[Any]) -> str:
    """Return the empty end of a message, for graphs that nobody keeps."""
    return ""


def verify(
    as_captured: Run,
    compiled: Run,
    example_inputs: Sequence[Any],
    backend: str,
    graph: str,
    advice: Advice = no_advice,
) -> None:
    """Run both callables on copies of the inputs and compare results and mutated inputs.

    Tolerances are those of `torch.testing.assert_close`. Random numbers and modes are restored. Raises
    VerificationError. advice: what its message ends with, given the inputs.
    """
    wanted, found = (outcome(run, example_inputs) for run in (as_captured, compiled))
    try:
        torch.testing.assert_close(found, wanted, equal_nan=True, check_stride=False)
    except AssertionError as difference:
        text = f"incorrect results of backend {backend!r} on {graph}: {difference}"
        raise VerificationError(explained(text, "wrong result") + advice(example_inputs), backend, graph) from None


class Shadowed:
    """Runs a compiled graph; in every n-th call eager serves, and the compiled graph is compared on copies."""

    def __init__(
        self, as_captured: Run, compiled: Run, every: int, backend: str, graph: str, advice: Advice = no_advice
    ) -> None:
        self.as_captured = as_captured
        self.compiled = compiled
        self.every = every
        self.backend = backend
        self.graph = graph
        self.advice = advice
        self.calls = 0

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        if self.calls % self.every:
            return self.compiled(*args)
        try:
            verify(self.as_captured, self.compiled, args, self.backend, self.graph, self.advice)
        except VerificationError as difference:
            if not config.suppress_errors:
                raise
            warn_user(f"call {self.calls}: {difference}", FallbackWarning)
        return self.as_captured(*args)


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
