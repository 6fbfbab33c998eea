"""`cls.name = value`: what the frame wrote to classes is read back, and written when the graph has run."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from torchdynamo.capture.vm import dict_aliases
from torchdynamo.capture.vm.lookup import class_lookup, guarded_lookup, rest_on_absence
from torchdynamo.capture.vm.model import is_open
from torchdynamo.core.signals import Break
from torchdynamo.core.value import ABSENT, Known, Object, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


def write(vm: Machine, cls: type, name: str, value: Value) -> None:
    """Only plain data under a plain name: methods and descriptors would change what Python itself does."""
    meta = type(cls)
    guarded_lookup(vm, meta, "__setattr__")
    above = guarded_lookup(vm, meta, name)
    told = class_lookup(meta, "__setattr__") is not type.__setattr__ or hasattr(type(above), "__set__")
    data = value.__class__ is not Known or isinstance(value.obj, PLAIN)
    described = value.__class__ is Object and any(hasattr(value.pytype, name) for name in DESCRIPTOR)
    if told or described or not data or value is ABSENT or not is_open(cls) or name.startswith("__"):
        raise Break("unsupported attribute write", name=name, type=cls.__name__)
    if id(cls) not in vm.made_classes:
        dict_aliases.write(dict_aliases.rest_on(vm, dict_aliases.of_class(cls), None))
    vm.effects.write_class(cls, name, value)


DESCRIPTOR = ("__get__", "__set__", "__delete__")
PLAIN = (bool, int, float, complex, str, bytes, tuple, frozenset, type(None), type, types.ModuleType)


def written(vm: Machine, cls: type, name: str) -> Value | None:
    """What the frame wrote, where that is what a look-up on the class finds: those before it have no such name."""
    for at, base in enumerate(cls.__mro__):
        value = vm.effects.of_class(base, name)
        if value is not None:
            rest_on_absence(vm, cls, at, name)
            return value
        if name in base.__dict__:
            return None
    return None
