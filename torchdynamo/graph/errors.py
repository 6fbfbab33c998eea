"""What can go wrong when an operation is added to the graph. None of these leaves a node behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchdynamo.core.signals import Break
from torchdynamo.graph import torch_compat


class GraphError(Break):
    """An operation cannot be part of the graph. `reason` names a row of core/reasons.py, `fields` fill its text."""

    reason = "unsupported operator"

    def __init__(self, target: Callable[..., Any] | str, cause: BaseException | str) -> None:
        self.target = target
        self.name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
        self.detail = cause if isinstance(cause, str) else f"{type(cause).__name__}: {cause}"
        super().__init__(type(self).reason, name=self.name, what=self.detail, type="tensor")
        self.args = (f"{self.reason}: {self.name} ({self.detail})",)


class DataDependent(GraphError):
    """The result is a Python value that depends on the numbers in a tensor."""

    reason = "data-dependent value"


class UnknownValue(GraphError):
    """A Python value is asked of a number that the graph has yet to compute."""

    reason = "data-dependent value"


class UnknownBranch(GraphError):
    """Which way to go depends on such a number."""

    reason = "data-dependent branch"


class UnknownFact(GraphError):
    """The operation needs to know something of such a number."""

    reason = "unknown fact"

    def __init__(self, target: Callable[..., Any] | str, cause: str, facts: Sequence[Any] = ()) -> None:
        super().__init__(target, cause)
        self.facts = facts  # as conditions of torch's


class DynamicOutputShape(GraphError):
    """The shape of the result depends on the numbers in a tensor."""

    reason = "dynamic output shape"


class UnsupportedOperator(GraphError):
    """The operator has no rule for metadata alone: nobody knows its result without running it."""

    reason = "unsupported operator"


class UnsupportedTensor(GraphError):
    """A kind of tensor that has no fake tensor (quantized, some subclasses, ...)."""

    reason = "unsupported type"


class FakeError(GraphError):
    """The operator's rule for metadata failed in a way that says nothing about the user's program."""

    reason = "unsupported operator"


class OperatorError(GraphError):
    """The operation itself objects (shapes that do not match, a wrong argument, ...).

    `original` is what was raised for the fake tensors. Eager may word it otherwise, and a rule can be stricter than the
    operator, so it is a hint: break here, and let eager raise its own.
    """

    reason = "unsupported operator"

    def __init__(self, target: Callable[..., Any] | str, original: BaseException) -> None:
        super().__init__(target, original)
        self.original = original
        self.raises = True


# What the user's own mistakes look like; anything else is a failure of the rule.
USER_ERRORS = (RuntimeError, TypeError, ValueError, IndexError, AttributeError, OverflowError, ZeroDivisionError)


def classify(target: Callable[..., Any] | str, raised: Exception) -> GraphError:
    """Return the GraphError for what an operation raised on fake tensors."""
    for exceptions, error in (
        (torch_compat.data_dependent_errors(), DataDependent),
        (torch_compat.dynamic_shape_errors(), DynamicOutputShape),
        (torch_compat.unsupported_errors(), UnsupportedOperator),
        (torch_compat.internal_errors(), FakeError),
    ):
        if isinstance(raised, exceptions):
            return error(target, raised)
    if isinstance(raised, USER_ERRORS) and not torch_compat.is_fake_limitation(raised):
        return OperatorError(target, raised)
    return FakeError(target, raised)
