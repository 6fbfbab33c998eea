"""Which sizes and integers of a call may be others in the exported program: what `dynamic_shapes` and marks say.

Both end as marks on the tensors while the call is captured, since that is what capture reads, and as a specification
for torch.export. The user's own marks count where no `dynamic_shapes` are given, and are left as they were.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.export
from torch.utils import _pytree as pytree

from torchdynamo.capture.torch import dynamic_marks as marks
from torchdynamo.core.source import Source
from torchdynamo.exporting.calls import ExampleCall

Dim = torch.export.Dim
HINT = type(Dim.AUTO)
NAMES = (marks.DYNAMIC, marks.RANGES, marks.MAYBE, marks.UNBACKED, marks.STATIC)
COLLECTIONS = (torch.export.ShapesCollection, torch.export.AdditionalInputs)


class Varying:
    """Sizes and integers that vary in a call. `given`: for torch.export; `leaves`: one mark a leaf, None for none."""

    def __init__(self, call: ExampleCall, dynamic_shapes: Any, module: torch.nn.Module) -> None:
        """Raise ValueError for `dynamic_shapes` that do not fit the call. module: has the call's signature."""
        self.call = call
        self.leaves = [marked(leaf) for leaf in call.leaves]
        if dynamic_shapes:
            if isinstance(dynamic_shapes, COLLECTIONS):
                said = dynamic_shapes.dynamic_shapes(module, call.args, call.kwargs)
            else:
                said = by_name(call, dynamic_shapes)
            values = zip(call.names, (*call.args, *call.kwargs.values()), strict=True)
            self.leaves = [one for name, value in values for one in said_of_leaves(value, said.get(name))]
        self.given = self.for_torch(module)

    def for_torch(self, module: torch.nn.Module) -> dict[str, Any] | None:
        """Return what is said in the form that torch.export takes, with the structure of all arguments; None if nothing
        is said. Raises ValueError for an integer inside of what cannot be changed.
        """
        collection, call = torch.export.ShapesCollection(), self.call
        for leaf, said in zip(call.leaves, self.leaves, strict=True):
            if said and isinstance(leaf, torch.Tensor):
                collection[leaf] = said
        found: dict[str, Any] = collection.dynamic_shapes(module, call.args, call.kwargs)
        for source, said in self.numbers_said.items():
            place, keys = source, []
            while place.base is not None:
                keys.append(place.arg)
                place = place.base
            at: Any = found
            for key in reversed([*keys[1:], place.arg] if keys else []):
                at = at[key]
            if not isinstance(at, (dict, list)):
                raise ValueError(f"{source} cannot vary: an integer that does is an argument, or in a dict or list")
            at[keys[0] if keys else place.arg] = said
        return found if len(collection) or self.numbers_said else None

    @property
    def numbers_said(self) -> dict[Source, Any]:
        """Return the marks of integers that vary, by their sources."""
        found = zip(self.call.leaves, self.leaves, self.call.sources, strict=True)
        return {
            source: said for leaf, said, source in found if type(leaf) is int and varies(said) and source is not None
        }

    @contextlib.contextmanager
    def marks(self) -> Iterator[None]:
        """Leave marks on the tensors inside of the block, in place of the user's."""
        with self.unmarked():
            for leaf, said in zip(self.call.leaves, self.leaves, strict=True):
                if isinstance(leaf, torch.Tensor):
                    for dim, one in by_dimension(said, leaf).items():
                        mark(leaf, dim, one)
            yield

    @contextlib.contextmanager
    def unmarked(self) -> Iterator[None]:
        """Take all marks off the tensors inside of the block."""
        tensors = [leaf for leaf in self.call.leaves if isinstance(leaf, torch.Tensor)]
        before = [dict(leaf.__dict__) for leaf in tensors]
        try:
            for leaf in tensors:
                clear(leaf)
            yield
        finally:
            for leaf, own in zip(tensors, before, strict=True):
                leaf.__dict__.clear()  # torch leaves more than it was given
                leaf.__dict__.update(own)


