"""Calls."""

from __future__ import annotations

from typing import Any

from torchdynamo._native import type_name
from torchdynamo.bytecode import versions
from torchdynamo.bytecode.instruction import Instruction
from torchdynamo.capture.frame import Frame
from torchdynamo.capture.interpreter import op
from torchdynamo.capture.ops.containers import called
from torchdynamo.capture.vm.iteration import collect, is_iterable
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.core.value import ABSENT, Value


@op("CALL", "*stack -- result", pops=lambda arg: arg[0] + 2)
def call(vm: Machine, frame: Frame, inst: Instruction, first: Any, second: Any, *args: Value) -> Value:
    """Execute CALL. Below the arguments are a callable and NULL in the version's order, or a method and its self."""
    if versions.NULL_FIRST and first is ABSENT:
        return call_split(vm, second, list(args), inst.arg[1])
    if not versions.NULL_FIRST and second is ABSENT:
        return call_split(vm, first, list(args), inst.arg[1])
    return call_split(vm, first, [second, *args], inst.arg[1])


@op("CALL_FUNCTION", "*stack -- result", pops=lambda arg: arg[0] + 1)
def call_function(vm: Machine, frame: Frame, inst: Instruction, fn: Value, *args: Value) -> Value:
    return call_split(vm, fn, list(args), inst.arg[1])


def call_split(vm: Machine, fn: Value, args: list[Value], names: tuple[str, ...]) -> Value:
    vm.direct = True
    if not names:
        return vm.call(fn, args, {})
    split = len(args) - len(names)
    return vm.call(fn, args[:split], dict(zip(names, args[split:])))


@op("CALL_EX", "*stack -- result", pops=lambda has_kwargs: (3 if versions.GLOBAL_HAS_FLAG else 2) + bool(has_kwargs))
def call_ex(vm: Machine, frame: Frame, inst: Instruction, *stack: Any) -> Value:
    parts = [value for value in stack if value is not ABSENT]
    fn, given = parts[:2]
    if not is_iterable(vm, given):
        text = f"argument after * must be an iterable, not {type_name(given.pytype)}"
        raise vm.error(TypeError, f"{called(vm, fn)} {text}")
    args = collect(vm, given, tuple)
    kwargs: dict[str, Value] = {}
    if inst.arg:
        for key, value in vm.dict_items(parts[2]):
            name = vm.known(key, "keyword")
            if not isinstance(name, str):
                raise vm.error(TypeError, "keywords must be strings")
            kwargs[name] = value
    vm.direct = True
    return vm.call(fn, args, kwargs)
