"""Numbers and texts of classes that extend Python's own: an identity, attributes, and the plain value each is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torchdynamo.capture.torch.numpy_arrays import flowing_type
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.lookup import guarded_lookup, has_python_operators
from torchdynamo.capture.vm.model import NUMBER, is_open
from torchdynamo.core.value import Known, Object, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.heap import Entity
    from torchdynamo.capture.vm.machine import Machine

SCALARS = (int, float, complex, str, bytes)
# What C functions may ask an instance for; a class that says any of it itself is not taken for the plain value.
ASKED = (
    *(
        "__str__",
        "__repr__",
        "__format__",
        "__bytes__",
        "__int__",
        "__float__",
        "__complex__",
        "__index__",
        "__trunc__",
    ),
    *("__eq__", "__lt__", "__hash__", "__bool__", "__len__", "__iter__", "__getitem__", "__contains__", "__round__"),
    *("__add__", "__radd__", "__mul__", "__rmul__", "__mod__", "__rmod__", "__abs__", "__pow__", "__rpow__"),
    *("__sub__", "__rsub__", "__truediv__", "__rtruediv__", "__floordiv__", "__rfloordiv__", "__divmod__", "__neg__"),
    *("__trunc__", "__ceil__", "__floor__", "__getattribute__"),
)


# How the plain value of an instance is had in C. Of what may be referred to weakly, and so be guarded by identity.
PLAINLY = {str: str.__str__, float: float.__float__}


class Plain(NamedTuple):
    """The payload of an instance that the frame made of a subclass of int, str or the like: its plain value."""

    value: Known


def plain_value(vm: Machine, value: Value) -> Known | None:
    """Return the plain value of an instance, as methods of the type in C see it; None if it is no scalar."""
    if value.__class__ is Object and issubclass(value.pytype, SCALARS):
        entity = vm.entity(value)
        if entity.payload.__class__ is Plain:
            return entity.payload.value
        if entity.real is not MISSING and entity.source is not None and not flowing_type(value):
            return plain_at_entry(vm, entity)
    return None


def plain_at_entry(vm: Machine, entity: Entity) -> Known | None:
    """Return the plain value of an instance that existed at entry, guarded by its identity: it never changes."""
    read = next((read for base, read in PLAINLY.items() if isinstance(entity.real, base)), None)
    if read is None or entity.source is None:
        return None
    vm.guard(entity.source, "ID_MATCH", entity.real)
    return Known(read(entity.real))


def indexed(vm: Machine, value: Value) -> Value:
    """Return `value.__index__()` of a user's object where an index is wanted; a slice with such parts converted."""
    if value.__class__ is Known and has_python_operators(value):
        guarded_lookup(vm, value.pytype, "__index__")
    if value.__class__ is not Object:
        return value
    if value.pytype is slice:
        parts: list[Value] = vm.entity(value).items
        step, start, stop = (indexed(vm, parts[at]) for at in (2, 0, 1))  # the order in which Python asks
        same = (start, stop, step) == tuple(parts)
        return value if same else vm.make_slice(start, stop, step)
    if issubclass(value.pytype, int):  # C takes its value, whatever `__index__` the class has
        return vm.call(Known(int.__index__), [value], {})
    if guarded_lookup(vm, value.pytype, "__index__") is MISSING:
        return value
    return vm.special(value, "__index__")


def plain_seen_by(vm: Machine, method: str, value: Value) -> Known | None:
    """Return the plain value that a method of the type in C sees; None if formatting would ask the user's class."""
    if method in ("__format__", "__rmod__") and plainly(vm, value) is value:
        return None
    number = NUMBER.get(value.pytype) if value.__class__ is Object else None
    return plain_value(vm, value) or (number and number(vm, vm.entity(value)))  # type: ignore[arg-type]


def plainly(vm: Machine, value: Value) -> Value:
    """Return the plain value of an instance whose class overrides no method that C asks; else the instance."""
    known = plain_value(vm, value)
    if known is None:
        return value
    written = [guarded_lookup(vm, value.pytype, name) for name in ASKED]
    own = {id(found) for base in value.pytype.__mro__ if is_open(base) for found in base.__dict__.values()}
    return value if any(id(found) in own for found in written) else known
