"""threading: locks. And those between processes, of which others may hold as many as they like."""

from __future__ import annotations

import _multiprocessing  # type: ignore[import-not-found]
import _thread
import threading
from typing import Any, NamedTuple

from torchdynamo.capture.vm.effect_kinds import Change, EffectKind, EffectMark
from torchdynamo.capture.vm.emitted_calls import push_call
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Emitter, function, models, rebuilds, replays
from torchdynamo.core.signals import Break, Restart
from torchdynamo.core.source import ACCESSORS, Pinned, Source
from torchdynamo.core.value import FALSE, NONE, TRUE, Object, Value, boolean

LOCK, RLOCK = type(threading.Lock()), type(threading.RLock())
BETWEEN_PROCESSES: Any = _multiprocessing.SemLock
LOCKS = (LOCK, RLOCK, BETWEEN_PROCESSES)


def new_lock(cls: type) -> Any:
    def row(vm: Machine) -> Value:
        return vm.new(cls, 0)  # how often it is held

    return row


for _make, _cls in ((threading.Lock, LOCK), (threading.RLock, RLOCK)):
    function(_make, _cls)(new_lock(_cls))


def is_free(lock: Any) -> bool:
    """Return whether nobody holds a lock of which only its text tells, beside its address."""
    return "<unlocked" in repr(lock)


FREE: dict[Any, tuple[str, Any, Any]] = {
    LOCK: ("method", "locked", False),
    RLOCK: ("asked", is_free, True),
    BETWEEN_PROCESSES: ("method", "_get_value", 1),
}
"""How a lock is asked, by a step of a source, and what it answers if nobody holds it."""


def known_free(vm: Machine, self: Object) -> Entity:
    """Return a lock's entity. A lock that existed is guarded to be free when the frame begins."""
    entity = vm.entity(self)
    if entity.items is None:
        assert entity.source is not None
        how, arg, free = FREE[entity.pytype]
        if ACCESSORS[how].load(entity.real, arg) != free:
            raise Break("unsupported method", name="acquire", type="held lock")
        vm.guard(Source(how, entity.source, arg), "EQUALS_MATCH", free)
        entity.items = 0
    return entity


def alone(vm: Machine) -> None:
    """Guard that no other thread runs: what is done under a lock may then be done after it is released."""
    if _thread._count():
        raise Break("unsupported method", name="acquire", type="lock")
    vm.guard(Source("call", Source("pinned", None, Pinned(_thread._count)), ()), "EQUALS_MATCH", 0)


class HeldLock(NamedTuple):
    """The payload of a lock that others know: when the frame took it, and what had been done by then."""

    step: int
    ops: int
    mark: EffectMark


def hold(vm: Machine, self: Object) -> Value:
    """Take a lock once more. The outermost time of one that others know, mark what the frame has done so far."""
    entity = known_free(vm, self)
    vm.effects.items(entity)
    if not entity.fresh and not entity.items:
        entity.payload = HeldLock(vm.step, vm.ops, vm.effects.mark())
    entity.items += 1
    return TRUE


def is_seen(vm: Machine, held: HeldLock) -> bool:
    """Return whether anything was done while the lock was held that another thread, waiting for it, would see.

    Of objects that is what the thread may know, unless it is as it was when the frame began.
    """
    if vm.ops != held.ops:
        return True
    done = [each for each in vm.effects.net(held.mark) if each.owner is None or not each.owner.fresh]
    return not all(is_as_it_was(vm, change) for change in done)


def is_as_it_was(vm: Machine, change: Change) -> bool:
    """Return whether nobody can tell that the object was written to; a lock that is free again is one."""
    return change.kind is EffectKind.ITEMS and (
        change.owner.pytype in LOCKS or vm.effects.holds_what_it_held(change.owner)
    )


@models(LOCK, "acquire", "__enter__")
def acquire(vm: Machine, self: Object, blocking: Value = TRUE, timeout: Value = NONE) -> Value:
    if known_free(vm, self).items:
        if blocking is TRUE or vm.truth(blocking):
            raise Break("unsupported method", name="acquire", type="lock")  # it waits for ever
        return FALSE
    return hold(vm, self)


@models(BETWEEN_PROCESSES, "acquire", "__enter__")
@models(RLOCK, "acquire", "__enter__")
def acquire_again(vm: Machine, self: Object, *args: Value, **kwargs: Value) -> Value:
    return hold(vm, self)


@models(LOCK, "release", "__exit__")
@models(RLOCK, "release", "__exit__")
@models(BETWEEN_PROCESSES, "release", "__exit__")
def release(vm: Machine, self: Object, *args: Value) -> Value:
    """Release a lock. Guards that no other thread runs, if one could have seen what was done while it was held."""
    entity = vm.entity(self)
    if not entity.items:
        if not entity.fresh:
            raise Break("unsupported method", name="release", type="lock")
        cannot = "release unlocked lock" if self.pytype is LOCK else "cannot release un-acquired lock"
        raise vm.error(RuntimeError, cannot)
    vm.effects.items(entity)
    if not entity.fresh and entity.items == 1:
        if is_seen(vm, entity.payload_as(HeldLock)):
            alone(vm)
        vm.effects.items_as_at_entry(entity)
    entity.items -= 1
    return NONE


@models(LOCK, "locked")
def locked(vm: Machine, self: Object) -> Value:
    return boolean(known_free(vm, self).items > 0)


MAKERS: dict[type, Any] = {LOCK: threading.Lock, RLOCK: RLOCK}  # what C has, not Python round it


@replays(*LOCKS)
def replay(emit: Emitter, entity: Entity) -> None:
    """Refuse a lock that is held where the graph ends: the graph ends before the lock is taken."""
    raise Restart(entity.payload_as(HeldLock).step - 1)


@rebuilds(LOCK, RLOCK)
def rebuild(emit: Emitter, entity: Entity) -> None:
    push_call(emit, made_lock, MAKERS[entity.pytype], entity.items)


def made_lock(make: Any, held: int) -> Any:
    lock = make()
    for _ in range(held):
        lock.acquire()
    return lock
