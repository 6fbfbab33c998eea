"""Wrap an object that existed at entry: it is looked at once, and guarded by the narrowest fact that is used."""

from __future__ import annotations

import collections
import enum
import types
import typing
from typing import TYPE_CHECKING, Any

import torch

from torchdynamo.capture.torch import float_inputs, numpy_arrays, sizes
from torchdynamo.capture.torch.tensor_subclasses import PLAIN, overrides, watch
from torchdynamo.capture.vm import model
from torchdynamo.capture.vm.remade_classes import StandIn
from torchdynamo.core.naming import class_name, is_mortal
from torchdynamo.core.signals import Break, NotYet
from torchdynamo.core.source import Pinned, Source
from torchdynamo.core.value import Known, Lazy, Object, Value
from torchdynamo.graph.numpy_nodes import np
from torchdynamo.graph.opaque_values import is_opaque_value
from torchdynamo.graph.wrappers import dispatches, is_wrapper, told

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

# Types whose objects are constants: equal means interchangeable.
CONSTANTS: frozenset[type] = frozenset(
    {
        *(bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented), range),
        *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size),
    }
)
# Types whose objects are passed on unseen where they hold something else in each call.
PASSED_ON: frozenset[type] = frozenset({str, list, dict, set, frozenset, collections.deque, collections.OrderedDict})
# Types whose objects are what they are: identity is the fact, and they own nothing of the user's.
IDENTITIES: tuple[type, ...] = (types.ModuleType, types.BuiltinFunctionType, type, enum.Enum)


def wrap(vm: Machine, obj: Any, source: Source) -> Value:
    """Return the value of an object read from `source`; one source or object always gives the same value."""
    value = vm.by_source.get(source)
    if value is None:
        own = vm.made_classes and made_in_frame(vm, source)
        value = lift_from_class(vm, obj) if own else wrap_unaliased(vm, obj, source)
        vm.by_source[source] = value
    return value


def made_in_frame(vm: Machine, source: Source) -> bool:
    """Return whether a path begins at a class that the frame made, or at a member of such an enumeration."""
    root = source.root()
    begins = root.arg.object if root.how == "pinned" else None
    return id(begins) in vm.made_classes or id(type(begins)) in vm.made_classes


def lift_from_class(vm: Machine, obj: Any) -> Value:
    """Return the value of an object in a class that the frame made, which nobody else can change."""
    if obj.__class__ is StandIn:
        value: Value = obj.value
        return value
    return vm.heap.by_id.get(id(obj)) or lift(vm, obj)


def may_only_be_passed_on(vm: Machine, cls: type, source: Source) -> bool:
    """Return whether nothing but the class of an object is guarded: it varies, or is the number of a hook."""
    if cls is int:
        return source.how == "key_at" and source.base in vm.numbered_hooks
    return cls in PASSED_ON and source in vm.builder.numbers.varying


def wrap_unaliased(vm: Machine, obj: Any, source: Source) -> Value:
    """Make a value for an object that is met for the first time, with the guard that it needs."""
    cls = type(obj)
    if type(cls) is not type and not told_apart(cls):  # every table of ours is by class
        raise Break("unsupported type", type=class_name(cls))
    if may_only_be_passed_on(vm, cls, source):
        vm.guard(source, "TYPE_MATCH", cls)
        return Lazy(cls, source)
    if cls in CONSTANTS and not (cls is torch.Size and sizes.some_vary(vm, obj, source)):
        if cls is int and sizes.varies(vm, obj, source):
            return sizes.enter_int(vm, obj, source)
        if cls is float and (source in vm.builder.numbers.varying or float_inputs.is_scheduled(vm, source)):
            return float_inputs.enter_float(vm, obj, source)
        vm.guard(source, "EQUALS_MATCH", obj)
        return Known(obj, source)
    known = vm.heap.by_id.get(id(obj))
    if known is not None:
        first = vm.entity(known).source
        if first is not None and first is not source:
            vm.guard(source, "SAME_OBJECT", first)
        return known
    row = model.ENTER.nearest(cls)
    if row is not None:
        try:
            entered = row(vm, obj, source)
        except Break as why:
            if why.reason != "unsupported type":
                raise
            entered = Lazy(cls, source)  # it may be passed on; whatever looks into it breaks
            vm.guard(source, "TYPE_MATCH", cls)
        return entered
    vm.guard(source, "TYPE_MATCH", cls)
    return vm.heap.adopt(obj, source)


