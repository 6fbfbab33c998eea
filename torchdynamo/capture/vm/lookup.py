"""Look up a name on a class, along the order of its bases, and make the guards that it stays so."""

from __future__ import annotations

import enum
import types
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from torchdynamo._native import made_plainly
from torchdynamo.capture.vm import model
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.model import is_open, is_written_by_program
from torchdynamo.capture.vm.wrap import CONSTANTS, class_attribute, class_source
from torchdynamo.core.naming import is_mortal
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Pinned, Source
from torchdynamo.core.value import ABSENT, Known

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

INSTANCE_METHOD = type(torch._C._InferenceMode.__dict__["__enter__"])  # pybind11's methods are of this type
PLAIN_METHODS = (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)


def class_lookup(cls: type, name: str) -> Any:
    """Return the raw attribute of a class along its MRO; MISSING if there is none."""
    if cls.__mro__ is None:
        raise Break("unsupported type", type="class in the making")
    for base in cls.__mro__:
        found = base.__dict__.get(name, MISSING)
        if found is not MISSING:
            return found
    return MISSING


def guarded_lookup(vm: Machine, cls: type, name: str) -> Any:
    """Return the raw attribute of a class along its MRO, MISSING if there is none, and guard it."""
    if vm.effects.wrote_classes and index_of_written(vm, cls, name) is not None:
        raise Break("unsupported attribute", name=name, type=cls.__name__)
    key = (cls, name)
    found = vm.class_attrs.get(key, vm)
    if found is vm:
        for base in cls.__mro__ or ():
            if id(base) not in vm.with_names and is_open(base):
                guard_string_keys(vm, base, base.__dict__)
        found = vm.class_attrs[key] = class_lookup(cls, name)
        if id(cls) in vm.made_classes:
            guard_inherited(vm, cls, name)
        elif cls not in CONSTANTS and is_open(cls):
            guard_attribute(vm, cls, name, found)
    return found


def guard_plain_maker(vm: Machine, cls: type) -> None:
    """Guard that `object.__new__` takes arguments for a class without a `__new__`, if it has an `__init__`.

    Raises Break where it does not, though the class has no `__new__`: it had one, which was deleted.
    """
    if id(cls) in vm.made_classes or not is_open(cls) or class_lookup(cls, "__new__") is not object.__dict__["__new__"]:
        return
    if not made_plainly(cls):
        raise Break("unsupported attribute", name="__new__", type=cls.__name__)
    vm.guard(class_source(cls), "PLAIN_MAKER", None)


def index_of_written(vm: Machine, cls: type, name: str) -> int | None:
    """Return the index in the MRO of the class on which the frame wrote what `cls.name` finds; None if on none."""
    for at, base in enumerate(cls.__mro__):
        if vm.effects.written(base, name) is not None:
            return at
        if name in base.__dict__:
            return None
    return None


def guard_inherited(vm: Machine, cls: type, name: str) -> None:
    """Guard what a class that the frame made inherits under a name from others."""
    for base in cls.__mro__:
        if id(base) not in vm.made_classes:
            guarded_own(vm, base, name)
        if name in base.__dict__:
            return


