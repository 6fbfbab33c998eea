"""Read users' marks of a tensor's dimensions: that one varies (`mark_dynamic`), within bounds, or that it does not.

It is left on the tensor, in the attributes that torch.compile reads and its own functions of these names write.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from torchdynamo.capture.vm.model import function
from torchdynamo.core.value import NONE, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

DYNAMIC = "_dynamo_dynamic_indices"
RANGES = "_dynamo_dynamic_range"
MAYBE = "_dynamo_weak_dynamic_indices"
UNBACKED = "_dynamo_unbacked_indices"
STATIC = "_dynamo_static_indices"


class Bounds(NamedTuple):
    """The least and the largest size of a dimension; None where there is no bound."""

    dim: int
    min: int | None
    max: int | None


class Said(NamedTuple):
    """The marked dimensions of a tensor, by mark."""

    dynamic: frozenset[int]
    firm: frozenset[int]  # of those, not only perhaps
    static: frozenset[int]
    unbacked: frozenset[int]
    bounds: dict[int, tuple[int | None, int | None]]


NOTHING = Said(frozenset(), frozenset(), frozenset(), frozenset(), {})


def mark_dynamic(
    tensor: torch.Tensor, index: int | Iterable[int], *, min: int | None = None, max: int | None = None
) -> None:
    """Mark a size as varying: it is a symbol from the first compile.

    A function that makes a constant of it, or does not take all of these sizes, raises `exc.ConstraintViolationError`.

    tensor: an argument of a compiled function.
    index: the dimension, or several.
    min, max: the least and the largest size that will come; without them, any.

    Raises IndexError for a dimension that the tensor does not have.
    """
    for dim in mark(tensor, DYNAMIC, index):
        if min is not None or max is not None:
            tensor.__dict__.setdefault(RANGES, set()).add(Bounds(dim, min, max))


def maybe_mark_dynamic(tensor: torch.Tensor, index: int | Iterable[int]) -> None:
    """Mark a size as one that may vary: a symbol from the first compile, or a constant where the program needs one.

    tensor: an argument of a compiled function.
    index: the dimension, or several.

    Raises IndexError for a dimension that the tensor does not have.
    """
    mark(tensor, MAYBE, index)


def mark_unbacked(tensor: torch.Tensor, index: int | Iterable[int]) -> None:
    """Mark a size as varying so that nothing may depend on what it is in the first call.

    tensor: an argument of a compiled function.
    index: the dimension, or several.

    Raises IndexError for a dimension that the tensor does not have.
    """
    mark(tensor, UNBACKED, index)


def mark_static(tensor: torch.Tensor, index: int | Iterable[int] | None = None) -> None:
    """Mark a size, or each size of the tensor, as a constant: for another one the function is compiled anew.

    tensor: an argument of a compiled function.
    index: the dimension, or several; None for all.

    Raises IndexError for a dimension that the tensor does not have.
    """
    mark(tensor, STATIC, range(tensor.dim()) if index is None else index)


def mark(tensor: torch.Tensor, name: str, index: int | Iterable[int]) -> list[int]:
    """Leave a mark on some dimensions."""
    dims = [index] if isinstance(index, int) else list(index)
    for dim in dims:
        if not -tensor.dim() <= dim < tensor.dim():
            raise IndexError(f"a tensor of {tensor.dim()} dimensions has no dimension {dim}")
    found = [dim % tensor.dim() for dim in dims]
    setattr(tensor, name, indices(getattr(tensor, name, None)) | set(found))
    return found


@function(mark_dynamic, maybe_mark_dynamic, mark_unbacked, mark_static)
def nothing(vm: Machine, *args: Value, **kwargs: Value) -> Value:
    """Do nothing: inside a compiled function the sizes are what they are."""
    return NONE


def said_of(tensor: torch.Tensor) -> Said:
    """Return what has been marked of this tensor's dimensions."""
    own = tensor.__dict__
    if not own:
        return NOTHING
    firm = indices(own.get(DYNAMIC)) | indices(own.get(UNBACKED))
    dynamic = firm | indices(own.get(MAYBE))
    bounds = {each.dim: (each.min, each.max) for each in own.get(RANGES) or ()}
    static, unbacked = frozenset(indices(own.get(STATIC))), frozenset(indices(own.get(UNBACKED)))
    return Said(frozenset(dynamic), frozenset(firm), static, unbacked, bounds)


def indices(said: Any) -> set[int]:
    """Return the dimensions in an attribute that marks them."""
    return {int(dim) for dim in said} if isinstance(said, (set, frozenset, list, tuple)) else set()
