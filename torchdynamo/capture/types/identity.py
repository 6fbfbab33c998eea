"""`id(x)`: a number nobody can know before it runs, but that is the same exactly for the same object.

The number of the thread is one, too: it is the same for all of a frame.

It may be a key, be compared and be kept; what makes a number of it guards that the object is this one, and ends the
graph if the frame has made the object.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from torchdynamo.capture.torch.symbols import settled
from torchdynamo.capture.types import scalars
from torchdynamo.capture.vm.emitted_calls import push_call
from torchdynamo.capture.vm.heap import MISSING, Entity
from torchdynamo.capture.vm.keys import Ref
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import HASH_KEY, NUMBER, Emitter, function, models, rebuilds
from torchdynamo.capture.vm.operators import inverting
from torchdynamo.capture.vm.scalar_subclasses import Plain, plain_value
from torchdynamo.capture.vm.wrap import CONSTANTS, source_of
from torchdynamo.core.signals import Assumption, Break, Restart, Retry
from torchdynamo.core.value import Known, Object, Symbol, TensorNode, Value, boolean

KEEPING = frozenset({"copy", "json.encoder", "pprint", "reprlib"})  # modules that keep what they ask the id of


class IdOf(NamedTuple):
    """The payload of an int that is some object's id."""

    owner: Value


class NumberOf(NamedTuple):
    """The payload of an int that a counter gives some object: another in each call, and taken where it is needed."""

    owner: Value
    take: Callable[[], int]


COUNTED = "number"  # what stands for such a number as a key begins with it


class HashOf(NamedTuple):
    """The payload of an int that is the hash of what has ids in it."""

    key: Any


def hash_of(vm: Machine, obj: Value) -> Value:
    """Return the hash of an id, or of a tuple with ids or objects in it: an integer known by what it is the hash of."""
    return vm.new(int, payload=HashOf(vm.hkey(obj)))


@function(id)
def id_(vm: Machine, obj: Value) -> Value:
    """Return `id(obj)`, an integer known by the object. Ends the graph for a tuple that `zip` may use again."""
    obj = settled(vm, obj) if obj.__class__ is Symbol else obj
    vm.refuse_copies(obj)
    if obj.pytype is tuple and source_of(vm, obj) is None and vm.frames[-1].globals.real.get("__name__") not in KEEPING:
        raise Break("unknown call", name="id")  # `zip` gives a tuple again that nobody has kept
    if obj.__class__ is Object or obj.__class__ is Known or obj.__class__ is TensorNode:
        return vm.new(int, payload=IdOf(obj))
    raise Break("unknown call", name="id")


class Thread:
    """The owner of `threading.get_ident()`: the thread that runs the frame."""


@function(threading.get_ident)
def get_ident(vm: Machine) -> Value:
    return vm.new(int, payload=IdOf(Known(Thread)))


def is_id(vm: Machine, value: Value) -> bool:
    return value.__class__ is Object and vm.entity(value).payload.__class__ in (IdOf, NumberOf)


def is_new_number(vm: Machine, value: Value) -> bool:
    """Return whether a counter gives this number in this frame: nothing that was there before has had it."""
    return value.__class__ is Object and vm.entity(value).payload.__class__ is NumberOf


def holds_id(vm: Machine, value: Value) -> bool:
    """Return whether a value is an id, or a tuple in which there is one."""
    if value.__class__ is Object and issubclass(value.pytype, tuple):
        return any(holds_id(vm, item) for item in vm.iterate(value))
    return is_id(vm, value)


@models(int, "__eq__")
def equal(vm: Machine, self: Value, other: Value) -> Value:
    if is_id(vm, self) and is_id(vm, other):
        mine, others = vm.entity(self).payload, vm.entity(other).payload  # type: ignore[arg-type]
        if isinstance(mine, (IdOf, NumberOf)) and isinstance(others, type(mine)):
            return boolean(vm.identical(mine.owner, others.owner))
        raise Break("unknown call", name="id")
    if not issubclass(other.pytype, int):
        return Known(NotImplemented)
    return vm.run_pure(int.__eq__, [number_of(vm, self), number_of(vm, other)], {})


