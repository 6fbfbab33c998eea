"""Members of enumerations: constants with attributes of their own and the methods of their class."""

from __future__ import annotations

import enum
import types
from typing import TYPE_CHECKING, Any

from torchdynamo.capture.vm.descriptors import describe, is_property
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.lookup import PLAIN_METHODS, guarded_lookup
from torchdynamo.capture.vm.namespaces import look
from torchdynamo.capture.vm.wrap import CONSTANTS, class_attribute, lift
from torchdynamo.core.source import Pinned, Source
from torchdynamo.core.value import Known, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

BEHIND = {enum.Enum.__dict__["value"]: "_value_", enum.Enum.__dict__["name"]: "_name_"}


def guard_members(vm: Machine, cls: Any) -> None:
    """Guard the members of an enumeration: by name, in their order, and by value."""
    if not isinstance(cls, enum.EnumMeta) or not cls.__members__:
        return
    names, by_name, by_value = (
        class_attribute(vm, cls, name) for name in ("_member_names_", "_member_map_", "_value2member_map_")
    )
    vm.guard(names, "LENGTH", len(cls._member_names_))
    for index, name in enumerate(cls._member_names_):
        vm.guard(Source("item", names, index), "EQUALS_MATCH", name)
    for name, member in cls._member_map_.items():
        vm.guard(Source("key", by_name, name), "ID_MATCH", member)
    for value, member in cls._value2member_map_.items():
        if type(value) in CONSTANTS:
            vm.guard(Source("key", by_value, value), "ID_MATCH", member)


def member_getattr(vm: Machine, member: Known, name: str) -> Value:
    """Return an attribute of an enum member. A class holds its members, so a path may begin at one."""
    real, cls = member.obj, type(member.obj)
    found = guarded_lookup(vm, cls, name)
    own: dict[str, Any] = real.__dict__
    source = Source("pinned", None, Pinned(real))
    behind = BEHIND.get(found) if isinstance(found, types.DynamicClassAttribute) else None
    value = None if behind is None else look(vm, own, Source("dict", source), behind)
    if value is not None:
        return value
    if isinstance(found, types.DynamicClassAttribute) and type(found.fget) is types.FunctionType:
        getter = Source("attr", Source("class_attr", Source("type", source), name), "fget")
        return vm.call(Known(found.fget, getter), [member], {})
    if found is not MISSING and is_property(vm, found):
        return describe(vm, member, cls, name, found)
    value = look(vm, own, Source("dict", source), name)
    if value is not None:
        return value
    if type(found) in (*PLAIN_METHODS, staticmethod, classmethod):
        return describe(vm, member, cls, name, found)
    try:
        return lift(vm, getattr(real, name))
    except AttributeError as error:
        raise vm.error(AttributeError, *error.args) from None
