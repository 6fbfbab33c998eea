"""Know at a graph break which numbers, sizes and strings will differ in another call.

The code after a break starts like any function: what it is given is taken for constant, and compiled again when that
turns out wrong. But if a size depends on the contents of a tensor, or on another dynamic size, that is known at the
break. So each continuation records which of its variables hold such values, and each function which of its results do,
for callers that wait for it.
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
MANY = 32  # longer lists of numbers count as data, and are not looked into
RESULT = local("__result")


def varying_at_entry(code: CodeType, roots: Roots) -> frozenset[Source]:
    """Return the sources of dynamic values for a frame of this code that begins."""
    of_code = record(code)
    found = set(of_code.given)
    for source, callee in of_code.taken:
        found.update(rebased(part, source) for part in record(callee).results)
    for source in of_code.drawn:
        found.update(all_numbers(source, source.load(roots)))
    return frozenset(found)


def record_variables(code: CodeType, variables: dict[str, Value], vm: Machine) -> None:
    """Record which variables of a continuation hold dynamic values."""
    record_sources(code, (part for name, value in variables.items() for part in dynamic_parts(value, local(name), vm)))


def record_sources(code: CodeType, sources: Iterable[Source]) -> None:
    """Record sources at which a frame leaves dynamic values, for its next run."""
    record(code).given |= frozenset(sources)


def returned_floats(code: CodeType, roots: Roots) -> frozenset[Source]:
    """Return the sources of floats that came out of calls left to Python: the next call will return others."""
    found = (source for source in record(code).returned if type(source.load(roots)) is float)
    return frozenset(found)


def record_returned(code: CodeType, name: str) -> None:
    """Record that a continuation's variable holds the result of a call that was left to Python."""
    record(code).returned |= {local(name)}


def record_read(code: CodeType, name: str) -> None:
    """Record that a continuation's variable holds what was read from tensors."""
    record(code).drawn |= {local(name)}


def record_callee(code: CodeType, name: str, callee: CodeType) -> None:
    """Record that a continuation's variable holds the result of a function that is still running."""
    learned = record(code)
    if (local(name), callee) not in learned.taken:
        learned.taken = (*learned.taken, (local(name), callee))


def record_results(code: CodeType, value: Value, vm: Machine) -> None:
    """Record which results of a function are dynamic values, when a frame of it ends."""
    record(code).results |= frozenset(dynamic_parts(value, RESULT, vm))


def dynamic_parts(value: Value, source: Source, vm: Machine, seen: set[int] | None = None) -> Iterator[Source]:
    """Yield the sources, under `source`, of the dynamic values in a value.

    Each object is visited once; `seen` are those visited, which may contain themselves.
    """
    entity = vm.entity(value) if isinstance(value, Object) else None
    seen = set() if seen is None else seen
    if entity is not None:
        if entity.ref in seen:
            return
        seen.add(entity.ref)
    origin = getattr(value, "source", None) if entity is None else entity.source
    if origin is not None:
        yield from (rebased(part, source, origin) for part in vm.builder.numbers.varying if is_under(part, origin))
    if isinstance(value, Symbol):
        yield source
    elif isinstance(value, TensorNode):
        sizes = value.fake.shape if isinstance(value.fake, torch.Tensor) else ()
        yield from (Source("size", source, dim) for dim, size in enumerate(sizes) if isinstance(size, SYMBOLIC))
    elif entity is not None:
        for name, held in entity.attrs.items():
            yield from dynamic_parts(held, instance_attr(source, name), vm, seen)
        if isinstance(entity.items, (list, tuple)) and len(entity.items) <= MANY:
            for index, held in enumerate(entity.items):
                yield from dynamic_parts(held, Source("item", source, index), vm, seen)


def all_numbers(source: Source, obj: Any) -> Iterator[Source]:
    """Yield the sources of all numbers, sizes and strings in an object."""
    cls = type(obj)
    if cls is int or cls is float or cls is str:
        yield source
    elif isinstance(obj, torch.Tensor) and obj.layout is torch.strided and not obj.is_nested:
        yield from (Source("size", source, dim) for dim in range(obj.dim()))
    elif (cls is list or cls is tuple) and len(obj) <= MANY:
        for index, held in enumerate(obj):
            yield from all_numbers(Source("item", source, index), held)


def numbers_in(roots: Roots) -> dict[Source, Any]:
    """Return the numbers and sizes in the variables of a frame that begins, by source."""
    held = {local(name): obj for name, obj in roots.locals.items()}
    dicts = [(source, obj) for source, obj in held.items() if type(obj) is dict and len(obj) <= MANY]
    held.update((Source("key", source, key), obj[key]) for source, obj in dicts for key in obj if type(key) in PLAIN)
    sources = [part for source, obj in held.items() for part in all_numbers(source, obj)]
    found = {source: source.load(roots) for source in sources}
    return {source: number for source, number in found.items() if type(number) is not str}


PLAIN = (int, str)


def is_under(part: Source, origin: Source) -> bool:
    """Return whether a source leads through another."""
    return part is origin or (part.base is not None and is_under(part.base, origin))


def rebased(part: Source, base: Source, origin: Source = RESULT) -> Source:
    """Return a source with its beginning `origin` replaced by `base`."""
    return base if part is origin or part.base is None else Source(part.how, rebased(part.base, base, origin), part.arg)
