"""isinstance and issubclass: by exact types, which are guarded; a metaclass that answers for itself is asked."""

from __future__ import annotations

import abc
import types
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from torchdynamo.capture import lookup, model
from torchdynamo.capture.heap import MISSING
from torchdynamo.capture.model import function, is_open
from torchdynamo.capture.signals import Break
from torchdynamo.capture.source import Pinned, Source
from torchdynamo.capture.value import Graphed, Known, Object, Value, boolean
from torchdynamo.capture.wrap import class_attribute

if TYPE_CHECKING:
    from torchdynamo.capture.machine import Machine


@function(isinstance)
def isinstance_(vm: Machine, obj: Value, classes: Value) -> Value:
    return boolean(asked(vm, obj, classes, "__instancecheck__", instance_of))


def asked(
    vm: Machine, first: Any, classes: Value, method: str, ask: Callable[[Machine, Any, Any], bool], depth: int = 0
) -> bool:
    """One by one, since what stands in the place of a class may be an object that answers (`typing.Sequence`)."""
    if classes.__class__ is Object:
        if classes.pytype is tuple:
            return any(asked(vm, first, each, method, ask, deeper(method, depth)) for each in vm.iterate(classes))
        if type(lookup.guarded_lookup(vm, classes.pytype, method)) is types.FunctionType:
            return vm.truth(vm.special(classes, method, first))
        if model.find_slot(classes.pytype, "__iter__")[0] == "model":
            what = "isinstance() arg 2 must be a type" if ask is instance_of else "issubclass() arg 2 must be a class"
            raise vm.error(TypeError, f"{what}, a tuple of {'types' if ask is instance_of else 'classes'}, or a union")
    return ask(vm, first, vm.concretely(classes))


def instance_of(vm: Machine, obj: Value, wanted: Any, depth: int = 0) -> bool:
    """By the exact type; what an instance says its class is counts as well."""
    if type(wanted) is tuple:
        return any(instance_of(vm, obj, one, deeper("isinstance", depth)) for one in wanted)
    if isinstance(wanted, types.UnionType) or typing.get_origin(wanted) is typing.Union:
        return any(instance_of(vm, obj, one) for one in typing.get_args(wanted))
    if obj.__class__ is Graphed:
        by_class = isinstance(wanted, type) and issubclass(wanted, torch.Tensor) and wanted is not torch.nn.Buffer
        return issubclass(obj.pytype, wanted) if by_class else answered(vm, isinstance, obj.fake, wanted)
    if obj.pytype is wanted:
        return True
    check = answering(vm, wanted, "__instancecheck__")
    if check is not None:
        return vm.truth(vm.call(check, [Known(wanted), obj], {}))
    if obj.__class__ is Known:
        answer = answered(vm, isinstance, obj.obj, wanted)
        if lookup.speaks(obj) and not is_protocol(wanted):
            return is_kin(vm, obj.pytype, wanted)
        return answer
    if is_protocol(wanted):
        return has_members(vm, obj, wanted)
    if not isinstance(wanted, type):
        answered(vm, isinstance, None, wanted)  # which refuses it in its own words
    if is_kin(vm, obj.pytype, wanted):
        return True
    if obj.__class__ is Object and lookup.class_lies(vm, obj.pytype):
        said = vm.has_attribute(obj, "__class__")
        if said is not None and said.__class__ is Known and isinstance(said.obj, type):
            return said.obj is not obj.pytype and is_kin(vm, said.obj, wanted)
    return False


def deeper(name: str, depth: int) -> int:
    """One more level of tuples in tuples; how many there may be is set for the program, not for the capture."""
    if depth > DEPTH:
        raise Break("inlining too deep", name=name)
    return depth + 1


DEPTH = 20


def is_kin(vm: Machine, cls: type, wanted: Any) -> bool:
    """Whether the instances of a class are instances of another: abstract classes ask whether it is a subclass."""
    return subclass_of(vm, cls, wanted) if isinstance(wanted, abc.ABCMeta) else by_bases(vm, cls, wanted)


def answering(vm: Machine, wanted: Any, name: str) -> Known | None:
    """The method of a metaclass of the user's that answers for the class; what it is is guarded."""
    meta = type(wanted)
    if not isinstance(wanted, type) or not is_open(meta):
        return None
    lookup.rest_on_metaclass(vm, wanted)
    check = lookup.guarded_lookup(vm, meta, name)
    if type(check) is not types.FunctionType or check.__module__.startswith(LIBRARIES):
        return None
    return Known(check, class_attribute(vm, meta, name))


def subclass_of(vm: Machine, cls: Any, wanted: Any, depth: int = 0) -> bool:
    """`issubclass(cls, wanted)`. An abstract class takes more for its subclasses with `register`, and none away."""
    if type(wanted) is tuple:
        return any(subclass_of(vm, cls, one, deeper("issubclass", depth)) for one in wanted)
    if isinstance(wanted, types.UnionType):
        return any(subclass_of(vm, cls, one) for one in wanted.__args__)
    check = answering(vm, wanted, "__subclasscheck__")
    if check is not None:
        return vm.truth(vm.call(check, [Known(wanted), Known(cls)], {}))
    return by_bases(vm, cls, wanted)


def by_bases(vm: Machine, cls: Any, wanted: Any) -> bool:
    """By the order of bases, and what was registered."""
    if isinstance(cls, type):
        lookup.rest_on_bases(vm, cls)
    answer = answered(vm, issubclass, cls, wanted)
    if not answer and isinstance(wanted, abc.ABCMeta):
        vm.guard(REGISTRATIONS, "UNREGISTERED", (cls, wanted, abc.get_cache_token()))
    return answer


def answered(vm: Machine, ask: Callable[[Any, Any], bool], obj: Any, wanted: Any) -> bool:
    """Python's answer."""
    try:
        return ask(obj, wanted)
    except TypeError as error:
        raise vm.error(TypeError, *error.args) from None
    except Exception as error:  # from a `__subclasshook__`; Python will raise it again
        raise Break("unknown call", name=ask.__name__) from error


LIBRARIES = (*lookup.LIBRARIES, "torch.")  # whose answers rest on classes alone
REGISTRATIONS = Source("call", Source("pinned", None, Pinned(abc.get_cache_token)), ())


def is_protocol(wanted: Any) -> bool:
    """A `typing.Protocol`, of which whatever has its members is an instance."""
    return type(wanted) is type(typing.Protocol) and bool(getattr(wanted, "_is_protocol", False))


def has_members(vm: Machine, obj: Value, protocol: Any) -> bool:
    """The members are looked at, and so guarded; Python answers where there is a real object."""
    names = getattr(protocol, "__protocol_attrs__", None) or typing._get_protocol_attrs(protocol)  # type: ignore[attr-defined]
    found = [vm.has_attribute(obj, name) for name in sorted(names)]
    real = vm.entity(obj).real if obj.__class__ is Object else MISSING
    try:
        return None not in found if real is MISSING else isinstance(real, protocol)
    except TypeError as error:  # it says that it is not to be asked
        raise vm.error(TypeError, *error.args) from None


@function(issubclass)
def issubclass_(vm: Machine, cls: Value, classes: Value) -> Value:
    return boolean(asked(vm, cls, classes, "__subclasscheck__", subclass_of_value))


def subclass_of_value(vm: Machine, cls: Value, wanted: Any) -> bool:
    return subclass_of(vm, vm.known(cls, "class"), wanted)