def told_apart(cls: type) -> bool:
    """Return whether a class can be compared by identity: its metaclass does not redefine equality."""
    return by_identity(type(cls))


def by_identity(meta: Any) -> bool:
    return meta is type or (meta.__eq__ is type.__eq__ and meta.__hash__ is type.__hash__)


@model.enters(types.FunctionType, types.ModuleType, type)
def enter_identity(vm: Machine, obj: Any, source: Source) -> Value:
    """Wrap what is guarded by its identity, as modules and classes are; functions are guarded by their code."""
    if type(type(obj).__getattribute__) is types.FunctionType:  # it would see us look
        raise Break("unsupported type", type=type(obj).__name__)
    if issubclass(type(obj), type) and (obj.__mro__ is None or not told_apart(obj)):  # one is still being made
        raise Break("unsupported type", type=class_name(type(obj)))
    vm.guard(source, "FUNCTION_MATCH", obj)
    return Known(obj, source)


def is_told_by_identity(value: Known) -> bool:
    """Return whether a constant that was there at entry is a function or a NaN: equal ones may be two."""
    return value.source is not None and (type(value.obj) is types.FunctionType or holds_nan(value.obj))


def identity_of(vm: Machine, value: Known) -> Any:
    """Return the object of a constant; where a guard on its code or its equality is not enough, by identity."""
    obj = value.obj
    if type(obj) is types.FunctionType and value.source is not None:
        vm.guard(value.source, "ID_MATCH", obj)
        vm.functions.setdefault(id(obj), value)
    elif value.source is not None and holds_nan(obj):
        vm.guard(value.source, "ID_MATCH", obj)
    return obj


def holds_nan(obj: Any) -> bool:
    """Return whether the constant is NaN, or has one in it: what equals it, and its hash, depends on which it is."""
    if type(obj) in (tuple, frozenset):
        return any(map(holds_nan, obj))
    return type(obj) in (float, complex) and obj != obj


def same_function(vm: Machine, a: Known, b: Known) -> bool:
    """Return whether two functions are one: by their code if that differs, else by where they are found."""
    same: bool = a.obj is b.obj
    if a.source is b.source or a.obj.__code__ is not b.obj.__code__:
        return same
    if a.source is None or b.source is None:
        identity_of(vm, a)
        identity_of(vm, b)
    elif same:
        vm.guard(a.source, "SAME_OBJECT", b.source)
    else:
        vm.guard(a.source, "DISTINCT", (a.source, b.source))
    return same


WHICH_CONSTANT = "which of equal constants one is"


def is_only_one(obj: Any) -> bool:
    """Return whether Python has a single object for each value that equals this constant."""
    cls = type(obj)
    if cls is int:
        return -5 <= obj <= 256
    if cls is str:
        return len(obj) == 0 or (len(obj) == 1 and ord(obj) < 256)
    if cls is bytes:
        return len(obj) <= 1
    return cls in (bool, type(None), type(...), type(NotImplemented), torch.dtype, torch.layout, torch.memory_format)


def is_by_value(obj: Any) -> bool:
    """Return whether guards on a constant look at what it equals: those of Python, of torch, NumPy's scalars."""
    return type(obj) in CONSTANTS or type(obj) in (frozenset, slice) or type(obj).__module__ == "numpy"


def same_constant(vm: Machine, a: Known, b: Known) -> bool:
    """Return whether two constants are one object. Guards on equality do not tell, so identity is guarded."""
    one, other, same = a.obj, b.obj, a.obj is b.obj
    if a.source is b.source or type(one) is not type(other) or not is_by_value(one) or is_only_one(one):
        return same
    if not (same or one == other or (one != one and other != other)):
        return same
    first, *others = [each.source for each in (a, b) if each.source is not None]
    if others:
        vm.guard(first, *(("SAME_OBJECT", others[0]) if same else ("DISTINCT", (first, others[0]))))
    elif same:
        vm.guard(first, "ID_MATCH", one)
        vm.of_process[WHICH_CONSTANT] = None
    else:
        raise Break("unsupported type", type=type(one).__name__)  # next time they may be one
    return same


