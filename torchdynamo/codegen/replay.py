"""Replay the frame's side effects on objects that existed at entry."""

from __future__ import annotations

import types
from collections.abc import Callable

from torchdynamo.bytecode.assemble import argument_names
from torchdynamo.bytecode.instruction import Instruction, Item
from torchdynamo.capture.capture import Capture
from torchdynamo.capture.vm import lookup, model
from torchdynamo.capture.vm.effect_kinds import EffectKind, Write
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.namespaces import holder_of
from torchdynamo.codegen.emit import CodeEmitter
from torchdynamo.core.signals import Restart
from torchdynamo.core.source import local
from torchdynamo.core.value import ABSENT, is_none


def begin(emit: CodeEmitter, capture: Capture) -> list[Item]:
    """Return the instructions before the graph's call: they drop gradients, so that their memory is
    free for the graph.
    """
    kept, emit.items = emit.items, []
    for write in capture.machine.effects.pending():
        if drops_gradient(write):
            store_on_tensor(emit, write)
    made, emit.items = emit.items, kept
    return made


def drops_gradient(write: Write) -> bool:
    """Return whether a write sets the gradient of an existing tensor to None."""
    of_tensor = write.kind is EffectKind.TENSOR and write.owner.source is not None
    return of_tensor and write.name == "grad" and is_none(write.value)


def replay(emit: CodeEmitter, capture: Capture, begun: bool) -> None:
    """Emit all side effects in their order, with the values at the end of the capture. begun:
    `begin` has been emitted.
    """
    for write in capture.machine.effects.pending():
        if not (begun and drops_gradient(write)):
            REPLAYS[write.kind](emit, write)


def write_items(emit: CodeEmitter, write: Write) -> None:
    row = model.REPLAY.nearest(write.owner.pytype)
    if row is None:
        raise Restart(-1)
    row(emit, write.owner)


def write_name(emit: CodeEmitter, write: Write) -> None:
    space = write.owner
    emit.value(write.value)
    if space.real is emit.capture.machine.roots.globals:
        emit.op("STORE_GLOBAL", write.name)
    else:
        assert space.source is not None
        emit.source(space.source)
        emit.const(write.name)
        emit.op("SETITEM")


def write_class(emit: CodeEmitter, write: Write) -> None:
    """Set an attribute of an existing class; others are materialized with their attributes."""
    if id(write.owner) not in emit.capture.machine.made_classes:
        emit.value(write.value)
        emit.const(write.owner)
        emit.op("STORE_ATTR", write.name)


def call_deferred(emit: CodeEmitter, write: Write) -> None:
    write.owner.emit(emit)


def switch(emit: CodeEmitter, write: Write) -> None:
    emit.function(write.owner)
    for arg in write.value:
        emit.value(arg)
    emit.op("CALL", (len(write.value), ()))
    emit.op("POP")


def write_attribute(emit: CodeEmitter, write: Write) -> None:
    """Set or delete an attribute without calling the user's `__setattr__`, which has run symbolically."""
    entity, name, value = write.owner, write.name, write.value
    row = holder_of(entity.pytype)
    plain = entity.pytype is types.CellType or lookup.class_lookup(entity.pytype, "__setattr__") is row.set
    if value is ABSENT:
        emit.function(row.delete)
        emit.local(entity)
        emit.const(name)
        emit.op("CALL", (2, ()))
        emit.op("POP")
    elif plain:
        emit.value(value)
        emit.local(entity)
        emit.op("STORE_ATTR", name)
    else:
        emit.function(row.set)
        emit.local(entity)
        emit.const(name)
        emit.value(value)
        emit.op("CALL", (3, ()))
        emit.op("POP")


def store_on_tensor(emit: CodeEmitter, write: Write) -> None:
    """Set an attribute of a tensor, or delete one that it had at entry."""
    tensor, name, value = write.owner, write.name, write.value
    if value is not ABSENT:
        emit.value(value)
        emit.value(tensor)
        emit.op("STORE_ATTR", name)
    elif name in getattr(emit.capture.machine.input_objects.get(tensor.node), "__dict__", ()):
        emit.value(tensor)
        emit.op("DELETE_ATTR", name)


REPLAYS: dict[EffectKind, Callable[[CodeEmitter, Write], None]] = {
    EffectKind.ITEMS: write_items,
    EffectKind.ATTRIBUTE: write_attribute,
    EffectKind.THREAD_LOCAL: write_attribute,
    EffectKind.TENSOR: store_on_tensor,
    EffectKind.NAME: write_name,
    EffectKind.FUNCTION: write_name,
    EffectKind.CLASS: write_class,
    EffectKind.DEFERRED: call_deferred,
    EffectKind.STATE: switch,
}


def root_cells(emit: CodeEmitter, capture: Capture) -> None:
    """Fill the cells of the frame's own variables, which inner functions and continuations see."""
    for name, cell in capture.cells.items():
        root_cell(emit, name, capture.machine.heap[cell])  # type: ignore[index]


def fill_referenced_cells(emit: CodeEmitter, capture: Capture) -> None:
    """Fill those of the frame's cells that materialized functions refer to, when the frame returns."""
    done: set[str] = set()
    while True:
        loaded = {item.arg for item in emit.items if isinstance(item, Instruction) and item.op == "LOAD_CELL"}
        left = [name for name in capture.cells if name in loaded and name not in done]
        if not left:
            return
        done.update(left)
        for name in left:
            root_cell(emit, name, capture.machine.heap[capture.cells[name]])  # type: ignore[index]


def root_cell(emit: CodeEmitter, name: str, entity: Entity) -> None:
    value = entity.attrs.get("cell_contents")
    if entity.payload != name or value is None or getattr(value, "source", None) is local(name):
        return
    if value is not ABSENT:
        emit.value(value)
        emit.op("STORE_DEREF", name)
    elif name in argument_names(emit.capture.code):  # cells of other variables are empty at entry
        emit.op("DELETE_DEREF", name)
