"""What the frame did to objects that existed, done for real: contents at entry against contents at exit."""

from __future__ import annotations

import types

from torchdynamo.bytecode.assemble import argument_names
from torchdynamo.bytecode.instruction import Instruction, Item
from torchdynamo.capture import lookup, model, module_writes
from torchdynamo.capture.capture import Capture
from torchdynamo.capture.heap import Entity
from torchdynamo.capture.signals import Restart
from torchdynamo.capture.source import local
from torchdynamo.capture.value import ABSENT, Graphed, Known, Value, is_none
from torchdynamo.codegen.emit import Emitter


def begin(emit: Emitter, capture: Capture) -> list[Item]:
    """What is done before the graph runs: the memory of gradients that are let go of is free while it does."""
    kept, emit.items = emit.items, []
    for tensor, attrs in capture.machine.tensor_attrs.values():
        for name, value in attrs.items():
            if is_let_go(tensor, name, value):
                store_on_tensor(emit, tensor, name, value)
    made, emit.items = emit.items, kept
    return made


def is_let_go(tensor: Graphed, name: str, value: Value) -> bool:
    return name == "grad" and tensor.source is not None and is_none(value)


def replay(emit: Emitter, capture: Capture, begun: bool) -> None:
    """All effects, in the order the objects were met; values are what they were at the end."""
    vm = capture.machine
    for entity in capture.changed:
        if entity.touched:
            row = model.for_type(model.REPLAY, entity.pytype)
            if row is None:
                raise Restart(-1)
            row(emit, entity)
        for name in vm.set_again.get(entity.ref, ()):
            if entity.attrs[name] is not ABSENT:
                write_attribute(emit, entity, name, ABSENT)  # else it would keep its place
        for name, value in entity.attrs.items():
            write_attribute(emit, entity, name, value)
    for tensor, attrs in vm.tensor_attrs.values():
        for name, value in attrs.items():
            if not (begun and is_let_go(tensor, name, value)):
                store_on_tensor(emit, tensor, name, value)
    for (space_id, name), value in vm.globals_written.items():
        space = vm.written_spaces[space_id]
        if module_writes.is_entry(vm, space, name, value):
            continue
        emit.value(value)
        if space.real is vm.roots.globals:
            emit.op("STORE_GLOBAL", name)
        else:
            assert space.source is not None
            emit.source(space.source)
            emit.const(name)
            emit.op("SETITEM")
    for (cls, name), value in vm.class_written.items():
        if id(cls) in vm.made_classes:
            continue
        emit.value(value)
        emit.const(cls)
        emit.op("STORE_ATTR", name)
    for write in vm.later:
        write(emit)
    for (fn, _), args in vm.exit_state.items():
        if vm.entry_state[fn, _] != args:
            emit.function(fn)
            for arg in args:
                emit.value(Known(arg))
            emit.op("CALL", (len(args), ()))
            emit.op("POP")


def write_attribute(emit: Emitter, entity: Entity, name: str, value: Value) -> None:
    """One attribute, past any `__setattr__` of the user's: that has been run symbolically."""
    plain = entity.pytype is types.CellType or lookup.class_lookup(entity.pytype, "__setattr__") is object.__setattr__
    if value is ABSENT:
        emit.function(object.__delattr__)
        emit.local(entity)
        emit.const(name)
        emit.op("CALL", (2, ()))
        emit.op("POP")
    elif plain:
        emit.value(value)
        emit.local(entity)
        emit.op("STORE_ATTR", name)
    else:
        emit.function(object.__setattr__)
        emit.local(entity)
        emit.const(name)
        emit.value(value)
        emit.op("CALL", (3, ()))
        emit.op("POP")


def store_on_tensor(emit: Emitter, tensor: Graphed, name: str, value: Value) -> None:
    """What the frame stored on a tensor, or took off one that had it at entry."""
    if value is not ABSENT:
        emit.value(value)
        emit.value(tensor)
        emit.op("STORE_ATTR", name)
    elif name in getattr(emit.capture.machine.input_objects.get(tensor.node), "__dict__", ()):
        emit.value(tensor)
        emit.op("DELETE_ATTR", name)


def root_cells(emit: Emitter, capture: Capture) -> None:
    """Cells of the frame's own variables get their contents: inner functions and the continuation see them."""
    for name, cell in capture.cells.items():
        root_cell(emit, name, capture.machine.heap[cell])  # type: ignore[index]


def root_cells_that_stay(emit: Emitter, capture: Capture) -> None:
    """Where the frame returns: only those of functions that were made again."""
    done: set[str] = set()
    while True:
        loaded = {item.arg for item in emit.items if isinstance(item, Instruction) and item.op == "LOAD_CELL"}
        left = [name for name in capture.cells if name in loaded and name not in done]
        if not left:
            return
        done.update(left)
        for name in left:
            root_cell(emit, name, capture.machine.heap[capture.cells[name]])  # type: ignore[index]


def root_cell(emit: Emitter, name: str, entity: Entity) -> None:
    value = entity.attrs.get("cell_contents")
    if entity.note != name or value is None or getattr(value, "source", None) is local(name):
        return
    if value is not ABSENT:
        emit.value(value)
        emit.op("STORE_DEREF", name)
    elif name in argument_names(emit.capture.code):  # others are empty at entry
        emit.op("DELETE_DEREF", name)