# What annotations are made of: they never change.
TYPING = (
    type(typing.List[int]),  # noqa: UP006
    type(typing.Union[int, str]),  # noqa: UP007
    type(typing.Any),
    typing.TypeVar,
    typing.ForwardRef,
    type(typing.Optional),
)


@model.enters(torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._ops.HigherOrderOperator)
@model.enters(types.MethodDescriptorType, types.WrapperDescriptorType, torch.finfo, torch.iinfo)
@model.enters(types.UnionType, types.GenericAlias, *TYPING)
def enter_singleton(vm: Machine, obj: Any, source: Source) -> Value:
    """Take for a constant what its identity tells all about: it never changes, or there is one of each."""
    vm.guard(source, "ID_MATCH", obj)
    return Known(obj, source)


@model.enters(enum.Enum)
def enter_member(vm: Machine, obj: enum.Enum, source: Source) -> Value:
    """Take a member of an enumeration for a constant, unless code of the program's compares or converts it."""
    if model.is_asked_by_c(type(obj)):
        vm.guard(source, "ID_MATCH", obj)
        return vm.heap.adopt(obj, source)
    return enter_singleton(vm, obj, source)


PYBIND_OBJECT = next(base for base in type(torch._C._SDPBackend.MATH).__mro__ if base.__name__ == "pybind11_object")


@model.enters(PYBIND_OBJECT)
def enter_pybind(vm: Machine, obj: Any, source: Source) -> Value:
    """Wrap a member of an enumeration made in C++, or one of torch's opaque values, as a constant."""
    if is_opaque_value(type(obj)):
        vm.guard(Source("asked", source, told), "EQUALS_MATCH", told(obj))
        return Known(obj, source)
    if hasattr(type(obj), "__members__"):
        return enter_singleton(vm, obj, source)
    vm.guard(source, "TYPE_MATCH", type(obj))
    return vm.heap.adopt(obj, source)


@model.enters(types.BuiltinFunctionType)
def enter_builtin(vm: Machine, obj: Any, source: Source) -> Value:
    """Wrap a C function of a module or class as a constant; any other may be collected, and is an object."""
    owner = obj.__self__
    lies = isinstance(owner, types.ModuleType) and owner.__dict__.get(obj.__name__) is obj
    if obj.__module__ is not None or owner is None or lies or isinstance(owner, type):
        vm.guard(source, "FUNCTION_MATCH", obj)
        return Known(obj, source)
    vm.guard(source, "TYPE_MATCH", type(obj))
    return vm.heap.adopt(obj, source)


@model.enters(torch.Tensor)
def enter_tensor(vm: Machine, obj: torch.Tensor, source: Source) -> Value:
    """Make a tensor an input of the graph; there is one placeholder for each distinct tensor."""
    if type(obj) not in PLAIN and (overrides(type(obj)) or is_wrapper(obj)):
        watch(vm, type(obj))
        with torch._C.DisableTorchFunctionSubclass():
            return enter_plainly(vm, obj, source)
    return enter_plainly(vm, obj, source)


HAS_NAMES = getattr(torch.Tensor, "has_names", None)  # stand-ins have none, and some day no tensor has


def enter_plainly(vm: Machine, obj: torch.Tensor, source: Source) -> Value:
    """Make a tensor an input of the graph, where no mode or subclass overrides what is asked of it."""
    wrapped = type(obj) not in PLAIN and is_wrapper(obj)
    if not wrapped and type(obj) not in PLAIN and dispatches(type(obj)):
        raise Break("closed subclass", type=class_name(type(obj)))
    laid_out = wrapped or obj.layout is torch.strided
    if not laid_out or obj.device.type == "meta" or torch._is_functional_tensor(obj):
        raise Break("unsupported type", type=f"{obj.layout} tensor")
    if HAS_NAMES is not None and HAS_NAMES(obj):
        raise Break("unsupported type", type="tensor with names")
    for graphed in vm.inputs:
        if vm.input_objects[graphed.node] is obj:
            assert graphed.source is not None
            vm.guard(source, "SAME_OBJECT", graphed.source)
            return graphed
    value = vm.tensor_input(obj, source, static=wrapped or is_static(vm, source))
    if wrapped:
        vm.guard_contents(obj, source)
    vm.input_objects[value.node] = obj
    inside = vm.parts.get(id(obj))
    if inside is not None:
        vm.guard(source, "SAME_OBJECT", inside)
    return value


