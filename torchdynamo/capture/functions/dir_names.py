"""dir: the names an object has, those of its class among them."""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING

from torchdynamo.capture.types.sequence import sorted_values
from torchdynamo.capture.vm import dict_aliases
from torchdynamo.capture.vm.lookup import class_lookup
from torchdynamo.capture.vm.model import function, models
from torchdynamo.capture.vm.namespaces import has_dict
from torchdynamo.capture.vm.wrap import CONSTANTS, lift
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Pinned, Source
from torchdynamo.core.value import FALSE, NONE, Known, Object, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


@function(dir)
def dir_(vm: Machine, obj: Value | None = None) -> Value:
    if obj is None:
        raise Break("frame inspects itself", name="dir")
    return vm.new(list, sorted_values(vm, list(vm.iterate(names_of(vm, obj))), NONE, FALSE))


def names_of(vm: Machine, obj: Value) -> Value:
    """What the object's `__dir__` gives."""
    if obj.__class__ is Known and obj.pytype in CONSTANTS:
        return lift(vm, dir(obj.obj))
    if obj.__class__ is Known and isinstance(obj.obj, types.ModuleType):
        return names_in_module(vm, obj)
    if obj.__class__ is Known and isinstance(obj.obj, type) and class_lookup(obj.pytype, "__dir__") is TYPE_DIR:
        return vm.new(list, [Known(name) for name in names_of_class(vm, obj.obj)])
    found: Value = vm.special(obj, "__dir__")
    return found


TYPE_DIR, MODULE_DIR = (vars(cls)["__dir__"] for cls in (type, types.ModuleType))


def names_of_class(vm: Machine, cls: type) -> list[str]:
    """Its own and its bases', in the order Python finds them."""
    if vm.effects.wrote_classes:
        raise Break("unknown call", name="dir")
    names = list(type.__dir__(cls))
    vm.guard(listing(cls), "EQUALS_MATCH", repr(names))
    return names


@functools.cache
def listing(cls: type) -> Source:
    """The text of a class's names, in their order."""
    return Source("method", Source("call", Source("pinned", None, Pinned(TYPE_DIR.__get__(cls))), ()), "__repr__")


@models(object, "__dir__")
def object_dir(vm: Machine, self: Value) -> Value:
    if self.__class__ is not Object:
        raise Break("unknown call", name="dir")
    own = vm.iterate(vm.instance_dict(self)) if has_dict(vm.entity(self)) else iter(())
    names = [vm.known(name, "name") for name in own] + names_of_class(vm, self.pytype)
    return vm.new(list, [Known(name) for name in dict.fromkeys(names)])


def names_in_module(vm: Machine, module: Known) -> Value:
    """A module may say by a function of its own."""
    own: types.ModuleType = module.obj
    if vm.effects.wrote_in(own.__dict__):
        raise Break("unknown call", name="dir")
    if "__dir__" in own.__dict__ or class_lookup(type(own), "__dir__") is not MODULE_DIR:
        return vm.call(vm.getattr(module, "__dir__"), [], {})
    names = tuple(own.__dict__)
    dict_aliases.rest_on(vm, own.__dict__, Source("dict", Source("module", None, own.__name__)))
    vm.guard(Source("dict", Source("module", None, own.__name__)), "DICT_KEYS", names)
    return vm.new(list, [Known(name) for name in names])
