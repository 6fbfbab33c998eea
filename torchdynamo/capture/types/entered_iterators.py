"""Iterators that existed at entry: what each gives next is guarded, and it is advanced when the graph has run.

How far an iterator is does not matter, only what comes: `next(layers)` is one version for all layers of a kind.
Iterators over sequences, and those made of such, tell what they hold by `__reduce__`, which takes nothing from them.
Those over dicts and sets do not, nor do generators: they end the graph.
"""

from __future__ import annotations

import gc
import itertools
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from torchdynamo.capture.types import iterator_steps
from torchdynamo.capture.vm.emitted_calls import replay_call
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.iteration import ITERATOR_TYPES, IteratorState
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Emitter, enters, replays
from torchdynamo.core.signals import Break, Restart
from torchdynamo.core.source import Source
from torchdynamo.core.value import ONE, Object, Value

MOST = 1 << 12  # items that are looked at
SEQUENCES: tuple[Any, ...] = (list, tuple, range, str, bytes)
BACKWARDS: type = type(reversed([]))
SEQUENCE_ITERATORS: tuple[type, ...] = (*map(ITERATOR_TYPES.__getitem__, SEQUENCES), type(iter("\u0100")), BACKWARDS)


# -- what real iterators tell ------------------------------------------------------------------------------------------
def parts(iterator: Any) -> tuple[Any, ...]:
    """Return the arguments of which an iterator can be made again, as a tuple, and its state if it has any besides."""
    found: tuple[Any, ...] = iterator.__reduce__()[1:]
    return found


def upcoming(iterator: Any) -> tuple[Any, ...]:
    """Return the items that an iterator over a sequence gives next, MOST at most."""
    (items,), *position = parts(iterator)
    at = position[0] if position and position[0] is not None else 0
    backwards = type(iterator) is BACKWARDS and bool(position)
    span = slice(max(0, at + 1 - MOST), at + 1) if backwards else slice(at, at + MOST)
    base = next(each for each in SEQUENCES if isinstance(items, each))  # a subclass may have its own `__getitem__`
    if backwards and at >= base.__len__(items):
        return ()  # the list got shorter, which ends it
    found = base.__getitem__(items, span)
    return tuple(reversed(found) if backwards else found)


def next_number(iterator: Any) -> int | None:
    """Return the next number of an `itertools.count` that counts by ones; None of another."""
    holds = [each for each in gc.get_referents(iterator) if not isinstance(each, type)]  # newer Pythons visit its class
    shown = re.fullmatch(r"count\((-?\d+)\)", repr(iterator)) if holds == [1] else None
    return None if shown is None else int(shown[1])


def advance(iterator: Any, count: int, ended: bool) -> None:
    """Take so many items from an iterator, and then, if it has ended, have it find that out."""
    next(itertools.islice(iterator, count, count), None)
    if ended:
        next(iterator, None)


# -- what they give ----------------------------------------------------------------------------------------------------
class Upcoming:
    """Yield the items that an iterator over a sequence gives."""

    def __init__(self, vm: Machine, entity: Entity) -> None:
        assert entity.source is not None
        self.vm, self.entity, self.over = vm, entity, False
        self.sequence = parts(entity.real)[0][0]
        self.items, self.source = upcoming(entity.real), Source("asked", entity.source, upcoming)
        self.at = 0
        self.counted_by: list[Entity] = []  # what takes from it and counts the items

    def __iter__(self) -> Iterator[Value]:
        return self

    def __next__(self) -> Value:
        if self.over:
            raise StopIteration
        if self.has_changed() or self.source in self.vm.builder.numbers.varying:
            raise Break("unknown iterator", type=f"{type(self.sequence).__name__} that changes")
        if self.at == MOST:
            raise Break("too long to follow", name="iterator")
        if self.at == len(self.items):
            self.vm.guard(self.source, "LENGTH", self.at)
            self.over = True
            raise StopIteration
        self.at += 1
        return self.vm.wrap(self.items[self.at - 1], Source("item", self.source, self.at - 1))

    def has_changed(self) -> bool:
        """Return whether the frame has written to the sequence."""
        known = self.vm.heap.by_id.get(id(self.sequence))
        return known is not None and self.vm.entity(known).touched


def arguments(vm: Machine, entity: Entity) -> list[Value]:
    """Return what an iterator was made of. Ends the graph for one that was asked to be strict."""
    assert entity.source is not None
    source, found = Source("asked", entity.source, parts), parts(entity.real)
    vm.guard(source, "LENGTH", len(found))
    if len(found) > 1:
        raise Break("unknown iterator", type=entity.pytype.__name__)
    vm.guard(Source("item", source, 0), "LENGTH", len(found[0]))
    return [vm.wrap(each, Source("item", Source("item", source, 0), at)) for at, each in enumerate(found[0])]