models(int, "__ne__")(inverting(equal))


def number_of(vm: Machine, value: Value) -> Value:
    """Return the plain number of an integer that is none. Ends the graph for an id of what the frame has made."""
    if not is_id(vm, value):
        return plain_value(vm, value) or value
    number = address(vm, vm.entity(value))  # type: ignore[arg-type]
    if number is None:
        raise Break("unknown call", name="id")
    return number


@NUMBER.register(int)
def address(vm: Machine, entity: Entity) -> Known | None:
    """Return an id as a number, guarding that the object is this one; None for one that the frame has made."""
    payload = entity.payload
    if payload.__class__ is not IdOf or payload.owner.pytype in CONSTANTS:
        return None
    source = source_of(vm, payload.owner)
    if source is None:
        return None
    real = source.load(vm.roots)
    if source.how != "pinned":
        vm.guard(source, "ID_MATCH", real)
    vm.of_process[ADDRESS] = None
    return Known(id(real))


@models(int, "__bool__")
def truth(vm: Machine, self: Value) -> Value:
    return boolean(True) if is_id(vm, self) else vm.run_pure(int.__bool__, [plain_value(vm, self) or self], {})


@HASH_KEY.register(int)
def hash_key(vm: Machine, self: Object) -> Any:
    """Return what stands for an id as a key.

    In a dict that existed, the object that has the id is guarded to be itself.
    """
    made = vm.entity(self).payload
    if made.__class__ is HashOf:
        return Ref(("hash", made.key))  # the classes of what has this hash say what it equals
    if made.__class__ is NumberOf:
        return Ref((COUNTED, vm.identity(made.owner)))
    if made.__class__ is not IdOf:
        raise Break("unsupported key", type=self.pytype.__name__)
    owner = made.owner
    if Assumption.ADDRESSES in vm.builder.numbers.dropped and owner.__class__ is Object:
        entity = vm.entity(owner)
        if entity.real is not MISSING and entity.source is not None:
            vm.guard(entity.source, "ID_MATCH", entity.real)
            vm.of_process[ADDRESS] = None
            return id(entity.real)
    vm.ids_are_keys = True
    if vm.addresses_are_keys:
        retry_with_ids_guarded(vm)
    return Ref(("id", vm.identity(owner)))


def is_number_of(hkey: Any) -> bool:
    """Return whether a key stands for a number that a counter gives some object."""
    return isinstance(hkey, Ref) and type(hkey.what) is tuple and hkey.what[:1] == (COUNTED,)


def retry_with_ids_guarded(vm: Machine) -> None:
    """Capture again with ids that existed as keys guarded; the second time, end the graph."""
    if Assumption.ADDRESSES not in vm.builder.numbers.dropped:
        raise Retry(Assumption.ADDRESSES)
    raise Break("unsupported key", type="int")


def may_be_id(key: Any) -> bool:
    """Return whether a key that was there at entry may be some object's id, or be made of one."""
    if type(key) is tuple:
        return any(map(may_be_id, key))
    return type(key) is int and key > LARGEST_SIZE


def note_address_key(vm: Machine) -> None:
    """Note that a key that existed may be an id. Retries if the frame has used ids as keys: they may be equal."""
    vm.addresses_are_keys = True
    if vm.ids_are_keys:
        retry_with_ids_guarded(vm)


LARGEST_SIZE = 1 << 16  # no object lies below
ADDRESS = "the address of an object, which is a key of a dict"


@rebuilds(int)
def rebuild(emit: Emitter, entity: Entity) -> None:
    if entity.payload.__class__ is Plain:
        scalars.rebuild(emit, entity)
        return
    if entity.payload.__class__ is NumberOf:
        push_call(emit, entity.payload.take)
        return
    if entity.payload.__class__ is not IdOf:
        raise Restart(entity.born - 1)
    if getattr(entity.payload.owner, "obj", None) is Thread:
        push_call(emit, threading.get_ident)
        return
    push_call(emit, id, entity.payload.owner)
