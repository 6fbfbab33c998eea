"""collections.deque: a list that can be changed at both ends, and may drop what is too much. See also sequence.py."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

from torchdynamo.capture.types.checked_iterators import Strict
from torchdynamo.capture.types.pending_appends import Tail, tail
from torchdynamo.capture.types.pending_appends import replay as replay_tail
from torchdynamo.capture.types.sequence import DEQUE, items_of, limit, read, times_over, write
from torchdynamo.capture.vm import finalizers
from torchdynamo.capture.vm.emitted_calls import push, push_call, refill
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.iteration import make_iterator
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Emitter, iterates, models, rebuilds, replays
from torchdynamo.capture.vm.operators import inverting, same_or_equal
from torchdynamo.capture.vm.raising import refused_call
from torchdynamo.capture.vm.scalar_subclasses import indexed, plainly
from torchdynamo.core.signals import Break
from torchdynamo.core.value import NONE, Known, Object, Value, boolean

ONE = Known(1)


def resize(vm: Machine, value: Object) -> list[Value]:
    """Return the items, to be moved, made more or fewer. Ends the deque's iterators."""
    vm.entity(value).version += 1
    return write(vm, value)


def position(vm: Machine, items: list[Value], key: Value) -> int:
    """Return a deque's index as an int. Raises, in the program, IndexError and TypeError as Python does."""
    try:
        return range(len(items))[operator.index(vm.concretely(key))]
    except IndexError:
        raise vm.error(IndexError, "deque index out of range") from None
    except TypeError:
        raise vm.error(TypeError, "sequence index must be integer, not " + repr(key.pytype.__name__)) from None


@iterates(DEQUE)
def iterate(vm: Machine, value: Object) -> Iterator[Value]:
    """Yield the items from left to right; changing the deque meanwhile is an error, as in Python."""
    items = items_of(vm, value)
    return turns(vm, value, range(len(items)))


def turns(vm: Machine, value: Object, order: range) -> Iterator[Value]:
    items = items_of(vm, value)
    return Strict(vm, value, order, lambda at: read(vm, items, at), lambda: len(items), MUTATED)


MUTATED = "deque mutated during iteration"


@models(DEQUE, "__init__")
def init(vm: Machine, self: Object, iterable: Value | None = None, maxlen: Value = NONE) -> Value:
    try:
        most = DEQUE((), vm.known(maxlen, "maxlen")).maxlen
    except (TypeError, ValueError, OverflowError) as error:
        raise vm.refused(error) from None
    if items_of(vm, self):
        clear(vm, self)
    if not vm.entity(self).fresh:
        raise Break("side effect not replayable", what="deque.__init__()")
    vm.entity(self).payload = most
    if iterable is not None:
        extend(vm, self, iterable)
    return NONE


@models(DEQUE, ".maxlen")
def maxlen(vm: Machine, self: Object) -> Value:
    return Known(limit(vm, self))


@models(DEQUE, "append")
def append(vm: Machine, self: Object, item: Value) -> Value:
    after = tail(vm, self)
    if after is not None:
        after.append(item)
        return NONE
    most, items = limit(vm, self), resize(vm, self)
    items.append(item)
    if most is not None and len(items) > most:
        del items[0]
    return NONE


@models(DEQUE, "appendleft")
def appendleft(vm: Machine, self: Object, item: Value) -> Value:
    most, items = limit(vm, self), resize(vm, self)
    items.insert(0, item)
    if most is not None and len(items) > most:
        del items[-1]
    return NONE


@models(DEQUE, "extend")
def extend(vm: Machine, self: Object, items: Value) -> Value:
    for item in list(vm.iterate(items)):
        append(vm, self, item)
    return NONE


@models(DEQUE, "extendleft")
def extendleft(vm: Machine, self: Object, items: Value) -> Value:
    for item in list(vm.iterate(items)):
        appendleft(vm, self, item)
    return NONE


def taker(end: int) -> None:
    def row(vm: Machine, self: Object) -> Value:
        items = write(vm, self)
        if not items:
            raise vm.error(IndexError, "pop from an empty deque")
        resize(vm, self)
        item = read(vm, items, end)
        finalizers.let_go(vm, item)
        del items[end]
        return item

    models(DEQUE, "pop" if end else "popleft")(row)


taker(0)
taker(-1)


@models(DEQUE, "clear")
def clear(vm: Machine, self: Object) -> Value:
    items = items_of(vm, self)
    if items:
        finalizers.let_go(vm, *items)
        resize(vm, self).clear()
    return NONE


@models(DEQUE, "rotate")
def rotate(vm: Machine, self: Object, steps: Value = ONE) -> Value:
    items, count = write(vm, self), vm.known(steps, "count")
    if len(items) > 1:
        resize(vm, self)
        at = -operator.index(count) % len(items)
        items[:] = items[at:] + items[:at]
    return NONE


@models(DEQUE, "copy", "__copy__")
def copy(vm: Machine, self: Object) -> Value:
    return vm.new(self.pytype, list(items_of(vm, self)), payload=limit(vm, self))


