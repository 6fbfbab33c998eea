"""Find what changes between calls although earlier entries assumed it constant: numbers, sizes, strings, arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Any

import torch

from torchdynamo import _native
from torchdynamo.cache.entries import entries_of
from torchdynamo.capture.types.slices import PARTS
from torchdynamo.codegen import resume
from torchdynamo.core.learned import agreed, key_of, record
from torchdynamo.core.source import Guard, Roots, Source, keys_in_order
from torchdynamo.graph.sizes import explained
from torchdynamo.guards.constants import same_constant
from torchdynamo.guards.explain import first_failure
from torchdynamo.guards.kind import read
from torchdynamo.guards.kinds import KINDS
from torchdynamo.guards.kinds.tensor_match import TensorMeta

NUMBERS = (int, float)
MANY = 32  # more numbers that change together are data, not sizes: a symbol for each would cost more than it saves


WASTED = 3  # entries wasted on strings or keys that never came back, after which the next assumes none
DATA = 4  # floats that change in one list, from which on the list is data
CONTENTS = frozenset({"LENGTH", "DICT_KEYS", "SET_CONTENTS"})


def what_varies(code: CodeType, owner_id: int, roots: Roots, whole: bool) -> frozenset[Source]:
    """Return the sources that have changed since earlier entries, or were found to change in any part of the function.

    whole: the graph may not end, so changing contents remain constants.
    """
    guards = (guard for entry in entries_of(code, owner_id) for guard in reached(entry.guards, roots))
    with torch._C.DisableTorchFunctionSubclass():
        found = frozenset(source for guard in guards for source in varying(guard, roots))
    measures = frozenset(source for source in found if source.how in ("size", "stride"))
    found = found if len(found) - len(measures) <= MANY else measures
    if not whole:
        found |= changing_contents(code, owner_id, roots) | lists_of_data(found, roots)
    elsewhere = agreed.get(key_of(resume.origin(code).code), frozenset())  # on other ranks
    return found | in_other_pieces(code, owner_id, found) | elsewhere


def in_other_pieces(code: CodeType, owner_id: int, found: frozenset[Source]) -> frozenset[Source]:
    """Record the dynamic sources of this part of a function; return those known from its other parts."""
    varied = record(resume.origin(code).code).varied
    before = varied.get(owner_id, frozenset())
    varied[owner_id] = before | {source for source in found if is_of_variable(source)}
    return before if resume.is_continuation(code) else frozenset()


def is_of_variable(source: Source) -> bool:
    """Return whether a source begins at a variable, which all parts of a function know by the same name."""
    root = source.root()
    return root.how == "local" and not root.arg.startswith("__stack")


def changing_contents(code: CodeType, owner_id: int, roots: Roots) -> frozenset[Source]:
    """Return the sources of strings, containers and arrays that differed in entries which served no further call."""
    wasted: dict[Source, int] = {}
    for entry in _native.cache_entries(code):
        if entry.owner_id == owner_id and entry.info is not None and entry.hits <= 1:
            for guard in reached(entry.info.guards, roots):
                if is_about_contents(guard) and first_failure((guard,), roots) is not None:
                    wasted[guard.source] = wasted.get(guard.source, 0) + 1
    return frozenset(source for source, times in wasted.items() if times >= (1 if source.how == "method" else WASTED))


def lists_of_data(found: Iterable[Source], roots: Roots) -> frozenset[Source]:
    """Return the sources of lists in which several floats change."""
    floats = (source for source in found if source.how == "item" and type(read(source, roots)) is float)
    lists = Counter(source.base for source in floats if source.base is not None)
    return frozenset(source for source, times in lists.items() if times >= DATA and type(read(source, roots)) is list)


def reached(guards: Iterable[Guard], roots: Roots) -> Iterator[Guard]:
    """Yield the guards of an entry, but for those about parts of an object in whose place lies one of another type.

    Reading such a part might run code of the program's: `__getitem__`, `__missing__`, a property.
    """
    lost: set[Source] = set()
    for guard in guards:
        if lost and is_below(guard.source, lost):
            continue
        yield guard
        if guard.kind in OF_TYPES and not is_of_same_type(guard, roots):
            lost.add(guard.source)


OF_TYPES = frozenset({"TYPE_MATCH", "ID_MATCH", "FUNCTION_MATCH", "TENSOR_MATCH"})


def is_of_same_type(guard: Guard, roots: Roots) -> bool:
    """Return whether what is at a guard's source has the type that the guard wants."""
    now = read(guard.source, roots)
    if isinstance(guard.arg, TensorMeta):
        return type(now) is guard.arg.cls
    return KINDS[guard.kind].holds(now, guard.arg, roots)


