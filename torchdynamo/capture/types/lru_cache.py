"""functools.lru_cache and cached_property."""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torchdynamo.bytecode.decode import decode
from torchdynamo.capture.speculate import inlined_caches
from torchdynamo.capture.vm.cached_calls import (
    CACHED,
    CachedCall,
    ask,
    cache_asked,
    guard_of_result,
    holds,
    key_of,
    most_results,
    same,
)
from torchdynamo.capture.vm.effect_kinds import Change, EffectKind
from torchdynamo.capture.vm.heap import MISSING, Entity
from torchdynamo.capture.vm.lookup import instance_dict
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import CACHED_CALL, is_open, models
from torchdynamo.capture.vm.namespaces import write_instance
from torchdynamo.capture.vm.wrap import CONSTANTS, holds_nan, lift, wrap
from torchdynamo.core import learned
from torchdynamo.core.call_sites import line_of
from torchdynamo.core.signals import Assumption, Break, NotYet, Restart
from torchdynamo.core.source import Pinned, Source, instance_attr
from torchdynamo.core.value import ABSENT, NONE, Known, Object, TensorNode, Value
from torchdynamo.hook import interrupts

RESULT = "what a function that keeps its results has returned"
PLAIN_HASH: Any = object.__hash__
PLAIN_EQ: Any = object.__eq__


