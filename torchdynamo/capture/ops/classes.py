"""The body of a class statement: names go into a namespace first, and are looked for there first."""

from __future__ import annotations

from torchdynamo.bytecode.instruction import Instruction
from torchdynamo.capture.frame import Frame
from torchdynamo.capture.interpreter import op
from torchdynamo.capture.ops.variables import delete_global, load_deref, load_global, store_global
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.wrap import wrap
from torchdynamo.core.source import Source
from torchdynamo.core.value import NONE, Known, Value


@op("LOAD_BUILD_CLASS", "-- builder")
def load_build_class(vm: Machine, frame: Frame, inst: Instruction) -> Value:
    space = frame.globals
    made = space.builtins["__build_class__"]
    return wrap(vm, made, Source("key", space.builtins_source, "__build_class__")) if space.source else Known(made)


def in_body(frame: Frame, name: str) -> Value | None:
    return frame.namespace.get(name) if frame.namespace is not None else None


@op("LOAD_NAME", "-- value")
def load_name(vm: Machine, frame: Frame, inst: Instruction) -> Value:
    return in_body(frame, inst.arg) or load_global(vm, frame, inst)


@op("STORE_NAME", "value --")
def store_name(vm: Machine, frame: Frame, inst: Instruction, value: Value) -> None:
    if frame.namespace is None:
        store_global(vm, frame, inst, value)
    else:
        frame.again |= inst.arg in frame.namespace
        frame.namespace[inst.arg] = value


@op("DELETE_NAME", "--")
def delete_name(vm: Machine, frame: Frame, inst: Instruction) -> None:
    if frame.namespace is None:
        delete_global(vm, frame, inst)
    elif frame.namespace.pop(inst.arg, None) is not None:
        frame.again = True
    else:
        raise vm.name_error(inst.arg, f"name {inst.arg!r} is not defined")


@op("LOAD_CLASSDEREF", "-- value")
def load_class_deref(vm: Machine, frame: Frame, inst: Instruction) -> Value:
    return in_body(frame, inst.arg) or load_deref(vm, frame, inst)


@op("LOAD_LOCALS", "-- namespace")
def load_locals(vm: Machine, frame: Frame, inst: Instruction) -> Value:
    """Push None in place of a class body's namespace: the instructions that use it know where to look."""
    return NONE


@op("LOAD_FROM_DICT_OR_DEREF", "namespace -- value")
def load_from_dict_or_deref(vm: Machine, frame: Frame, inst: Instruction, namespace: Value) -> Value:
    return load_class_deref(vm, frame, inst)


@op("LOAD_FROM_DICT_OR_GLOBALS", "namespace -- value")
def load_from_dict_or_globals(vm: Machine, frame: Frame, inst: Instruction, namespace: Value) -> Value:
    return load_name(vm, frame, inst)


@op("SETUP_ANNOTATIONS", "--")
def setup_annotations(vm: Machine, frame: Frame, inst: Instruction) -> None:
    if frame.namespace is not None:
        frame.namespace.setdefault("__annotations__", vm.make_dict(()))
