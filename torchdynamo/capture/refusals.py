"""Whom methods written in C refuse, before anything of theirs runs."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from torchdynamo.capture.model import plain_new
from torchdynamo.capture.value import Value

if TYPE_CHECKING:
    from torchdynamo.capture.machine import Machine

OTHERS: dict[type, str] = {
    types.MethodDescriptorType: "descriptor '{}' for '{}' objects doesn't apply to a '{}' object",
    types.WrapperDescriptorType: "descriptor '{}' requires a '{}' object but received a '{}'",
}


def refuse_others(vm: Machine, method: Any, given: Value) -> None:
    """A method takes instances of its class: not `list.append((), 1)`."""
    owner, text = method.__objclass__, OTHERS.get(type(method))
    if owner is not object and text is not None and not issubclass(given.pytype, owner):
        raise vm.error(TypeError, text.format(method.__name__, owner.__name__, given.pytype.__name__))


def refuse_unsafe(vm: Machine, new: Any, cls: Any) -> None:
    """C's `__new__` of a class makes no instances of classes that have one of their own in C: `int.__new__(bool)`."""
    if isinstance(cls, type) and plain_new(cls) is not new:
        try:
            new(cls)
        except TypeError as error:
            if "is not safe" in str(error):
                raise vm.error(TypeError, *error.args) from None