def is_below(source: Source | None, lost: set[Source]) -> bool:
    """Return whether a path leads through one of these sources."""
    while source is not None and source not in lost:
        source = source.base
    return source is not None


def is_about_contents(guard: Guard) -> bool:
    """Return whether a guard is about the items or characters that an object contains."""
    return guard.kind in CONTENTS or (guard.kind == "EQUALS_MATCH" and type(guard.arg) in (str, bytes))


def varying(guard: Guard, roots: Roots) -> Iterator[Source]:
    """Yield the sources that a guard assumed constant and that differ now."""
    if guard.kind == "TYPE_MATCH" and guard.arg in NUMBERS:
        yield guard.source
    elif guard.kind == "EQUALS_MATCH" and type(guard.arg) in NUMBERS:
        now = read(guard.source, roots)
        if type(now) is type(guard.arg) and not same_constant(guard.arg, now):
            yield guard.source
    elif guard.kind == "EQUALS_MATCH" and type(guard.arg) is torch.Size:
        now = read(guard.source, roots)
        if type(now) is torch.Size and len(now) == len(guard.arg):
            yield from (
                Source("item", guard.source, at)
                for at, (before, after) in enumerate(zip(guard.arg, now, strict=True))
                if before != after
            )
    elif guard.kind == "EQUALS_MATCH" and type(guard.arg) is slice:
        now = read(guard.source, roots)
        for name in PARTS if type(now) is slice else ():
            before, after = getattr(guard.arg, name), getattr(now, name)
            if type(before) in NUMBERS and type(after) is type(before) and after != before:
                yield Source("attr", guard.source, name)
    elif guard.kind == "DICT_KEYS":
        yield from running_keys(guard, read(guard.source, roots))
    elif guard.kind == "TENSOR_MATCH" and isinstance(guard.arg, TensorMeta):
        now = read(guard.source, roots)
        if type(now) is int:
            yield guard.source  # a tensor became a number: other numbers will follow
        elif isinstance(now, torch.Tensor) and now.layout is torch.strided and not now.is_nested:
            yield from varying_dimensions(guard.source, guard.arg, now)


def running_keys(guard: Guard, now: Any) -> Iterator[Source]:
    """Yield the sources, by position, of integer keys of a dict that differ from the guarded ones."""
    found = keys_in_order(now) if isinstance(now, dict) else []
    if all(type(key) is int for key in (*guard.arg, *found)):
        differing = (at for at, pair in enumerate(zip(guard.arg, found, strict=False)) if pair[0] != pair[1])
        yield from (Source("key_at", guard.source, at) for at in differing)


def varying_dimensions(source: Source, before: TensorMeta, now: torch.Tensor) -> Iterator[Source]:
    """Yield the sources of sizes that differ, and of strides that differ without a size as the cause."""
    if before.size is None or before.stride is None or len(before.size) != now.dim():
        return
    for dim, length in enumerate(before.size):
        if length != now.size(dim):
            yield Source("size", source, dim)
    told = explained(now)
    for dim, stride in enumerate(before.stride):
        if stride is not None and stride != now.stride(dim) and dim not in told:
            yield Source("stride", source, dim)
