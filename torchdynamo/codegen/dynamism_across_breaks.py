"""What is known at a break to be another number, size or text in another call.

What follows a break begins as any function does: all it is given is taken for constant, and compiled once more when
that turns out wrong. But where a size comes from what a tensor holds, or from another that varies, it is known at the
break. So each continuation knows which of its variables hold such; and each function, what of its results is such, for
the continuations of those who call it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch

from torchdynamo.core.learned import record
from torchdynamo.core.source import Roots, Source, instance_attr, local
from torchdynamo.core.value import Object, Symbol, TensorNode, Value
from torchdynamo.graph.numbers import SYMBOLIC

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

OF_DATA = frozenset(
    {"data-dependent value", "dynamic output shape", "changing value"}
)  # breaks whose result depends on what tensors hold
MANY = 32  # of more numbers in one list, each is data
RESULT = local("__result")


def known(code: CodeType, roots: Roots) -> frozenset[Source]:
    """Return where these are, in a frame that begins."""
    of_code = record(code)
    found = set(of_code.given)
    for source, callee in of_code.taken:
        found.update(moved(part, source) for part in record(callee).results)
    for source in of_code.drawn:
        found.update(measures(source, source.load(roots)))
    return frozenset(found)


def give(code: CodeType, variables: dict[str, Value], vm: Machine) -> None:
    """Hand these numbers to a continuation."""
    leave(code, (part for name, value in variables.items() for part in parts(value, local(name), vm)))


def leave(code: CodeType, sources: Iterable[Source]) -> None:
    """Emit the store of such numbers where the frame will find them when it runs again."""
    record(code).given |= frozenset(sources)


def returned_floats(code: CodeType, roots: Roots) -> frozenset[Source]:
    """Return where calls that were left to Python have given floats: the next call will give others."""
    found = (source for source in record(code).returned if type(source.load(roots)) is float)
    return frozenset(found)


def get_back(code: CodeType, name: str) -> None:
    """Note that a continuation gets what a call returned that was left to Python."""
    record(code).returned |= {local(name)}


def draw(code: CodeType, name: str) -> None:
    """Hand numbers that were read from tensors to a continuation."""
    record(code).drawn |= {local(name)}


def take(code: CodeType, name: str, callee: CodeType) -> None:
    """Hand to a continuation what a function returns that is still running."""
    known = record(code)
    if (local(name), callee) not in known.taken:
        known.taken = (*known.taken, (local(name), callee))


def returns(code: CodeType, value: Value, vm: Machine) -> None:
    """Note the numbers that a frame of this function returns."""
    record(code).results |= frozenset(parts(value, RESULT, vm))


def parts(value: Value, source: Source, vm: Machine, seen: set[int] | None = None) -> Iterator[Source]:
    """Yield where a value holds numbers of the graph, or what would be such if it were looked at.

    Objects are gone through once: what was `seen` may be met again, inside of itself or by another way.
    """
    entity = vm.entity(value) if isinstance(value, Object) else None
    seen = set() if seen is None else seen
    if entity is not None:
        if entity.ref in seen:
            return
        seen.add(entity.ref)
    origin = getattr(value, "source", None) if entity is None else entity.source
    if origin is not None:
        yield from (moved(part, source, origin) for part in vm.builder.numbers.varying if is_under(part, origin))
    if isinstance(value, Symbol):
        yield source
    elif isinstance(value, TensorNode):
        sizes = value.fake.shape if isinstance(value.fake, torch.Tensor) else ()
        yield from (Source("size", source, dim) for dim, size in enumerate(sizes) if isinstance(size, SYMBOLIC))
    elif entity is not None:
        for name, held in entity.attrs.items():
            yield from parts(held, instance_attr(source, name), vm, seen)
        if isinstance(entity.items, (list, tuple)) and len(entity.items) <= MANY:
            for index, held in enumerate(entity.items):
                yield from parts(held, Source("item", source, index), vm, seen)


def measures(source: Source, obj: Any) -> Iterator[Source]:
    """Yield all numbers, sizes and texts of an object, or of those in it."""
    cls = type(obj)
    if cls is int or cls is float or cls is str:
        yield source
    elif isinstance(obj, torch.Tensor) and obj.layout is torch.strided and not obj.is_nested:
        yield from (Source("size", source, dim) for dim in range(obj.dim()))
    elif (cls is list or cls is tuple) and len(obj) <= MANY:
        for index, held in enumerate(obj):
            yield from measures(Source("item", source, index), held)


def is_under(part: Source, origin: Source) -> bool:
    """Return whether a path leads through another."""
    return part is origin or (part.base is not None and is_under(part.base, origin))


def moved(part: Source, base: Source, origin: Source = RESULT) -> Source:
    """Return the same path, from another beginning."""
    return base if part is origin or part.base is None else Source(part.how, moved(part.base, base, origin), part.arg)
