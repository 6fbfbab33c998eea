"""functools.lru_cache round a function, put there by the frame: the cache is the frame's own."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from torchdynamo.capture.vm.emitted_calls import push_call
from torchdynamo.capture.vm.heap import MISSING, Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import CACHED_CALL, Emitter, models, rebuilds
from torchdynamo.core.signals import Break, Restart
from torchdynamo.core.value import NONE, Known, Object, Value

CACHED = functools._lru_cache_wrapper


class CachedFunction(NamedTuple):
    """The payload of a function with an `lru_cache`, made by the frame.

    It says what it wraps, how it keeps results, and how often it was asked for what it had, and for what it had not.
    """

    fn: Value
    most: int | None
    typed: bool
    info: Value  # the class of what `cache_info` returns
    hits: int = 0
    misses: int = 0


@models(CACHED, "__new__")
def new(vm: Machine, cls: Known, fn: Value, most: Value, typed: Value, info: Value) -> Value:
    return vm.new(CACHED, {}, CachedFunction(fn, vm.known(most, "maxsize"), bool(vm.known(typed, "typed")), info))


@models(CACHED, "__init__")
def init(vm: Machine, self: Object, *args: Value, **kwargs: Value) -> Value:
    return NONE


@CACHED_CALL.register(CACHED)
def call(vm: Machine, self: Object, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call a function with a cache.

    Results are kept in the order of their last use; the one unused longest is dropped.
    """
    entity = vm.entity(self)
    kept = entity.payload_as(CachedFunction)
    key: Any = (tuple(vm.hkey(arg) for arg in args), tuple((name, vm.hkey(arg)) for name, arg in kwargs.items()))
    if kept.typed:
        key = (key, tuple(arg.pytype for arg in (*args, *kwargs.values())))
    if key in entity.items:
        vm.effects.remember(entity, kept._replace(hits=kept.hits + 1))
        vm.effects.items(entity)
        found: Value = entity.items.pop(key)
        entity.items[key] = found
        return found
    vm.effects.remember(entity, kept._replace(misses=kept.misses + 1))
    result: Value = vm.call(kept.fn, args, kwargs)
    if kept.most != 0 and key not in entity.items:  # it may have asked for the same itself
        vm.effects.items(entity)
        if kept.most is not None and len(entity.items) >= kept.most:
            del entity.items[next(iter(entity.items))]
        entity.items[key] = result
    return result


@models(CACHED, "cache_info")
def cache_info(vm: Machine, self: Object) -> Value:
    """Return how often the cache was asked; of one that was there, captures have asked as well."""
    entity = vm.entity(self)
    if entity.real is not MISSING:
        raise Break("unsupported method", name="cache_info", type=entity.pytype.__name__)
    kept = entity.payload_as(CachedFunction)
    return vm.call(kept.info, [Known(each) for each in (kept.hits, kept.misses, kept.most, len(entity.items))], {})


@models(CACHED, "cache_clear")
def cache_clear(vm: Machine, self: Object) -> Value:
    entity = vm.entity(self)
    if entity.real is not MISSING:
        raise Break("side effect not replayable", what="cache_clear()")
    vm.effects.items(entity)
    entity.items.clear()
    vm.effects.remember(entity, entity.payload_as(CachedFunction)._replace(hits=0, misses=0))
    return NONE


@rebuilds(CACHED)
def rebuild(emit: Emitter, entity: Entity) -> None:
    """Materialize a function with an empty cache.

    Ends the graph where it was asked for something: only calls can bring results and counts about.
    """
    kept = entity.payload_as(CachedFunction)
    if entity.items or kept.hits or kept.misses:
        raise Restart(entity.born - 1)
    push_call(emit, CACHED, kept.fn, kept.most, kept.typed, functools._CacheInfo)
    emit.fields(entity.attrs)
