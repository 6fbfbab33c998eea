"""Errors raised when an operation cannot be added to the graph. None of them leaves a node behind."""

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
    """The result is a Python value that depends on the contents of a tensor."""

    reason = "data-dependent value"


class UnknownValue(GraphError):
    """Python needs the value of a number that is computed only when the graph runs."""

    reason = "data-dependent value"


class UnknownBranch(GraphError):
    """A branch depends on a number that is computed only when the graph runs."""

    reason = "data-dependent branch"


class UnknownFact(GraphError):
    """An operation needs a fact about a number that is computed only when the graph runs."""

    reason = "unknown fact"

    def __init__(self, target: Callable[..., Any] | str, cause: str, facts: Sequence[Any] = ()) -> None:
        super().__init__(target, cause)
        self.facts = facts  # as sympy conditions


class DynamicOutputShape(GraphError):
    """The shape of the result depends on the contents of a tensor."""

    reason = "dynamic output shape"


class UnsupportedOperator(GraphError):
    """The operator has no rule for fake tensors: its result is unknown without running it."""

    reason = "unsupported operator"


class NoFakeKernel(GraphError):
    """A custom operator has no function that tells the shapes and dtypes of its results."""

    reason = "no fake kernel"

    def __init__(self, operator: str, cause: BaseException) -> None:
        super().__init__(operator, cause)


class UnsupportedTensor(GraphError):
    """A kind of tensor that has no fake tensor (quantized, some subclasses, ...)."""

    reason = "unsupported type"


class FakeError(GraphError):
    """The operator's rule for fake tensors failed in a way that says nothing about the user's program."""

    reason = "unsupported operator"


class OperatorError(GraphError):
    """The operation itself raises (shapes that do not match, a wrong argument, ...).

    `original` was raised for fake tensors. Eager may word it differently, and a rule can be stricter than the operator,
    so the error only ends the graph here, and eager raises its own.
    """

    reason = "unsupported operator"

    def __init__(self, target: Callable[..., Any] | str, original: BaseException) -> None:
        super().__init__(target, original)
        self.original = original
        self.raises = True


# Types of errors that operators raise for wrong arguments; others mean that the rule has failed.
USER_ERRORS = (RuntimeError, TypeError, ValueError, IndexError, AttributeError, OverflowError, ZeroDivisionError)


def classify(target: Callable[..., Any] | str, raised: Exception) -> GraphError:
    """Return the GraphError for an exception raised by an operation on fake tensors."""
    custom = torch_compat.without_fake_kernel(raised)
    if custom is not None:
        return NoFakeKernel(custom, raised)
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
