"""Names over a `__dict__`: read, written, deleted, and done for real once the graph has run.

The dictionary itself stays as it was at entry; over it lies what the frame wrote. That of an instance or a thread-local
object is in its Entity (`attrs`); that of a module, a class, a function or a tensor the effects keep by Namespace. What
differs by owner is a row: HOLDERS says where the dictionary of an object is, OWNERS where a write goes, or that it is
refused. `dict_aliases` sees to it that nobody goes to one dictionary by two ways.
"""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from torchdynamo.capture.vm import dict_aliases, finalizers, model
from torchdynamo.capture.vm.effect_kinds import EffectKind, Namespace
from torchdynamo.capture.vm.heap import MISSING, Entity
from torchdynamo.capture.vm.lookup import (
    class_lookup,
    guard_absence,
    guard_string_keys,
    guarded_lookup,
    index_of_written,
    instance_dict,
)
from torchdynamo.capture.vm.model import is_open
from torchdynamo.capture.vm.wrap import wrap
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Source
from torchdynamo.core.value import ABSENT, Known, Object, TensorNode, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


# -- objects ----------------------------------------------------------------------------------------------------------
class Holder(NamedTuple):
    """Where an object has its dictionary, and the functions in C that set and delete its attributes."""

    own: Callable[[Any], dict[str, Any] | None]
    source: Callable[[Source], Source]
    set: Any = object.__setattr__
    delete: Any = object.__delattr__


def of_this_thread(local: Any) -> dict[str, Any]:
    """Return the dictionary that the running thread has in a thread-local object, which may run its `__init__`."""
    try:
        own: dict[str, Any] = threading.local.__getattribute__(local, "__dict__")
    except Exception:  # whatever the `__init__` of this thread raises, Python is to raise it
        raise Break("unsupported attribute", name="__dict__", type=type(local).__name__) from None
    return own


HOLDERS: dict[type, Holder] = {  # the first that a class derives from
    threading.local: Holder(
        of_this_thread,
        lambda source: Source("attr", source, "__dict__"),
        threading.local.__setattr__,
        threading.local.__delattr__,
    ),
    object: Holder(instance_dict, lambda source: Source("dict", source)),
}


def holder_of(cls: type) -> Holder:
    """Return how instances of a class hold their attributes."""
    return next(row for base, row in HOLDERS.items() if issubclass(cls, base))


def can_hold(cls: type) -> bool:
    """Return whether instances of a class have a dictionary."""
    return bool(cls.__dictoffset__) or issubclass(cls, threading.local)


def own_dict(entity: Entity) -> dict[str, Any] | None:
    """Return the dictionary of an object that was there at entry, as it was then, if it has one."""
    return None if entity.real is MISSING else holder_of(entity.pytype).own(entity.real)


def dict_source(entity: Entity) -> Source:
    """Return the path of that dictionary."""
    assert entity.source is not None
    return holder_of(entity.pytype).source(entity.source)


def has_dict(entity: Entity) -> bool:
    """Return whether an object has a dictionary."""
    return can_hold(entity.pytype) if entity.fresh else own_dict(entity) is not None


def own_attributes(vm: Machine, entity: Entity) -> dict[str, Any] | None:
    """Return the dictionary of an object that existed at entry; guard that its keys are names."""
    own = own_dict(entity)
    if own is not None and entity.source is not None and id(entity) not in vm.with_names:
        guard_string_keys(vm, entity, own)
        dict_aliases.note_lookup(vm, own, dict_source(entity), vm.heap.by_id[id(entity.real)])
    return own


def read_instance(vm: Machine, entity: Entity, name: str) -> Value | None:
    """Return an object's own attribute, as the frame left it or as it was at entry; None if it has none."""
    value = entity.attrs.get(name)
    if value is None and entity.real is not MISSING:
        value = entity.loaded.get(name)
        if value is None:
            own = own_attributes(vm, entity)
            if own is None or entity.source is None:
                return None
            value = entity.loaded[name] = at_entry(vm, own, dict_source(entity), name) or ABSENT
    return None if value is ABSENT else value


def write_instance(vm: Machine, entity: Entity, name: str, value: Value) -> None:
    """Set an object's own attribute; ABSENT deletes."""
    own = own_attributes(vm, entity)
    if own is not None and entity.source is not None:
        dict_aliases.note_write(vm.aliased_dicts[id(own)])
        if value is ABSENT:
            guard_presence(vm, own, dict_source(entity), name)
        if name not in entity.attrs:
            finalizers.let_go_at(vm, dict_source(entity), own, name)
    there = own is not None and name in own
    deleted = entity.attrs.get(name) is ABSENT
    if value is ABSENT and not there:
        vm.effects.drop(entity, name)
    elif deleted:
        vm.effects.write_last(entity, name, value, there)
    else:
        vm.effects.write(entity, name, value)


# -- modules, classes, functions, tensors -----------------------------------------------------------------------------
def at_entry(vm: Machine, real: dict[str, Any], source: Source, name: str) -> Value | None:
    """Return what was under a name when the frame began; None, which is guarded, if nothing was."""
    if name in real:
        return wrap(vm, real[name], Source("key", source, name))
    vm.guard(source, "NO_KEY", name)
    return None


def guard_presence(vm: Machine, real: dict[str, Any], source: Source, name: str) -> None:
    """Rest on whether a name was there at entry: where it was not, nothing is left to delete when the graph has run."""
    if Source("key", source, name) not in vm.by_source:
        vm.guard(source, "HAS_KEY" if name in real else "NO_KEY", name)


def look(vm: Machine, real: dict[str, Any], source: Source, name: str) -> Value | None:
    """Return what was under a name at entry, in a dictionary that the program may reach in another way, too."""
    dict_aliases.note_lookup(vm, real, source)
    return at_entry(vm, real, source, name)


