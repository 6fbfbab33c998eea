"""Check the receiver of a method written in C, as CPython does before the method runs."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from torchdynamo._native import type_name
from torchdynamo.capture.vm.lookup import derives
from torchdynamo.capture.vm.model import plain_new
from torchdynamo.core.naming import class_name
from torchdynamo.core.signals import Break, Raised
from torchdynamo.core.value import Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

OTHERS: dict[type, str] = {
    types.MethodDescriptorType: "descriptor '{}' for '{}' objects doesn't apply to a '{}' object",
    types.WrapperDescriptorType: "descriptor '{}' requires a '{}' object but received a '{}'",
}


def refuse_others(vm: Machine, method: Any, given: Value) -> None:
    """Raise the program's TypeError where a method is called on no instance of its class: `list.append((), 1)`."""
    owner, text = method.__objclass__, OTHERS.get(type(method))
    if owner is not object and text is not None and not derives(given.pytype, owner):
        raise vm.error(TypeError, text.format(method.__name__, type_name(owner), type_name(given.pytype)))


def refused_access(vm: Machine, found: property, cls: type, how: str) -> Raised:
    """Return the error of a property without a getter, setter or deleter (`__get__`, `__set__`, `__delete__`).

    CPython is asked, of an object that stands for one of the class: the property knows its own name, the class its.
    """
    asked = type(cls.__name__, (), {"__qualname__": class_name(cls)})()
    try:
        getattr(property, how)(found, asked, *([None] if how == "__set__" else []))
    except AttributeError as error:
        return vm.error(AttributeError, *error.args)
    raise Break("unsupported attribute", name=how, type="property")


def refuse_unsafe(vm: Machine, new: Any, cls: Any) -> None:
    """Raise the program's TypeError where `__new__` in C is not that of the class: `int.__new__(bool)`."""
    if isinstance(cls, type) and plain_new(cls) is not new:
        try:
            new(cls)
        except TypeError as error:
            if "is not safe" in str(error):
                raise vm.error(TypeError, *error.args) from None
