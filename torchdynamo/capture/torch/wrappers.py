"""Wrapper subclasses of Tensor in a frame: the guards on what is inside, their attributes, and making one.

Such a tensor is one value of the graph (`graph/wrappers.py`). The program's constructor and `__torch_dispatch__` run on
fake tensors while the frame is captured, as rules for operators do, and on real ones where the graph runs.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass_type

from torchdynamo.capture.torch.arguments import from_example, to_node
from torchdynamo.capture.torch.tensor_subclasses import read
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.lookup import class_lookup, guarded_lookup
from torchdynamo.capture.vm.wrap import lift, source_of, wrap
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Source
from torchdynamo.core.value import Known, Object, TensorNode, Value
from torchdynamo.graph.wrappers import (
    PLAIN,
    context_of,
    getter,
    is_told_by_attributes,
    is_value,
    is_value_class,
    is_wrapper,
    parts,
    told,
)

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

PROTOCOL = ("__torch_dispatch__", "__tensor_flatten__", "__tensor_unflatten__")


def is_class(cls: type) -> bool:
    """Return whether instances of a class are wrappers."""
    return issubclass(cls, torch.Tensor) and cls not in PLAIN and is_traceable_wrapper_subclass_type(cls)


def wraps(value: Value) -> bool:
    """Return whether a value is a tensor of a wrapper subclass."""
    return value.__class__ is TensorNode and value.pytype not in PLAIN and is_wrapper(value.fake)


def guard_contents(vm: Machine, wrapper: Any, source: Source) -> None:
    """Guard the tensors inside of a wrapper that exists at entry, and its context. Raises Break for unknown kinds."""
    guard_class(vm, type(wrapper))
    own = getattr(wrapper, "__dict__", {})
    for name, part in parts(wrapper):
        place = part_source(type(wrapper), own, source, name)
        if not isinstance(part, torch.Tensor):
            continue
        if part.layout is not torch.strided and not is_wrapper(part):
            raise Break("unsupported type", type=f"{part.layout} tensor")
        if place not in vm.layouts:  # of which some sizes vary
            vm.guard(place, "TENSOR_MATCH")
        guard_identity(vm, part, place)
        if is_wrapper(part):
            guard_contents(vm, part, place)
    if is_told_by_attributes(wrapper):
        vm.guard(Source("dict", source), "DICT_KEYS", tuple(own))
        for name, value in own.items():
            if not isinstance(value, torch.Tensor):
                vm.guard(Source("key", Source("dict", source), name), "EQUALS_MATCH", value)
    else:
        vm.guard(Source("asked", source, context_of), "EQUALS_MATCH", context_of(wrapper))


def guard_identity(vm: Machine, part: torch.Tensor, place: Source) -> None:
    """Guard that a tensor inside of a wrapper is the one that was met in another place.

    Ragged sizes of nested tensors, for one, are equal if their offsets are one tensor.
    """
    first = vm.parts.setdefault(id(part), place)
    if first is not place:
        vm.guard(place, "SAME_OBJECT", first)
    for each in vm.inputs:
        if vm.input_objects.get(each.node) is part and each.source is not None:
            vm.guard(place, "SAME_OBJECT", each.source)


def guard_class(vm: Machine, cls: type) -> None:
    """Guard the methods by which a class of wrappers runs operators and is taken apart."""
    for name in PROTOCOL:
        guarded_lookup(vm, cls, name)


def part_source(cls: type, own: dict[str, Any], source: Source, name: str) -> Source:
    """Return the source of what is inside of a wrapper: an item of its dictionary, a slot, or what a property gives."""
    found = class_lookup(cls, name)
    if name in own and not hasattr(type(found), "__set__"):
        return Source("key", Source("dict", source), name)
    slot = type(found) is types.MemberDescriptorType
    return Source("attr", source, name) if slot else Source("asked", source, getter(name))


def places_inside(vm: Machine, wrapper: Any, source: Source) -> dict[str, tuple[Source, torch.Tensor]]:
    """Return where the plain tensors inside of a wrapper that exists at entry are found, by name."""
    own = getattr(wrapper, "__dict__", {})
    plain = ((name, part) for name, part in parts(wrapper) if isinstance(part, torch.Tensor) and not is_wrapper(part))
    return {name: (part_source(type(wrapper), own, source, name), part) for name, part in plain}


def located_leaves(tensor: Any, source: Source) -> Iterator[tuple[Source, torch.Tensor]]:
    """Yield the tensors inside of a wrapper that exists at entry, down to the last, and where each is found."""
    own = getattr(tensor, "__dict__", {})
    for name, part in parts(tensor):
        place = part_source(type(tensor), own, source, name)
        if is_wrapper(part):
            yield from located_leaves(part, place)
        elif isinstance(part, torch.Tensor):
            yield place, part


def attribute(vm: Machine, obj: TensorNode, name: str) -> Value | None:
    """Return an attribute that a wrapper holds itself; None if it is the class's, or was set by the program."""
    own = getattr(obj.fake, "__dict__", {})
    found = class_lookup(obj.pytype, name)
    slot = type(found) is types.MemberDescriptorType
    if not slot and (name not in own or hasattr(type(found), "__set__")):
        return None
    if vm.effects.written(obj.fake, name) is not None:
        return None
    try:
        value = getattr(obj.fake, name)
    except AttributeError:
        return None
    if isinstance(value, torch.Tensor):
        return emit_plainly(vm, getattr, [obj, lift(vm, name)])
    real = vm.input_objects.get(obj.node)
    if real is not None and obj.source is not None:
        return wrap(vm, read(real, name), part_source(obj.pytype, real.__dict__, obj.source, name))
    return lift(vm, value)


