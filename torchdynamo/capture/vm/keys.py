"""Keys of dictionaries and identities of objects: hashable stand-ins for values, equal where the values are."""

from __future__ import annotations

import types
import weakref
from typing import TYPE_CHECKING, Any

import torch

from torchdynamo._native import type_name
from torchdynamo.capture.torch import numpy_numbers
from torchdynamo.capture.vm import lookup, model, operators, scalar_subclasses
from torchdynamo.capture.vm import wrap as wrapping
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.core.signals import Break
from torchdynamo.core.value import Known, Lazy, Object, Symbol, TensorNode, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


# Hashing of objects that only identity tells apart.
IDENTITY_HASHES: tuple[Any, ...] = (object.__hash__, torch.nn.Module.__hash__)


# What a class shows as a constant, and its `__dict__` as an object.
SHOWN = (property, types.MemberDescriptorType)


class Ref:
    """Stand for an object that only identity tells apart, as a dictionary key."""

    __slots__ = ("what",)

    def __init__(self, what: Any) -> None:
        self.what = what

    def __eq__(self, other: object) -> bool:
        return type(other) is Ref and other.what == self.what

    def __hash__(self) -> int:
        return hash(self.what)


class Keyed:
    """Stand for an object whose class compares in Python, as a dictionary key."""

    __slots__ = ("hash", "value", "vm")

    def __init__(self, vm: Machine, value: Value, hash: Any) -> None:
        self.vm = vm
        self.value = value
        self.hash = hash

    def __eq__(self, other: object) -> bool:
        against = other.value if isinstance(other, Keyed) else wrapping.lift(self.vm, other)
        return operators.same_or_equal(self.vm, self.value, against)

    def __hash__(self) -> int:
        return self.hash if isinstance(self.hash, int) else hash(self.hash)  # a long word is not hashed again


def hashed_by_code(vm: Machine, value: Value) -> bool:
    """Return whether user code hashes or compares a value. What dataclasses generate asks the fields, and no more."""
    if value.__class__ is not Object:
        return False
    cls = value.pytype
    if issubclass(cls, tuple) and cls.__hash__ is tuple.__hash__:
        return any(hashed_by_code(vm, item) for item in vm.iterate(value))
    says = [lookup.class_lookup(cls, name) for name in ("__hash__", "__eq__")]
    written = [fn for fn in says if type(fn) is types.FunctionType]
    fields = lookup.class_lookup(cls, "__dataclass_fields__")
    if fields is MISSING or any(fn.__code__.co_filename != GENERATED for fn in written):
        return bool(written)
    asked = [name for name, field in fields.items() if field.compare]
    return any(hashed_by_code(vm, vm.getattr(value, name)) for name in asked)


GENERATED = "<string>"  # the file of methods that dataclasses generate


def hkey(vm: Machine, value: Value) -> Any:
    """Return the hashable object by which a value is found as a dictionary key: equal for equal values."""
    if value.__class__ is Known:
        if lookup.has_python_operators(value):
            for name in ("__hash__", "__eq__"):
                lookup.guarded_lookup(vm, value.pytype, name)
        try:
            hash(value.obj)
        except TypeError as error:
            raise vm.error(TypeError, *error.args) from None
        found = wrapping.identity_of(vm, value)
        return Ref(id(found)) if type(found) in SHOWN else found
    if value.__class__ is TensorNode:
        return Ref(vm.identity(value))
    if isinstance(value, Lazy) and value.pytype in (torch.Tensor, torch.nn.Parameter):
        return Ref(unseen_identity(vm, value))
    if value.__class__ is Symbol:
        return vm.known(value, "key")
    if value.__class__ is Object:
        cls = value.pytype
        if issubclass(cls, tuple) and cls.__hash__ is tuple.__hash__:
            return tuple(vm.hkey(item) for item in vm.iterate(value))
        if issubclass(cls, weakref.ReferenceType) and cls.__hash__ is weakref.ReferenceType.__hash__:
            return model.HASH_KEY[weakref.ReferenceType](vm, value)
        if cls is int:
            return model.HASH_KEY[int](vm, value)
        if numpy_numbers.held(vm, value) is not None:
            return numpy_numbers.settled(vm, value)
        lookup.guarded_lookup(vm, cls, "__hash__")
        lookup.guarded_lookup(vm, cls, "__eq__")
        plain = scalar_subclasses.plain_value(vm, value)
        if plain is not None and scalar_subclasses.plainly(vm, value) is plain:
            return plain.obj
        if cls.__hash__ in IDENTITY_HASHES:
            return Ref(vm.identity(value))
        if type(cls.__hash__) is types.FunctionType:
            says = vm.special(value, "__hash__")
            if says.__class__ is Known and not isinstance(says.obj, int):
                raise vm.error(TypeError, "__hash__ method should return an integer")
            return Keyed(vm, value, vm.hkey(says))
        if cls.__hash__ is None:
            raise vm.error(TypeError, f"unhashable type: {type_name(cls)!r}")
    wrapping.refuse_unseen(value)
    raise Break("unsupported key", type=value.pytype.__name__)


def identity(vm: Machine, value: Value) -> Any:
    """Return what is equal exactly for one object. Objects told apart by it are guarded to stay different ones."""
    wrapping.refuse_unseen(value)
    if value.__class__ is Known:
        obj = wrapping.identity_of(vm, value)
        return (type(obj), obj) if type(obj) in (int, str, bytes) else id(obj)
    if value.__class__ is Object:
        real, fresh = vm.entity(value).real, ("fresh", value.ref)
    else:
        assert isinstance(value, TensorNode)
        vm.refuse_copies(value)
        real, fresh = vm.input_objects.get(value.node, MISSING), ("fake", id(value.fake))
    if real is MISSING:
        return fresh
    source = wrapping.source_of(vm, value)
    if source is not None:
        vm.told_apart.setdefault(value.pytype, {})[source] = None
    return id(real)


def unseen_identity(vm: Machine, value: Lazy) -> int:
    """Return the identity of a tensor that cannot be in a graph. Each other place where it is found is guarded."""
    real = value.source.load(vm.roots)
    first = vm.unseen.setdefault(id(real), value.source)
    if first is not value.source:
        vm.guard(value.source, "SAME_OBJECT", first)
    vm.told_apart.setdefault(value.pytype, {})[first] = None
    return id(real)
