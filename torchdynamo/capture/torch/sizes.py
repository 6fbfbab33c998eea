"""Decide which sizes and integers of the entry state are symbols, and make these inputs of the graph.

A first compile takes all of them for constants. What then turns out to change (`Numbers.varying` names it by source: a
tensor's size is `Source("size", tensor, dim)`) becomes a number in the next; the user may also say so beforehand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from torchdynamo.capture.torch.dynamic_marks import said_of
from torchdynamo.core.source import Source
from torchdynamo.core.value import Symbol
from torchdynamo.graph.sizes import Extents
from torchdynamo.graph.wrappers import is_wrapper

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


class Extent(NamedTuple):
    """The bounds of a size, and whether it is unbacked: nothing may depend on what it is in this call."""

    least: int
    most: int
    blind: bool


LEAST, MOST = -(1 << 63), (1 << 63) - 1


def varying_sizes(vm: Machine, tensor: torch.Tensor, source: Source, static: bool) -> dict[int, Extent]:
    """Return the dimensions of an input that may have another size in the next call, with their bounds."""
    numbers = vm.builder.numbers
    if numbers.never or static:
        return {}
    dims = {dim for dim in range(tensor.dim()) if Source("size", source, dim) in numbers.varying}
    said = said_of(tensor)
    dims.update(dim for dim in numbers.bucketed.get(str(source), ()) if dim < tensor.dim())
    if numbers.always or str(source) in numbers.named:
        dims.update(range(tensor.dim()))
    return {
        dim: Extent(*bounds(tensor.size(dim), *said.bounds.get(dim, (0, MOST))), dim in said.unbacked)
        for dim in (dims | said.dynamic) - said.static
    }


def bounds(now: int, least: int | None, most: int | None) -> tuple[int, int]:
    """Return the bounds that were given, if the size keeps to them, else the widest."""
    given = max(least or 0, 0), MOST if most is None else most
    return given if given[0] <= now <= given[1] else (0, MOST)


def varying_strides(vm: Machine, tensor: torch.Tensor, source: Source) -> frozenset[int]:
    """Return the dimensions that have been seen with another stride that sizes do not explain."""
    varying = vm.builder.numbers.varying
    return frozenset(dim for dim in range(tensor.dim()) if Source("stride", source, dim) in varying)


def varying(vm: Machine, tensor: torch.Tensor, source: Source, static: bool) -> Extents:
    """Return what of an input may be another in the next call."""
    lengths = varying_sizes(vm, tensor, source, static)
    return Extents(lengths, varying_strides(vm, tensor, source) if lengths else ())


def varying_parts(vm: Machine, tensor: torch.Tensor, source: Source) -> dict[str, tuple[Source, Extents]]:
    """Return what of the tensors inside of a nested tensor may be another in the next call, by name."""
    if not tensor.is_nested or not is_wrapper(tensor) or not (tensor.is_leaf or not tensor.requires_grad):
        return {}
    places = vm.places_inside(tensor, source)
    found = {name: (place, varying(vm, part, place, False)) for name, (place, part) in places.items()}
    return {name: row for name, row in found.items() if row[1].sizes}


def varies(vm: Machine, number: int, source: Source) -> bool:
    """Return whether an integer of the entry state is a number of the graph."""
    numbers = vm.builder.numbers
    if numbers.never or not LEAST <= number <= MOST:
        return False
    if source in numbers.varying or str(source) in numbers.named:
        return True
    return numbers.always and source.how == "local"


def some_vary(vm: Machine, sizes: torch.Size, source: Source) -> bool:
    """Return whether some sizes that an object keeps are numbers of the graph."""
    return any(varies(vm, size, Source("item", source, at)) for at, size in enumerate(sizes))


def enter_int(vm: Machine, number: int, source: Source) -> Symbol:
    """Make an integer of the entry state an input of the graph, guarded only to be an integer."""
    vm.guard(source, "TYPE_MATCH", int)
    symbol = vm.builder.numbers.at_entry(number, source)
    return enter(vm, symbol, source, number)


def enter(vm: Machine, symbol: Any, source: Source, real: int) -> Symbol:
    """Make a number an input of the graph, and return its symbol."""
    value = Symbol(vm.builder.number_input(symbol, source), symbol, int, source)
    vm.numbers_in.append(value)
    vm.input_objects[value.node] = real
    vm.sizes[symbol.node.expr] = value
    return value


def enter_sizes(vm: Machine, source: Source, layout: Any) -> None:
    """Make the varying sizes and strides of a tensor inputs of the graph, and guard the others."""
    known = vm.builder.numbers.entries
    for number in (*layout.size, *layout.stride):
        expr = number.node.expr if isinstance(number, torch.SymInt) else None
        if expr in known and expr not in vm.sizes:
            enter(vm, number, *known[expr])
    vm.layouts[source] = layout
    fixed = [tuple(None if isinstance(n, torch.SymInt) else n for n in part) for part in (layout.size, layout.stride)]
    vm.guard(source, "TENSOR_MATCH", tuple(fixed))