def write(vm: Machine, space: Namespace, name: str, value: Value) -> None:
    """Set a name; ABSENT deletes."""
    if space.real is not None:
        dict_aliases.note_write(alias_record(vm, space, space.real))
        if value is ABSENT and space.source is not None:
            guard_presence(vm, space.real, space.source, name)
        if space.source is not None and vm.effects.written(space.place, name) is None:
            finalizers.let_go_at(vm, space.source, space.real, name)
    vm.effects.write_name(space, name, value)


def alias_record(vm: Machine, space: Namespace, real: dict[str, Any]) -> dict_aliases.AliasedDict:
    """Return the record of who goes to the dictionary of a namespace, and by which way."""
    owner = None if space.place is space.real else space.place
    return dict_aliases.note_lookup(vm, real, space.source, owner)


def write_attribute(vm: Machine, owner: Known, name: str, value: Value) -> None:
    """Execute `owner.name = value` of a module, class or function. Raises Break where that cannot be deferred."""
    find = OWNERS.nearest(owner.pytype)
    space = None if find is None or value is ABSENT or name.startswith("__") else find(vm, owner, name, value)
    if space is None:
        cls = owner.obj if find is of_class and value is not ABSENT else owner.pytype
        raise Break("unsupported attribute write", name=name, type=cls.__name__)
    write(vm, space, name, value)


def of_globals(real: dict[str, Any], source: Source | None) -> Namespace:
    """Return the names of a module, as `global` statements see them."""
    return Namespace(EffectKind.NAME, real, real, source)


def of_module(vm: Machine, module: Known, name: str, value: Value) -> Namespace | None:
    """Return the names of a module that the frame writes to; None for PyTorch's own, which operators may read."""
    own = module.obj.__dict__
    called = own.get("__name__")
    plain = module.pytype is types.ModuleType and type(called) is str and sys.modules.get(called) is module.obj
    if not plain or called.partition(".")[0] == "torch":
        return None
    guarded_lookup(vm, types.ModuleType, name)
    home = Source("globals") if own is vm.roots.globals else Source("dict", Source("module", None, called))
    return of_globals(own, home)


def of_function(vm: Machine, fn: Known, name: str, value: Value) -> Namespace | None:
    """Return the names of a function, which is guarded by identity: one code makes many. None for PyTorch's."""
    real: types.FunctionType = fn.obj
    if fn.source is None or (real.__module__ or "").partition(".")[0] == "torch":
        return None
    vm.guard(fn.source, "ID_MATCH", real)
    return Namespace(EffectKind.FUNCTION, real.__dict__, real.__dict__, Source("dict", fn.source))


def of_class(vm: Machine, owner: Known, name: str, value: Value) -> Namespace | None:
    """Return the names of a class; None if more than plain data is set, which would change what Python does."""
    cls, meta = owner.obj, owner.pytype
    guarded_lookup(vm, meta, "__setattr__")
    above = guarded_lookup(vm, meta, name)
    told = class_lookup(meta, "__setattr__") is not type.__setattr__ or hasattr(type(above), "__set__")
    data = value.__class__ is not Known or isinstance(value.obj, PLAIN)
    described = value.__class__ is Object and any(hasattr(value.pytype, name) for name in DESCRIPTOR)
    if told or described or not data or not is_open(cls):
        return None
    own = None if id(cls) in vm.made_classes else dict_aliases.of_class(cls)
    return Namespace(EffectKind.CLASS, cls, own, None, cls)


DESCRIPTOR = ("__get__", "__set__", "__delete__")
PLAIN = (bool, int, float, complex, str, bytes, tuple, frozenset, type(None), type, types.ModuleType)
OWNERS: model.Table[Callable[[Machine, Known, str, Value], Namespace | None]] = model.Table(
    {types.ModuleType: of_module, types.FunctionType: of_function, type: of_class}
)


def of_tensor(vm: Machine, tensor: TensorNode) -> Namespace:
    """Return the attributes that the program stores on a tensor."""
    real = vm.input_objects.get(tensor.node)
    there = real is not None and tensor.source is not None
    home = Source("dict", tensor.source) if there else None
    return Namespace(EffectKind.TENSOR, tensor.fake, real.__dict__ if there else None, home, tensor)


def read_tensor(vm: Machine, tensor: TensorNode, name: str) -> Value | None:
    """Return what the program has stored on a tensor under a name; None if nothing."""
    value = vm.effects.written(tensor.fake, name)
    space = of_tensor(vm, tensor)
    if value is not None or space.real is None or space.source is None:
        return None if value is ABSENT else value
    alias_record(vm, space, space.real)
    return at_entry(vm, space.real, space.source, name)


def read_function(vm: Machine, fn: Known, name: str) -> Value | None:
    """Return what the program has stored on a function under a name; None if nothing.

    Where the frame wrote to functions, the identity of each is guarded.
    """
    own, source = fn.obj.__dict__, fn.source
    if vm.effects.wrote_functions:
        if source is not None:
            vm.guard(source, "ID_MATCH", fn.obj)
        value = vm.effects.written(own, name)
        if value is not None:
            return value
    if source is None or name in ("__name__", "__qualname__", "__module__", "__doc__"):
        return None
    return look(vm, own, Source("dict", source), name)


def written_on_class(vm: Machine, cls: type, name: str) -> Value | None:
    """Return what the frame wrote under a name, if a look-up on the class finds that before what its bases have."""
    at = index_of_written(vm, cls, name)
    if at is None:
        return None
    guard_absence(vm, cls, at, name)
    return vm.effects.written(cls.__mro__[at], name)