def holds(obj: TensorNode, name: str) -> bool:
    """Return whether a wrapper holds an attribute of this name itself, so that operators may depend on it."""
    found = class_lookup(obj.pytype, name)
    return found is not MISSING or name in getattr(obj.fake, "__dict__", {})


def construct(vm: Machine, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Make a wrapper in the frame: the call of its class is an operation of the graph."""
    guard_class(vm, cls)
    for name in ("__new__", "__init__"):
        guarded_lookup(vm, cls, name)
    given = tuple([argument(vm, arg) for arg in args])
    named = {name: argument(vm, arg) for name, arg in kwargs.items()}
    node, example = vm.builder.call("call_function", cls, given, named, vm.position())
    vm.ops += 1
    return from_example(vm, node, example)


def operate(vm: Machine, fn: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call a method of one of torch's wrappers, which is an operation of the graph."""
    name = fn.__name__
    given = tuple([argument(vm, arg) for arg in args])
    named = {key: argument(vm, arg) for key, arg in kwargs.items()}
    if args and wraps(args[0]):
        node, example = vm.builder.call("call_method", name, given, named, vm.position())
    else:
        maker = static_method(fn, name)
        node, example = vm.builder.call("call_function", maker, given, named, vm.position())
    vm.ops += 1
    return from_example(vm, node, example)


@functools.cache
def static_method(fn: Any, name: str) -> Any:
    """Return a static method as a function that the code of a graph can name."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    return call


def is_operation(fn: types.FunctionType) -> bool:
    """Return whether a function is a method, of instances or static, of one of torch's own wrappers, such as DTensor.

    They choose collectives and kernels by what only PyTorch knows.
    """
    module = fn.__module__
    if module is None or not module.startswith(("torch.distributed.", "torch.nested.")):
        return False
    owner, _, name = fn.__qualname__.rpartition(".")
    cls = getattr(sys.modules.get(module), owner, None)
    if not isinstance(cls, type) or not is_class(cls) or name.startswith("__"):
        return False
    found = cls.__dict__.get(name)
    return found is fn or (type(found) is staticmethod and found.__func__ is fn)


def argument(vm: Machine, value: Value) -> Any:
    """Return an argument of a constructor as the graph holds it: a node, a constant, or a node for an object.

    Raises Break for objects that may change, or that the frame made and nothing is known about.
    """
    try:
        return to_node(vm, value)
    except Break:
        if value.pytype in (list, tuple):
            return value.pytype([argument(vm, item) for item in vm.iterate(value)])
        obj, source = object_of(vm, value), source_of(vm, value)
        if obj is MISSING or (source is not None and not is_value(obj) and value.__class__ is not Known):
            raise
    if source is not None and value.__class__ is not Known:
        vm.guard(Source("asked", source, told), "EQUALS_MATCH", told(obj))
    return vm.builder.hold("object", obj, vm.position())


def object_of(vm: Machine, value: Value) -> Any:
    """Return the object of a value that stays what it is; made again if the frame made it; MISSING if nobody can."""
    if value.__class__ is Known:
        return value.obj
    if value.__class__ is not Object:
        return MISSING
    entity = vm.entity(value)
    if entity.real is not MISSING:
        return MISSING if entity.attrs or entity.touched else entity.real
    if not is_value_class(value.pytype) or entity.items is not None or type(entity.payload) is not type(None):
        return MISSING
    made: Any = object.__new__(value.pytype)
    for name, attr in entity.attrs.items():
        object.__setattr__(made, name, vm.concretely(attr))
    return made


def emit_plainly(vm: Machine, fn: Any, args: list[Value], kwargs: dict[str, Value] | None = None) -> Value:
    """Add an operation to the graph that nobody overrides."""
    asked, vm.watching = vm.watching, False
    try:
        return vm.emit("call_function", fn, args, kwargs or {})
    finally:
        vm.watching |= asked