# Descriptors that nobody can refer to weakly, and what of them counts.
PARTS: dict[type, tuple[str, ...]] = {
    property: ("fget", "fset", "fdel"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    types.MemberDescriptorType: ("__name__", "__objclass__"),
    types.GetSetDescriptorType: ("__name__", "__objclass__"),
}


def guard_attribute(vm: Machine, cls: type, name: str, found: Any) -> None:
    """Guard what a class has under a name. No guard holds a class's own descriptor, which would hold the class."""
    parts = PARTS.get(type(found), ())
    if parts and any(name in base.__dict__ and is_mortal(base) for base in cls.__mro__):
        place = class_attribute(vm, cls, name)
        vm.guard(place, "TYPE_MATCH", type(found))
        for part in parts:
            value = getattr(found, part)
            equal = value is None or type(value) is str
            vm.guard(Source("attr", place, part), "EQUALS_MATCH" if equal else "ID_MATCH", value)
    elif (
        vm.builder.numbers.varying
        and found is not MISSING
        and is_replaced_each_call(vm, cls, name)
        and guard_place(vm, cls, name)
    ):
        vm.guard(class_attribute(vm, cls, name), "TYPE_MATCH", type(found))
    else:
        vm.guard(class_source(cls), "CLASS_ATTR", (name, found if found is not MISSING else ABSENT))


def is_replaced_each_call(vm: Machine, cls: type, name: str) -> bool:
    """Return whether the frame is known to find another object there each time (self_invalidation.py)."""
    varying = vm.builder.numbers.varying
    return bool(varying) and class_attribute(vm, cls, name) in varying


def guard_place(vm: Machine, cls: type, name: str) -> bool:
    """Guard which class of the MRO has a name. Returns False if a class may be collected: a guard would keep it."""
    at = next(at for at, base in enumerate(cls.__mro__) if name in base.__dict__)
    if any(map(is_mortal, cls.__mro__[: at + 1])):
        return False
    vm.guard(class_attribute(vm, cls, name), "SAME_OBJECT", own_source(cls.__mro__[at], name))
    guard_absence(vm, cls, at, name)
    return True


def guard_absence(vm: Machine, cls: type, count: int, name: str) -> None:
    """Guard that the first `count` classes of the MRO have nothing under the name, and go on being the first."""
    if count:
        guard_bases(vm, cls)
    for base in cls.__mro__[:count]:
        if is_open(base) and id(base) not in vm.made_classes:
            if is_mortal(base):
                raise Break("unsupported attribute", name=name, type=cls.__name__)
            vm.guard(own_source(base, name), "ID_MATCH", ABSENT)


def own_source(cls: type, name: str) -> Source:
    """Return the source of what a class itself has under a name; ABSENT if nothing."""
    return Source("call", Source("pinned", None, Pinned(cls.__dict__.get)), (name, ABSENT))


NAMES = frozenset({str})


def guard_string_keys(vm: Machine, owner: Any, own: Mapping[Any, Any]) -> None:
    """Guard that a dictionary has no keys but strings: others would be compared in Python with each name."""
    if not NAMES.issuperset(map(type, own)):
        raise Break("unsupported attribute", name="__dict__", type="dict")
    vm.with_names.add(id(owner))


def guarded_slot(vm: Machine, cls: type, name: str) -> model.Slot:
    """Return what runs for a special method on instances of a class, and guard it."""
    slot = vm.slots.get((cls, name))
    if slot is None:
        guarded_lookup(vm, cls, name)
        slot = vm.slots[cls, name] = model.find_slot(cls, name)
    return slot


def modelled_attribute(vm: Machine, cls: type, name: str) -> model.Model | None:
    """Return the row of an attribute that C keeps in the object, unless a subclass overrides it."""
    key = (cls, "." + name)
    if key not in vm.rows:
        found = model.MODELS.get(key)
        for base in cls.__mro__ if found is None else ():
            found = model.MODELS.get((base, "." + name))
            if found is not None or name in base.__dict__:
                break
        vm.rows[key] = found
    return vm.rows[key]


def guard_metaclass(vm: Machine, cls: type) -> None:
    """Guard the class of a class whose metaclass is written in Python."""
    if is_open(type(cls)):
        vm.guard(class_source(cls), "TYPE_MATCH", type(cls))


def has_python_operators(value: Known) -> bool:
    """Return whether a constant's class may define operators in Python: a class with a metaclass, an enum member."""
    return isinstance(value.obj, SPEAKING) and is_open(type(value.obj))


SPEAKING = (type, enum.Enum)
TEXTS = ("__str__", "__repr__", "__format__")


def asks_the_program(vm: Machine, names: Iterable[str], *constants: Any) -> bool:
    """Return whether a special method of these names is the program's, of a constant or of what it contains."""
    for obj in constants:
        cls = type(obj)
        if cls in CONSTANTS:
            continue
        inside = [*obj, *obj.values()] if isinstance(obj, dict) else obj if isinstance(obj, CONTAINERS) else ()
        if inside and asks_the_program(vm, names, *inside):
            return True
        if has_python_operators(Known(obj)) and any(
            is_written_by_program(guarded_lookup(vm, cls, name)) for name in names
        ):
            return True
    return False


CONTAINERS = (tuple, list, set, frozenset)


def is_plain_constant(value: Known) -> bool:
    """Return whether Python can be asked about a constant at once: no user code runs, and it is no function."""
    return type(value.obj) in CONSTANTS or not (type(value.obj) is types.FunctionType or has_python_operators(value))


def written_in_python(cls: type) -> bool:
    """Return whether a class statement made the class, so that its instances are plain; `object` counts."""
    if cls is object:
        return True
    in_c = type(cls.__dict__.get("__new__")) is types.BuiltinFunctionType or cls.__flags__ & NOT_INSTANTIATED
    return is_open(cls) and not in_c


NOT_INSTANTIATED = 1 << 7  # Py_TPFLAGS_DISALLOW_INSTANTIATION


def derives(cls: type, base: type) -> bool:
    """Return `issubclass(cls, base)` without asking a metaclass."""
    return type.__subclasscheck__(base, cls)


def is_class(obj: Any) -> bool:
    """Return whether an object is a class, not one that only says so, as `list[int]` does on some versions."""
    return derives(type(obj), type)


def is_descriptor(vm: Machine, found: Any, method: str) -> bool:
    """Return whether a class attribute has this method of the descriptor protocol."""
    return found is not MISSING and guarded_lookup(vm, type(found), method) is not MISSING


def guarded_own(vm: Machine, cls: type, name: str) -> Any:
    """Return what a class itself has under a name, its bases aside, and guard it."""
    found = cls.__dict__.get(name, MISSING)
    if found is MISSING:
        guarded_lookup(vm, cls, name)  # what a base further on has: not one of its own
    elif is_open(cls):
        guard_attribute(vm, cls, name, found)
    return found


def guard_bases(vm: Machine, cls: type) -> None:
    """Guard the bases of a class, since `__bases__` can be assigned."""
    order = Source("attr", class_source(cls), "__mro__")
    if not is_open(cls):
        return
    if not any(map(is_mortal, cls.__mro__)):
        vm.guard(order, "ID_MATCH", cls.__mro__)
        return
    vm.guard(order, "LENGTH", len(cls.__mro__))
    for index, base in enumerate(cls.__mro__):
        vm.guard(Source("item", order, index), "ID_MATCH", base)


def instance_dict(obj: Any) -> dict[str, Any] | None:
    """Return the `__dict__` of a real instance without running the user's code."""
    try:
        own = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return None
    return own if type(own) is dict else None


def getter_of(vm: Machine, cls: type, name: str, found: property) -> Known:
    """Return the getter of a property, of a subclass of `property` past what that has as `fget`."""
    field = property.__dict__["fget"]
    place = class_attribute(vm, cls, name)
    if class_lookup(type(found), "fget") is field:
        return Known(found.fget, Source("attr", place, "fget"))
    return Known(field.__get__(found), Source("field", place, class_attribute(vm, property, "fget")))


def class_lies(vm: Machine, cls: type) -> bool:
    """Return whether `obj.__class__` may differ from the type of an instance."""
    if type(guarded_lookup(vm, cls, "__getattribute__")) is types.FunctionType:
        return True
    return guarded_lookup(vm, cls, "__class__") not in (PLAIN_CLASS, MISSING)


PLAIN_CLASS = object.__dict__["__class__"]