@models(CACHED, "__call__")
def call(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
    """Ask the real cache, as eager would, where it would be asked for the very same objects.

    For numbers of the graph there may be an answer, which is another for each: see speculate/inlined_caches.py. Objects
    that only exist in this frame the cache would keep, and know again: such a call is the program's own.
    """
    entity = vm.entity(self)
    if entity.real is MISSING:
        return CACHED_CALL[CACHED](vm, self, list(args), dict(kwargs))
    if not most_results(entity.real):
        return vm.call(wrapped(vm, entity), list(args), dict(kwargs))
    given = [*args, *kwargs.values()]
    if any(made_here(vm, value) for value in given):
        raise unknown_call()
    presumed = Assumption.CACHES not in vm.builder.numbers.dropped
    if presumed and any(inlined_caches.holds_number(vm, value) for value in given):
        return inlined_caches.inline(vm, wrapped(vm, entity), list(args), dict(kwargs))
    made: dict[int, Any] = {}
    listed = [argument(vm, value, made) for value in args]
    by_name = {name: argument(vm, value, made) for name, value in kwargs.items()}
    real, named = [each.real for each in listed], {name: each.real for name, each in by_name.items()}
    try:
        hash((*real, *named.values()))
        key = key_of(entity.real, real, named)
        kept = holds(entity.real, key)
    except Exception as error:
        if type(error) is TypeError and (error.__traceback__ is None or error.__traceback__.tb_next is None):
            vm.of_process[RESULT] = None
            raise vm.refused(error) from None
        raise unknown_call() from None
    at_entry = all(is_as_at_entry(vm, change) for change in vm.effects.net(vm.effects.start))
    if not kept:
        refuse_call(vm, entity, as_in_eager=not made and (at_entry or is_in_place(vm)))
        leave_first_call(vm, entity.real, key)
    try:
        found = ask(entity.real, real, named, vm.calling())
    except BaseException:
        if interrupts.came():
            raise
        raise unknown_call() from None  # nothing was kept: each call asks the function anew
    guard = None
    if entity.source is not None:
        guard = guard_of_result(entity.real, entity.source, key, None, made.values())
    if guard is None:
        raise unknown_call()
    vm.guard(*guard[:3])
    note_call(vm, entity, listed, by_name, found, at_entry=at_entry)
    if can_change(found):  # one object for all callers
        return wrap(vm, found, Source("pinned", None, Pinned(found)))
    return lift(vm, found)


def wrapped(vm: Machine, entity: Entity) -> Value:
    """Return the function that a cache is for."""
    assert entity.source is not None
    return wrap(vm, entity.real.__wrapped__, instance_attr(entity.source, "__wrapped__"))


def unknown_call() -> Break:
    """Return what ends the graph before a call, which then is the program's own."""
    return Break("unknown call", name="lru_cache")


def refuse_call(vm: Machine, entity: Entity, *, as_in_eager: bool) -> None:
    """End the graph before a call of a function that would see what is not yet so, or drop what a guard looks for.

    as_in_eager: it would see what it sees in eager, and be given the program's own objects.
    What the frame has written is not there before its graph has run; where it has, the cache may hold the result: so
    the first such call of a frame runs as written, and its next call is captured.
    """
    if not as_in_eager:
        record = learned.record(vm.frames[0].raw)
        if record.filled_caches or vm.builder.exporting:
            raise unknown_call()
        record.filled_caches = True
        raise NotYet
    if entity.source is None:
        raise unknown_call()
    asked = sum(cache_asked(guard) is entity.source for guard in vm.guards.values())
    if asked >= most_results(entity.real):
        learned.crowded.add(entity.real)
    if entity.real in learned.crowded:
        raise unknown_call()


def leave_first_call(vm: Machine, function: Any, key: Any) -> None:
    """Leave the first call of a function that may raise, for these arguments, to the program.

    What raises is not kept: called while the frame is captured, it would be called once more when the frame runs.
    """
    code = getattr(function.__wrapped__, "__code__", None)
    if vm.builder.exporting or type(code) is not types.CodeType:
        return
    if all(each.op != "RAISE" for each in decode(code).instructions):
        return
    asked = id(function), hash(key)
    record = learned.record(vm.frames[0].raw)
    if asked in record.left_to_raise:
        raise unknown_call()
    record.left_to_raise.add(asked)
    raise NotYet


def is_in_place(vm: Machine) -> bool:
    """Return whether all that the frame has done so far is so in the process: switches of torch's are."""
    if vm.modes or vm.devices or vm.modes_off or vm.subclasses_off:
        return False
    return all(is_as_at_entry(vm, change) for change in vm.effects.net(vm.effects.start, SEEN))


SEEN = (EffectKind.STATE, EffectKind.ASSUMPTION)


def can_change(found: Any) -> bool:
    """Return whether a result is a container, or a tuple with one in it."""
    return type(found) in (list, dict, set) or (type(found) is tuple and any(map(can_change, found)))


def is_as_at_entry(vm: Machine, change: Change) -> bool:
    """Return whether what was written is again what it was when the frame began, which is guarded then.

    That goes for attributes of an object that are constants.
    """
    entity = change.owner
    if change.kind is not EffectKind.ATTRIBUTE or entity is None or entity.source is None:
        return False
    if entity.payload is not None or vm.effects.set_again(entity) or written_on(entity.pytype) is not object:
        return False
    own = instance_dict(entity.real)
    if type(own) is not dict or not all(is_constant_of(own, *pair) for pair in entity.attrs.items()):
        return False
    before = [wrap(vm, own[name], instance_attr(entity.source, name)) for name in entity.attrs]
    return all(each.__class__ is Known for each in before)


def is_constant_of(own: dict[str, Any], name: str, value: Value) -> bool:
    """Return whether a value is the constant that a dict has."""
    return value.__class__ is Known and type(value.obj) in CONSTANTS and same(own.get(name, own), value.obj)


def note_call(
    vm: Machine,
    entity: Entity,
    args: Sequence[Argument],
    named: Mapping[str, Argument],
    found: Any,
    *,
    at_entry: bool,
) -> None:
    """Note a call of a real function, for a process that uses this capture: it makes the call before the frame runs.

    at_entry: all that the function could see was then as it is when the frame begins. Where it was not, the cache held
    the result before, and has to hold it there. Where the call cannot be written, the capture serves this process only.
    """
    listed, pairs = tuple(each.stored for each in args), tuple((name, each.stored) for name, each in named.items())
    storable = type(found) in CONSTANTS and is_storable(found)
    storable &= all(each is not NOWHERE for each in (*listed, *(stored for _, stored in pairs)))
    if not storable or entity.source is None:
        vm.of_process[RESULT] = None
        return
    place, line = vm.position(), line_of(vm.frames)
    position = None if place is None else tuple(place)
    module = "" if line is None else line[0].module
    vm.cached_calls.append(CachedCall(entity.source, listed, pairs, found, at_entry, position, module))


def is_storable(obj: Any) -> bool:
    """Return whether an object is a constant that has an equal in each process, or a tuple of these."""
    return all(map(is_storable, obj)) if type(obj) is tuple else type(obj) in CONSTANTS and not holds_nan(obj)


class Argument(NamedTuple):
    """An argument of a call of a real function: as it is passed, and as another process finds it."""

    real: Any
    stored: Any  # a constant, a source or a tuple of these; NOWHERE if it is none


NOWHERE = object()


def argument(vm: Machine, value: Value, made: dict[int, Any]) -> Argument:
    """Return the argument that the real cache would see, whose identity is guarded, or an equal one made for real.

    made: by reference, the objects that the frame has made, of which there are real ones now.
    """
    if value.__class__ is not Object:
        obj = vm.concretely(value)
        if holds_nan(obj):  # equals itself alone
            if value.__class__ is not Known or value.source is None:  # the frame may make another in each call
                raise Restart(-1, "a NaN that a function with a cache is asked about")
            raise unknown_call()
        return Argument(obj, obj if is_storable(obj) else NOWHERE)
    if value.pytype is tuple:
        parts = [argument(vm, item, made) for item in vm.iterate(value)]
        whole, stored = tuple(part.real for part in parts), tuple(part.stored for part in parts)
        return Argument(whole, NOWHERE if any(each is NOWHERE for each in stored) else stored)
    real, source = real_object(vm, value, made), vm.entity(value).source
    return Argument(real, NOWHERE if source is None else source)


def real_object(vm: Machine, value: Object, made: dict[int, Any]) -> Any:
    """Return the object that a value is, guarded to be this one, or an equal one made for real."""
    entity = vm.entity(value)
    if not by_identity(value.pytype):
        base = written_on(value.pytype)
        if base is None:
            return vm.concretely(value)
        if entity.fresh:
            return replica(vm, value, base, made)
        if base is not object:
            raise unknown_call()
    if entity.changed:
        raise unknown_call()
    assert entity.source is not None
    if not by_identity(value.pytype):
        vm.hkey(value)  # what its hash is made of is looked at, and so guarded
    if entity.source.how != "pinned":
        vm.guard(entity.source, "ID_MATCH", entity.real)
    return entity.real


def made_here(vm: Machine, value: Value) -> bool:
    """Return whether a value equals nothing outside of this frame."""
    if value.__class__ is TensorNode:
        return value.source is None
    if value.__class__ is not Object or not by_identity(value.pytype):
        return value.__class__ is Object and value.pytype is tuple and any(made_here(vm, x) for x in vm.iterate(value))
    return vm.entity(value).fresh


def by_identity(cls: Any) -> bool:
    """Return whether instances of a class are equal to themselves alone."""
    return cls.__hash__ is PLAIN_HASH and cls.__eq__ is PLAIN_EQ


def written_on(cls: type) -> Any:
    """Return the plain type that a class written in Python extends; None for other types."""
    first = next(base for base in cls.__mro__ if not is_open(base))
    return first if first in (object, dict) and cls is not first else None


def replica(vm: Machine, value: Object, base: Any, made: dict[int, Any]) -> Any:
    """Return a real object like one that the frame made of constants, whose `__init__` has been inlined.

    A cache is only to be asked about it: what it has no result for it would keep, in place of the program's object.
    """
    found = made.get(value.ref)
    if found is None:
        found = made[value.ref] = base.__new__(value.pytype)
        for key, item in vm.dict_items(value) if base is dict else ():
            dict.__setitem__(found, vm.concretely(key), argument(vm, item, made).real)
        for name, held in vm.entity(value).attrs.items():
            if held is not ABSENT:
                object.__setattr__(found, name, argument(vm, held, made).real)
    return found


@models(CACHED, "__get__")
def bind(vm: Machine, self: Value, obj: Value, cls: Value) -> Value:
    return vm.new(types.MethodType, __self__=obj, __func__=self)


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