@models(DEQUE, "__getitem__")
def getitem(vm: Machine, self: Object, key: Value) -> Value:
    items = items_of(vm, self)
    return read(vm, items, position(vm, items, key))


@models(DEQUE, "__setitem__")
def setitem(vm: Machine, self: Object, key: Value, value: Value) -> Value:
    items = write(vm, self)
    items[position(vm, items, key)] = value
    return NONE


@models(DEQUE, "__delitem__")
def delitem(vm: Machine, self: Object, key: Value) -> Value:
    items = resize(vm, self)
    del items[position(vm, items, key)]
    return NONE


def find(vm: Machine, self: Object, item: Value, span: range, error: type[Exception]) -> int | None:
    """Return the first index in a span at which an equal item is; None if there is none.

    Raises `error`, in the program, if comparing has changed the deque.
    """
    entity = vm.entity(self)
    version = entity.version
    for at in span:
        equal = same_or_equal(vm, read(vm, items_of(vm, self), at), item)
        if entity.version != version and not (equal and error is RuntimeError):
            raise vm.error(error, MUTATED)
        if equal:
            return at
    return None


@models(DEQUE, "remove")
def remove(vm: Machine, self: Object, item: Value) -> Value:
    at = find(vm, self, item, range(len(items_of(vm, self))), IndexError)
    if at is None:
        raise refused_call(vm, DEQUE.remove, DEQUE(), vm.concrete(item))
    finalizers.let_go(vm, items_of(vm, self)[at])
    del resize(vm, self)[at]
    return NONE


@models(DEQUE, "index")
def index(vm: Machine, self: Object, item: Value, *bounds: Value) -> Value:
    given = [vm.known(bound, "bound") for bound in bounds] + [0, None][len(bounds) :]
    at = find(vm, self, item, range(*slice(*given).indices(len(items_of(vm, self)))), RuntimeError)
    if at is None:
        raise refused_call(vm, DEQUE.index, DEQUE(), vm.concrete(item))
    return Known(at)


@models(DEQUE, "insert")
def insert(vm: Machine, self: Object, at: Value, item: Value) -> Value:
    most, items = limit(vm, self), resize(vm, self)
    if most is not None and len(items) >= most:
        raise vm.error(IndexError, "deque already at its maximum size")
    items.insert(vm.known(at, "index"), item)
    return NONE


@models(DEQUE, "__add__")
def concatenate(vm: Machine, self: Object, other: Value) -> Value:
    if not issubclass(other.pytype, DEQUE):
        return Known(NotImplemented)
    if self.pytype is not DEQUE:
        raise Break("unsupported method", name="__add__", type=self.pytype.__name__)
    made = vm.as_object(copy(vm, self))
    extend(vm, made, other)
    return made


@models(DEQUE, "__mul__", "__rmul__")
def repeat(vm: Machine, self: Object, times: Value) -> Value:
    if self.pytype is not DEQUE:
        raise Break("unsupported method", name="__mul__", type=self.pytype.__name__)
    return imul(vm, vm.as_object(copy(vm, self)), times)


@models(DEQUE, "__imul__")
def imul(vm: Machine, self: Object, times: Value) -> Value:
    count = vm.concrete(indexed(vm, plainly(vm, times)))
    if not isinstance(count, int):
        return Known(NotImplemented)
    most, items = limit(vm, self), resize(vm, self)
    more = times_over(list(iterate(vm, self)), count)
    items[:] = more if most is None else more[max(0, len(more) - most) :]
    return self


@models(DEQUE, "__eq__")
def equal(vm: Machine, self: Object, other: Value) -> Value:
    if not issubclass(other.pytype, DEQUE) or other.__class__ is not Object:
        return Known(NotImplemented)
    left, right = list(iterate(vm, self)), list(iterate(vm, other))
    return boolean(len(left) == len(right) and all(map(lambda a, b: same_or_equal(vm, a, b), left, right)))


models(DEQUE, "__ne__")(inverting(equal))


@models(DEQUE, "__reversed__")
def backwards(vm: Machine, self: Object) -> Value:
    order = range(len(items_of(vm, self)))[::-1]
    return make_iterator(vm, turns(vm, self, order), self, REVERSED)


REVERSED: type = type(reversed(DEQUE()))


@rebuilds(DEQUE)
def rebuild(emit: Emitter, entity: Entity) -> None:
    """Materialize a deque with its limit; a subclass's `__init__` has been run symbolically."""
    push_call(emit, make, entity.pytype, entity.items or [], entity.payload)


def make(cls: type, items: list[object], most: int | None) -> object:
    """Return a deque of the class without calling the class's `__init__`."""
    made: Any = DEQUE.__new__(cls)
    DEQUE.__init__(made, items, most)
    return made


@replays(DEQUE)
def replay(emit: Emitter, entity: Entity) -> None:
    """Replace the contents. The new ones are made first: they may be fetched from the old."""
    if entity.items.__class__ is Tail:
        replay_tail(emit, entity, DEQUE.extend)
        return
    push(emit, entity.items)
    refill(emit, entity, DEQUE.clear, DEQUE.extend)
