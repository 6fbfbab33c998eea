"""super(): the attributes that come after a class in an object's order of classes."""

from __future__ import annotations

import types
from typing import Any, NamedTuple

from torchdynamo.capture.vm import descriptors, lookup
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import function, models
from torchdynamo.capture.vm.wrap import lift
from torchdynamo.core.signals import Break
from torchdynamo.core.value import ABSENT, NONE, Known, Lazy, Object, Value


class SuperOf(NamedTuple):
    """The payload of a super object that the frame made: after which class, and of what, attributes are looked for."""

    cls: Value
    obj: Value


@function(super)
def make_super(vm: Machine, cls: Value | None = None, obj: Value | None = None) -> Value:
    """Model `super(cls, obj)`. Without arguments both are the frame's: its `__class__` cell and its first argument."""
    told = cls is not None
    if cls is None:
        cls, obj = of_frame(vm)
    if cls.__class__ is not Known or not lookup.is_class(cls.obj):
        kind = cls.pytype.__name__
        if told:
            raise vm.error(TypeError, f"super() argument 1 must be a type, not {kind}")
        raise vm.error(RuntimeError, f"super(): __class__ is not a type ({kind})")
    if obj is None or obj is NONE:
        raise Break("unknown call", name="super")
    if start_of(obj, cls.obj) is None:
        if lookup.class_lies(vm, obj.pytype):
            raise Break("unknown call", name="super")
        raise vm.error(TypeError, "super(type, obj): obj must be an instance or subtype of type")
    return vm.new(super, payload=SuperOf(cls, obj))


def of_frame(vm: Machine) -> tuple[Value, Value]:
    """Return the class and the object that `super()` takes from the function it stands in."""
    frame = vm.frames[-1]
    if not frame.raw.co_argcount:
        raise vm.error(RuntimeError, "super(): no arguments")
    first = frame.raw.co_varnames[0]
    obj = frame.locals.get(first)
    if obj is None and first in frame.cells:
        obj = vm.cell_get(frame.cells[first])
    elif obj.__class__ is Lazy:
        obj = vm.look(obj)
    if obj is None or obj is ABSENT:
        raise vm.error(RuntimeError, "super(): arg[0] deleted")
    cell = frame.cells.get("__class__")
    if cell is None:
        raise vm.error(RuntimeError, "super(): __class__ cell not found")
    cls = vm.cell_get(cell)
    if cls is None:
        raise vm.error(RuntimeError, "super(): empty __class__ cell")
    return cls, obj


def start_of(obj: Value, cls: type) -> type | None:
    """Return the class whose order `super` follows: the object itself, if it is a class below `cls`, or its class."""
    if obj.__class__ is Known and isinstance(obj.obj, type) and issubclass_plainly(obj.obj, cls):
        return obj.obj
    return obj.pytype if issubclass_plainly(obj.pytype, cls) else None


def issubclass_plainly(cls: type, base: type) -> bool:
    """Return whether a class derives from another, without asking `__subclasscheck__`."""
    if not cls.__mro__:  # a class in the making has none yet
        raise Break("unknown call", name="super")
    return base in cls.__mro__


@models(super, "__getattribute__")
def super_getattr(vm: Machine, self: Object, name: str) -> Value:
    entity = vm.entity(self)
    made = entity.payload_if(SuperOf)
    if name == "__class__" or made is None:
        if not entity.fresh:
            raise Break("unsupported attribute", name=name, type="super")
        return Known(super)
    of_class, obj = made
    cls = vm.known(of_class, "class")
    start = start_of(obj, cls)
    assert start is not None
    mro: tuple[type, ...] = start.__mro__
    lookup.guard_bases(vm, start)
    for base in mro[mro.index(cls) + 1 :]:
        found = lookup.guarded_own(vm, base, name)
        if found is not MISSING:
            return seen_through(vm, obj, start, base, name, found)
    fields: dict[str, Any] = {"__thisclass__": of_class, "__self__": obj}
    if name in fields:
        return fields[name]
    if name == "__self_class__":
        return lift(vm, start)
    if hasattr(super, name):
        raise Break("unsupported attribute", name=name, type="super")
    raise vm.error(AttributeError, f"'super' object has no attribute {name!r}")


def seen_through(vm: Machine, obj: Value, start: type, base: type, name: str, found: Any) -> Value:
    """Return what `base` says of the name, bound as an attribute of `start` or of an instance of it."""
    if obj.__class__ is Known and obj.obj is start:
        if base is object and name == "__init_subclass__":
            return vm.bound_method(obj, Known(init_subclass), name)
        return descriptors.describe_on_class(vm, start, base, name, found)
    if name == "__new__" and type(found) is types.BuiltinFunctionType:
        return Known(found)
    return descriptors.describe(vm, obj, base, name, found, owner=start)


def init_subclass(cls: type, /, *args: Any, **kwargs: Any) -> None:
    """Model `object.__init_subclass__`, which takes no arguments."""
    if kwargs:
        raise TypeError(f"{cls.__qualname__}.__init_subclass__() takes no keyword arguments")
    if args:
        raise TypeError(f"{cls.__qualname__}.__init_subclass__() takes no arguments ({len(args)} given)")
