"""Classes with arguments, `Box[int]` and `list[int]`: calling one calls the class."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import types
import typing

from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import models
from torchdynamo.capture.vm.wrap import lift
from torchdynamo.core.value import Known, Value


@models(type(typing.List[int]), "__call__")  # noqa: UP006
@models(types.GenericAlias, "__call__")
def call_alias(vm: Machine, self: Value, /, *args: Value, **kwargs: Value) -> Value:
    alias = vm.known(self, "alias")
    if not getattr(alias, "_inst", True):
        name = alias.__origin__.__name__
        raise vm.error(TypeError, f"Type {alias._name} cannot be instantiated; use {name}() instead")
    return vm.call(Known(call), [self, lift(vm, alias.__origin__), *args], dict(kwargs))


def call(alias, cls, /, *args, **kwargs):
    """Make an instance of a generic class. It remembers the alias, if it takes attributes."""
    made = cls(*args, **kwargs)
    try:
        made.__orig_class__ = alias
    except (AttributeError, TypeError):
        pass
    return made


@models(types.GenericAlias, "__or__")
def either(vm: Machine, self: Value, other: Value) -> Value:
    """Return `list[int] | other`, as annotations of functions have it that are made in the function."""
    return Known(vm.known(self, "alias") | vm.known(other, "class"))
