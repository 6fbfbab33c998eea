"""Materialize objects that the frame made while it was executed symbolically."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from torchdynamo.capture.vm.attribute_writes import is_field, is_writable
from torchdynamo.capture.vm.c_fields import Hidden
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.iteration import OF_DICTS, IteratorState, ViewOf
from torchdynamo.capture.vm.lookup import class_lookup, written_in_python
from torchdynamo.capture.vm.model import find_slot
from torchdynamo.core.signals import Restart
from torchdynamo.core.value import ABSENT, Object, Value

if TYPE_CHECKING:
    from torchdynamo.codegen.emit import CodeEmitter

INDEXED: dict[type, type] = {type(iter([])): list, type(iter(())): tuple, type(iter(range(0))): range}


def is_plain(cls: type) -> bool:
    """Return whether instances of a class can be made by `object.__new__`."""
    return all(map(written_in_python, cls.__mro__))


def instance(emit: CodeEmitter, entity: Entity) -> None:
    """Materialize an instance without calling `__init__`, which has run symbolically; set its attributes."""
    emit.function(object.__new__)
    emit.const(entity.pytype)
    emit.op("CALL", (1, ()))
    emit.keep(entity)
    attributes(emit, entity)


def attributes(emit: CodeEmitter, entity: Entity) -> None:
    """Set the attributes of the object on the stack, which stays there."""
    for name, value in entity.attrs.items():
        if name.__class__ is Hidden and is_writable(name.descriptor) and value is not ABSENT:
            hidden_field(emit, entity, name, value)
        found = class_lookup(entity.pytype, name)
        if is_field(found) and not is_writable(found):
            continue  # a read-only field, set when the object was made
        if value is not ABSENT and name.__class__ is not Hidden and value is not entity.loaded.get(name):
            emit.function(object.__setattr__)
            emit.local(entity)
            emit.const(name)
            emit.value(value)
            emit.op("CALL", (3, ()))
            emit.op("POP")


def hidden_field(emit: CodeEmitter, entity: Entity, name: Hidden, value: Value) -> None:
    """Set a field that C keeps, by its own descriptor, although the class may have another one by that name."""
    if value is entity.loaded.get(name):
        return
    emit.function(name.descriptor.__set__)
    emit.local(entity)
    emit.value(value)
    emit.op("CALL", (2, ()))
    emit.op("POP")


def iterator(emit: CodeEmitter, entity: Entity) -> None:
    """Materialize an iterator at its current position. Raises Restart where that is impossible."""
    steps: IteratorState = entity.items
    over = steps.over
    if over is None or is_iterator(emit, over):
        raise Restart(entity.born - 1)
    if steps.count and not issubclass(over.pytype, INDEXED.get(entity.pytype, ())):
        raise Restart(entity.born - 1)
    if steps.version != version_of(emit, over):
        raise Restart(entity.born - 1)  # the container has changed, and the iterator would raise
    backwards = entity.pytype is reversed or "reverse" in entity.pytype.__name__
    asked = find_slot(over.pytype, "__reversed__" if backwards else "__iter__")
    if asked[0] == "python" and type(asked[1][1]) is types.FunctionType:
        raise Restart(entity.born - 1)  # a subclass overrides it, and this is the base's iterator
    emit.function(reversed if backwards else iter)
    emit.value(over)
    emit.op("CALL", (1, ()))
    if steps.count:
        emit.op("COPY", 1)
        emit.op("LOAD_METHOD", "__setstate__")
        emit.const(steps.count)
        emit.op("CALL", (1, ()))
        emit.op("POP")


def version_of(emit: CodeEmitter, over: Any) -> int:
    """Return the current version of the container that is iterated."""
    if over.__class__ is not Object:
        return 0
    entity = emit.heap[over]
    return emit.heap[entity.payload_as(ViewOf).box].version if over.pytype in OF_DICTS else entity.version


def is_iterator(emit: CodeEmitter, value: Any) -> bool:
    return value.__class__ is Object and emit.heap[value].items.__class__ is IteratorState


def subclass_instance(cls: type, base: Any, fill: Any, items: Any) -> Any:
    """Return an instance of a container's subclass, filled by `fill`, without calling its `__init__`."""
    made = base.__new__(cls)
    fill(made, items)
    return made