@model.enters(torch.nn.parameter.UninitializedParameter, torch.nn.parameter.UninitializedBuffer)
def enter_uninitialized(vm: Machine, obj: torch.Tensor, source: Source) -> Value:
    """Raise NotYet: a lazy module's parameter gets its shape, and its class, in the first call."""
    raise NotYet


def is_static(vm: Machine, source: Source) -> bool:
    """Return whether a tensor belongs to a module, and so has the same storage in every call."""
    base = source.base
    if base is None or base.how != "key" or base.arg not in ("_parameters", "_buffers"):
        return False
    return base.arg == "_parameters" or not any(
        each.how == "size" and each.base is source for each in vm.builder.numbers.varying
    )


def lift(vm: Machine, obj: Any) -> Value:
    """Return the value of an object that has no source: made by the capture, or owned by what is guarded already."""
    cls = type(obj)
    if cls in CONSTANTS:
        return Known(obj)
    if cls is tuple and all(type(item) in CONSTANTS for item in obj):
        return Known(obj)
    if cls in (tuple, list):
        return vm.new(cls, [lift(vm, item) for item in obj])
    if cls is dict:
        items = {vm.hkey(key): [key, lift(vm, item)] for key, item in ((lift(vm, k), v) for k, v in obj.items())}
        return vm.new(dict, items)
    if cls is types.FunctionType:
        return vm.functions.get(id(obj)) or Known(obj)
    told = cls in (slice, frozenset, torch.finfo, torch.iinfo) or isinstance(obj, IDENTITIES) or is_opaque_value(cls)
    if told and not (isinstance(obj, enum.Enum) and model.is_asked_by_c(cls)):
        return Known(obj)
    if cls in (types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType):
        return Known(obj)
    if np is not None and isinstance(obj, (np.ndarray, np.generic)):
        return numpy_arrays.lift(vm, obj)
    return wrap(vm, obj, Source("pinned", None, Pinned(obj)))


def as_object(vm: Machine, value: Value) -> Object:
    """Return a value as a reference into the heap."""
    if value.__class__ is Object:
        return value
    raise cannot_look(value)


def cannot_look(value: Value) -> Break:
    """Return the break for a value that may only be passed on: one that changes, or what has no model."""
    changes = value.__class__ is Lazy and value.pytype in PASSED_ON
    return Break("changing value" if changes else "unsupported type", type=value.pytype.__name__)


def refuse_unseen(*values: Value) -> None:
    """Raise Break if one of them is passed on unseen because it changes: a model would ask what it holds."""
    for value in values:
        if value.__class__ is Lazy and value.pytype in PASSED_ON:
            raise cannot_look(value)


def source_of(vm: Machine, value: Value) -> Source | None:
    """Return the source of a value at entry; None if it has none."""
    if value.__class__ is Object:
        return vm.entity(value).source
    return getattr(value, "source", None)


_classes: dict[type, Source] = {}


def class_source(cls: type) -> Source:
    """Return the source of a class, which holds it: classes own nothing of the user's instances."""
    source = _classes.get(cls)
    if source is None:
        source = Source("pinned", None, Pinned(cls))
        if not is_mortal(cls):
            _classes[cls] = source
    return source


def item_source(base: Source, key: Any) -> Source:
    """Return the source of an item of a dict. A key that is a class that may be collected is not held."""
    if issubclass(type(key), type) and is_mortal(key):
        return Source("keyed", base, class_source(key))
    return Source("key", base, key)


def class_attribute(vm: Machine, cls: type, name: str) -> Source:
    """Return the source of a class attribute. One inherited by a class that the frame made is found at its base."""
    if id(cls) in vm.made_classes:
        owner = next((base for base in cls.__mro__ if name in base.__dict__), cls)
        cls = cls if id(owner) in vm.made_classes else owner
    return Source("class_attr", class_source(cls), name)