def clear(tensor: torch.Tensor) -> None:
    for name in NAMES:
        tensor.__dict__.pop(name, None)


def by_name(call: ExampleCall, shapes: Any) -> dict[str, Any]:
    """Return what is said of each value of a call, by its name in the frame. `shapes` has the names of the function's
    parameters, of which some may be left out, or is a sequence for all of them.
    """
    parameters = call.signature.parameters
    rows = call.signature.bind(*call.args, **call.kwargs).arguments
    if not isinstance(shapes, Mapping):
        if len(shapes) != len(rows):
            raise ValueError(f"dynamic_shapes speaks of {len(shapes)} arguments, and the call has {len(rows)}")
        shapes = dict(zip(rows, shapes))
    found: dict[str, Any] = {}
    unknown = []
    for name, said in shapes.items():
        kind = parameters[name].kind if name in rows else None
        if kind is inspect.Parameter.VAR_POSITIONAL:
            found.update((f"{name}_{index}", one) for index, one in enumerate(said or ()))
        elif kind is inspect.Parameter.VAR_KEYWORD:
            found.update(said or {})
        elif name in call.names:
            found[name] = said
        else:
            unknown.append(name)
    if unknown:
        raise ValueError(f"dynamic_shapes names {', '.join(unknown)}; the arguments are {', '.join(rows)}")
    return found


def said_of_leaves(value: Any, spec: Any) -> list[Any]:
    """Return what is said of each leaf of a value, in their order."""
    count = pytree.tree_structure(value).num_leaves
    if spec is None:
        return [None] * count
    parts = pytree.tree_leaves(value, is_leaf=lambda each: each is not value)
    if len(parts) == 1 and parts[0] is value:
        return [spec]
    if isinstance(spec, Mapping):
        specs = [spec.get(key) for key in value] if isinstance(value, Mapping) else list(spec.values())
    else:
        specs = list(spec)
    if len(specs) != len(parts):
        raise ValueError(f"dynamic_shapes speaks of {len(specs)} parts of a {type(value).__name__} with {len(parts)}")
    return [one for part, each in zip(parts, specs) for one in said_of_leaves(part, each)]


def by_dimension(said: Any, tensor: torch.Tensor) -> dict[int, Any]:
    """Return what is said of each dimension of a tensor. Raises ValueError for one that it does not have."""
    if not said:
        return {}
    found = dict(said) if isinstance(said, Mapping) else dict(enumerate(said))
    for dim in found:
        if not 0 <= dim < tensor.dim():
            raise ValueError(f"dynamic_shapes speaks of dimension {dim} of a tensor that has {tensor.dim()}")
    return found


def varies(said: Any) -> bool:
    """Return whether what is said of a dimension or an integer is that it varies."""
    return isinstance(said, Dim) or (isinstance(said, HINT) and said.type is not Dim.STATIC.type)


def mark(tensor: torch.Tensor, dim: int, said: Any) -> None:
    """Mark a dimension of a tensor as `dynamic_shapes` say of it."""
    if isinstance(said, HINT) and said.type is Dim.AUTO.type:
        marks.maybe_mark_dynamic(tensor, dim)
    elif varies(said):
        marks.mark_dynamic(tensor, dim, min=said.min or None, max=said.max if isinstance(said.max, int) else None)


def marked(leaf: Any) -> dict[int, Any]:
    """Return what the user's marks say of a tensor's dimensions, as `dynamic_shapes` would."""
    if not isinstance(leaf, torch.Tensor):
        return {}
    said = marks.said_of(leaf)
    firm = {dim: Dim.DYNAMIC(*said.bounds[dim]) if dim in said.bounds else Dim.DYNAMIC for dim in said.firm}
    return {dim: firm.get(dim, Dim.AUTO) for dim in sorted(said.dynamic - said.static)}
