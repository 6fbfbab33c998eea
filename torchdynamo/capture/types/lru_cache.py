"""functools.lru_cache and cached_property."""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping, Sequence
from typing import Any

from torchdynamo.capture.speculate import cached_calls
from torchdynamo.capture.vm.cached_calls import CACHED, CachedCall, guard_of_result, keeps_results
from torchdynamo.capture.vm.effect_kinds import EffectKind
from torchdynamo.capture.vm.heap import MISSING, Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import CACHED_CALL, is_open, models
from torchdynamo.capture.vm.namespaces import write_instance
from torchdynamo.capture.vm.wrap import CONSTANTS, holds_nan, lift, wrap
from torchdynamo.core.signals import Assumption, Break
from torchdynamo.core.source import Pinned, Source, instance_attr
from torchdynamo.core.value import ABSENT, NONE, Object, TensorNode, Value

RESULT = "what a function that keeps its results has returned"
PLAIN_HASH: Any = object.__hash__
PLAIN_EQ: Any = object.__eq__


@models(CACHED, "__call__")
def call(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
    """Ask the real cache, as eager would, where it would be asked for the very same objects.

    For arguments that only exist in this frame no answer can be in it yet: then the function itself is inlined. For
    numbers of the graph there may be one, which is another for each: see speculate/cached_calls.py.
    """
    entity = vm.entity(self)
    if entity.real is MISSING:
        return CACHED_CALL[CACHED](vm, self, list(args), dict(kwargs))
    given = [*args, *kwargs.values()]
    presumed = Assumption.CACHES not in vm.builder.numbers.dropped
    numbers = presumed and any(cached_calls.holds_number(vm, value) for value in given)
    if numbers or any(made_here(vm, value) for value in given):
        assert entity.source is not None
        inner = wrap(vm, entity.real.__wrapped__, instance_attr(entity.source, "__wrapped__"))
        if numbers:
            return cached_calls.follow(vm, inner, list(args), dict(kwargs))
        return vm.call(inner, list(args), dict(kwargs))
    real = [same_object(vm, value, {}) for value in args]
    named = {name: same_object(vm, value, {}) for name, value in kwargs.items()}
    switched = any(change.kind is EffectKind.STATE for change in vm.effects.net(vm.effects.start))
    try:
        found = entity.real(*real, **named)
    except Exception as error:
        if is_of_hash(error, (*real, *named.values())):
            vm.of_process[RESULT] = None
            raise vm.refused(error) from None
        raise Break("unknown call", name="lru_cache") from None  # nothing was kept: each call asks the function anew
    guard = None
    if not named and entity.source is not None:
        guard = guard_of_result(entity.real, entity.source, tuple(real), None)
        if guard is not None:
            vm.guard(*guard[:3])
    note_call(vm, entity, args, kwargs, found, guarded=guard is not None, switched=switched)
    if can_change(found):  # one object for all callers
        return wrap(vm, found, Source("pinned", None, Pinned(found)))
    return lift(vm, found)


def is_of_hash(error: Exception, given: tuple[Any, ...]) -> bool:
    """Return whether an error is that of an argument without a hash, and not one of the function, which may be C's."""
    if error.__traceback__ is None or error.__traceback__.tb_next is not None:
        return False
    try:
        hash(given)
    except TypeError as same:
        return type(error) is TypeError and same.args == error.args
    return False


def can_change(found: Any) -> bool:
    """Return whether a result is a container, or a tuple with one in it."""
    return type(found) in (list, dict, set) or (type(found) is tuple and any(map(can_change, found)))


def note_call(
    vm: Machine,
    entity: Entity,
    args: Sequence[Value],
    named: Mapping[str, Value],
    found: Any,
    *,
    guarded: bool,
    switched: bool,
) -> None:
    """Note a call of a real function, for a process that uses this capture: it makes the call before the frame runs.

    guarded: a guard says that the cache holds the result. switched: the frame has switched modes until then, which it
    has not when it begins; all else that it has written is done when the graph has run, and the function has not seen
    it. Where modes are others, or the call cannot be written, the capture serves this process only.
    """
    given = [argument_of(vm, value) for value in (*args, *named.values())]
    plain = type(found) in CONSTANTS and is_plain(found) and all(each is not NOWHERE for each in given)
    if switched or not (plain and keeps_results(entity.real)) or entity.source is None:
        vm.of_process[RESULT] = None
        return
    place = vm.position()
    pairs = tuple(zip(named, given[len(args) :], strict=True))
    position = None if place is None else tuple(place)
    vm.cached_calls.append(CachedCall(entity.source, tuple(given[: len(args)]), pairs, found, guarded, position))


NOWHERE = object()


def is_plain(obj: Any) -> bool:
    """Return whether an object is a constant that has an equal in each process, or a tuple of these."""
    return all(map(is_plain, obj)) if type(obj) is tuple else type(obj) in CONSTANTS and not holds_nan(obj)


def argument_of(vm: Machine, value: Value) -> Any:
    """Return an argument as a constant, a source or a tuple of these; NOWHERE if it is none."""
    if value.__class__ is not Object:
        obj = vm.concretely(value)
        return obj if is_plain(obj) else NOWHERE
    if value.pytype is tuple:
        parts = tuple(argument_of(vm, item) for item in vm.iterate(value))
        return NOWHERE if any(part is NOWHERE for part in parts) else parts
    source = vm.entity(value).source
    return NOWHERE if source is None else source


def made_here(vm: Machine, value: Value) -> bool:
    """Return whether a value equals nothing outside of this frame."""
    if value.__class__ is TensorNode:
        return value.source is None
    if value.__class__ is not Object or not by_identity(value.pytype):
        return value.__class__ is Object and value.pytype is tuple and any(made_here(vm, x) for x in vm.iterate(value))
    return vm.entity(value).fresh


def by_identity(cls: Any) -> bool:
    return cls.__hash__ is PLAIN_HASH and cls.__eq__ is PLAIN_EQ


def same_object(vm: Machine, value: Value, made: dict[int, Any]) -> Any:
    """Return the argument that the real cache would see: the object itself, or an equal one made for real."""
    if value.__class__ is Object and by_identity(value.pytype):
        entity = vm.entity(value)
        assert entity.source is not None
        if entity.changed:
            raise Break("unknown call", name="lru_cache")
        if entity.source.how != "pinned":
            vm.guard(entity.source, "ID_MATCH", entity.real)
        return entity.real
    if value.__class__ is Object and value.pytype is tuple:
        return tuple(same_object(vm, item, made) for item in vm.iterate(value))
    base = written_on(value.pytype)
    if base is None or value.__class__ is not Object:
        return vm.concretely(value)
    entity = vm.entity(value)
    if entity.fresh:
        return replica(vm, value, base, made)
    assert entity.source is not None
    if base is not object or entity.changed:
        raise Break("unknown call", name="lru_cache")
    vm.hkey(value)  # what its hash is made of is looked at, and so guarded
    vm.guard(entity.source, "ID_MATCH", entity.real)
    return entity.real


def written_on(cls: type) -> Any:
    """Return the plain type that a class written in Python extends; None for other types."""
    first = next(base for base in cls.__mro__ if not is_open(base))
    return first if first in (object, dict) and cls is not first else None


def replica(vm: Machine, value: Object, base: Any, made: dict[int, Any]) -> Any:
    """Return a real object like one that the frame made of constants, whose `__init__` has been inlined."""
    found = made.get(value.ref)
    if found is None:
        found = made[value.ref] = base.__new__(value.pytype)
        for key, item in vm.dict_items(value) if base is dict else ():
            dict.__setitem__(found, vm.concretely(key), same_object(vm, item, made))
        for name, held in vm.entity(value).attrs.items():
            if held is not ABSENT:
                object.__setattr__(found, name, same_object(vm, held, made))
    return found


@models(CACHED, "__get__")
def bind(vm: Machine, self: Value, obj: Value, cls: Value) -> Value:
    return vm.new(types.MethodType, __self__=obj, __func__=self)


@models(CACHED, "cache_clear")
def cache_clear(vm: Machine, self: Value) -> Value:
    raise Break("side effect not replayable", what="cache_clear()")


@models(functools.cached_property, "__get__")
def cached_property(vm: Machine, self: Object, instance: Value, owner: Value = NONE) -> Value:
    """Compute a cached property and store it.

    It is not in the instance's `__dict__`: else the property were not asked.
    """
    if instance.__class__ is not Object:
        return self
    value = vm.call(vm.getattr(self, "func"), [instance], {})
    write_instance(vm, vm.entity(instance), vm.known(vm.getattr(self, "attrname"), "name"), value)
    return value