def steps_of(vm: Machine, iterator: Value) -> IteratorState:
    """Return the steps of an iterator that others take from. Ends the graph for one that tells nothing."""
    found = vm.entity(iterator).items if iterator.__class__ is Object else None
    if found.__class__ is not IteratorState:
        raise Break("unknown iterator", type=iterator.pytype.__name__)
    return found


class MadeOfOthers:
    """Give what an iterator gives that is made of others. They are looked at when the first item is asked for."""

    def __init__(self, make: Callable[[Machine, Entity], Iterator[Value]], vm: Machine, entity: Entity) -> None:
        self.make, self.vm, self.entity = make, vm, entity
        self.steps: Iterator[Value] | None = None

    def __iter__(self) -> Iterator[Value]:
        return self

    def __next__(self) -> Value:
        if self.steps is None:
            self.steps = self.make(self.vm, self.entity)
        return next(self.steps)


def enumerated(vm: Machine, entity: Entity) -> Iterator[Value]:
    iterator, number = arguments(vm, entity)
    steps = steps_of(vm, iterator)
    if steps.inner.__class__ is not Upcoming:
        raise Break("unknown iterator", type="enumerate")  # to take items from it for real would call something
    steps.inner.counted_by.append(entity)
    entity.payload = steps.inner
    return iterator_steps.enumerated(vm, steps, number)


def zipped(vm: Machine, entity: Entity) -> Iterator[Value]:
    return iterator_steps.zipped(vm, [steps_of(vm, each) for each in arguments(vm, entity)])


def mapped(vm: Machine, entity: Entity) -> Iterator[Value]:
    fn, *iterators = arguments(vm, entity)
    return iterator_steps.mapped(vm, fn, [steps_of(vm, each) for each in iterators])


def filtered(vm: Machine, entity: Entity) -> Iterator[Value]:
    fn, iterator = arguments(vm, entity)
    return iterator_steps.filtered(vm, fn, steps_of(vm, iterator))


def counting(vm: Machine, entity: Entity) -> Iterator[Value]:
    assert entity.source is not None
    number = vm.wrap(next_number(entity.real), Source("asked", entity.source, next_number))
    if number.pytype is not int:
        raise Break("unknown iterator", type="count")
    return iterator_steps.counted(vm, number, ONE)


def enter_as(steps: Callable[[Machine, Entity], Iterator[Value]], *kinds: type) -> None:
    """Register iterators that a program may have made, and what gives their items."""

    def enter(vm: Machine, obj: Any, source: Source) -> Value:
        vm.guard(source, "TYPE_MATCH", type(obj))
        value = vm.heap.adopt(obj, source)
        if type(obj) in kinds:
            entity = vm.entity(value)
            entity.items = IteratorState(vm.effects, entity, steps(vm, entity), None)
        return value

    enters(*kinds)(enter)


enter_as(Upcoming, *SEQUENCE_ITERATORS)
for _kind, _steps in {
    enumerate: enumerated,
    zip: zipped,
    map: mapped,
    filter: filtered,
    itertools.count: counting,
}.items():
    enter_as(partial(MadeOfOthers, _steps), _kind)


# -- advancing the real ones -------------------------------------------------------------------------------------------
@replays(*SEQUENCE_ITERATORS)
def replay(emit: Emitter, entity: Entity) -> None:
    """Take from an iterator what the frame has. Where others take from it and count, they do so."""
    inner = entity.items.inner
    if inner.has_changed() or (inner.over and len(inner.counted_by) > 1):
        raise Restart(-1)  # the order of the changes matters
    if not inner.counted_by:
        replay_call(emit, advance, entity, entity.items.count, inner.over)


@replays(enumerate)
def replay_enumerate(emit: Emitter, entity: Entity) -> None:
    """Take from an iterator through `enumerate`; the first that does so takes before what is taken from it alone."""
    inner = entity.payload_as(Upcoming)
    if inner.counted_by[0] is entity:
        alone = inner.entity.items.count - sum(each.items.count for each in inner.counted_by)
        replay_call(emit, advance, inner.entity, alone, False)
    replay_call(emit, advance, entity, entity.items.count, inner.over)


@replays(itertools.count)
def replay_count(emit: Emitter, entity: Entity) -> None:
    replay_call(emit, advance, entity, entity.items.count, False)


@replays(zip, map, filter)
def replay_others(emit: Emitter, entity: Entity) -> None:
    """Do nothing: all that they hold is iterators, which are advanced themselves."""
