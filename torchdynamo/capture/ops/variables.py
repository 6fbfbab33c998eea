"""Locals, globals, cells."""

from __future__ import annotations

import builtins
from typing import Any

from torchdynamo.bytecode import versions
from torchdynamo.bytecode.bound import unbound_text
from torchdynamo.bytecode.instruction import Instruction
from torchdynamo.capture.frame import Frame
from torchdynamo.capture.interpreter import op
from torchdynamo.capture.vm import finalizers, namespaces
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.core.signals import Break, Raised
from torchdynamo.core.source import Source
from torchdynamo.core.value import ABSENT, Known, Lazy, Value

IMPORT = builtins.__import__


@op("LOAD_FAST", "-- value")
def load_fast(vm: Machine, frame: Frame, inst: Instruction) -> Value:
    value = frame.locals.get(inst.arg)
    if value is None:
        raise unbound(vm, inst.arg)
    if value.__class__ is Lazy:
        value = frame.locals[inst.arg] = vm.look(value)
    return value


@op("LOAD_FAST_AND_CLEAR", "-- value")
def load_fast_and_clear(vm: Machine, frame: Frame, inst: Instruction) -> Value:
    return frame.locals.pop(inst.arg, ABSENT)


@op("STORE_FAST", "value --")
def store_fast(vm: Machine, frame: Frame, inst: Instruction, value: Value) -> None:
    if value is ABSENT:
        frame.locals.pop(inst.arg, None)
    else:
        frame.locals[inst.arg] = value


@op("DELETE_FAST", "--")
def delete_fast(vm: Machine, frame: Frame, inst: Instruction) -> None:
    gone = frame.locals.pop(inst.arg, None)
    if frame.root and gone is not None:
        finalizers.let_go(vm, gone)
    if gone is None:
        raise unbound(vm, inst.arg)


def unbound(vm: Machine, name: str) -> Raised:
    return vm.error(UnboundLocalError, unbound_text(name))


@op("LOAD_GLOBAL", "-- value")
def load_global(vm: Machine, frame: Frame, inst: Instruction) -> Value:
    name, space = inst.arg, frame.globals
    if vm.effects.wrote_names:
        value = vm.effects.written(space.real, name)
        if value is not None and value is not ABSENT:
            return value
    if space.source is None:
        found = space.real.get(name, space.builtins.get(name, MISSING))
        value = None if found is MISSING else Known(found)
    else:
        value = namespaces.at_entry(vm, space.real, space.source, name)
        value = value or namespaces.at_entry(vm, space.builtins, space.builtins_source, name)
    if value is None:
        raise vm.name_error(name, f"name {name!r} is not defined")
    return value


@op("STORE_GLOBAL", "value --")
def store_global(vm: Machine, frame: Frame, inst: Instruction, value: Value) -> None:
    if frame.globals.source is None:
        raise Break("side effect not replayable", what=f"global {inst.arg}")
    namespaces.write(vm, namespaces.of_globals(frame.globals.real, frame.globals.source), inst.arg, value)


@op("DELETE_GLOBAL", "--")
def delete_global(vm: Machine, frame: Frame, inst: Instruction) -> None:
    raise Break("side effect not replayable", what=f"del {inst.arg}")


def cell_of(vm: Machine, frame: Frame, name: str) -> Any:
    """Return the cell of a variable; one that inner functions share is made when first needed."""
    cell = frame.cells.get(name)
    if cell is None:
        cell = frame.cells[name] = vm.new_cell(frame, name)
    return cell


@op("LOAD_CELL", "-- cell")
def load_cell(vm: Machine, frame: Frame, inst: Instruction) -> Value:
    cell: Value = cell_of(vm, frame, inst.arg)
    return cell


@op("LOAD_DEREF", "-- value")
def load_deref(vm: Machine, frame: Frame, inst: Instruction) -> Value:
    value = vm.cell_get(cell_of(vm, frame, inst.arg))
    if value is None:
        raise unbound_cell(vm, frame, inst.arg)
    return value


def unbound_cell(vm: Machine, frame: Frame, name: str) -> Raised:
    """Return the NameError for a cell without contents, as the function that owns it or an inner one sees it."""
    if name in frame.raw.co_cellvars:
        return unbound(vm, name)
    return vm.name_error(name, versions.UNBOUND_FREE.format(name))


@op("STORE_DEREF", "value --")
def store_deref(vm: Machine, frame: Frame, inst: Instruction, value: Value) -> None:
    vm.cell_set(cell_of(vm, frame, inst.arg), value)


@op("DELETE_DEREF", "--")
def delete_deref(vm: Machine, frame: Frame, inst: Instruction) -> None:
    cell = cell_of(vm, frame, inst.arg)
    if vm.cell_get(cell) is None:
        raise unbound_cell(vm, frame, inst.arg)
    vm.cell_set(cell, ABSENT)


@op("IMPORT_NAME", "level names -- module")
def import_name(vm: Machine, frame: Frame, inst: Instruction, level: Value, names: Value) -> Value:
    space = frame.globals
    if space.source is not None:
        if space.builtins.get("__import__") is not IMPORT:
            raise Break("import in frame", name=inst.arg)
        vm.guard(Source("key", space.builtins_source, "__import__"), "FUNCTION_MATCH", IMPORT)
    return vm.import_module(frame, inst.arg, vm.known(level, "level"), names)


@op("IMPORT_FROM", "-- value")
def import_from(vm: Machine, frame: Frame, inst: Instruction) -> Value:
    value = vm.has_attribute(frame.stack[-1], inst.arg)
    if value is None:
        raise Break("import in frame", name=inst.arg)
    return value


@op("MAKE_CELL", "--")
def make_cell(vm: Machine, frame: Frame, inst: Instruction) -> None:
    """Make the cell of a variable in an inlined comprehension that inner functions share."""
    if frame.root or inst.arg in frame.cells:
        raise Break("unsupported instruction", name=inst.op)
    frame.cells[inst.arg] = vm.new_cell(frame, inst.arg)
