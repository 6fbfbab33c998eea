"""Building, extending and unpacking containers."""

from __future__ import annotations

from typing import Any

from torchdynamo._native import type_name
from torchdynamo.bytecode.instruction import Instruction
from torchdynamo.capture.frame import Frame
from torchdynamo.capture.interpreter import op
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.iteration import UNPACKED, require_iterable
from torchdynamo.capture.vm.lookup import guarded_lookup
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.core.value import ABSENT, NONE, Known, Value


def build_count(arg: tuple[str, int]) -> int:
    kind, count = arg
    return {"map": 2 * count, "const_key_map": count + 1}.get(kind, count)


@op("BUILD", "*items -- box", pops=build_count)
def build(vm: Machine, frame: Frame, inst: Instruction, *items: Value) -> Value:
    return vm.build(inst.arg[0], items)


@op("APPEND", "*items --", pops=lambda arg: 2 if arg[0] == "map" else 1)
def append(vm: Machine, frame: Frame, inst: Instruction, *items: Value) -> None:
    kind, depth = inst.arg
    box = frame.stack[-depth]
    if kind == "map":
        vm.setitem(box, *items)
    else:
        vm.call_method(box, "append" if kind == "list" else "add", *items)


@op("EXTEND", "items --")
def extend(vm: Machine, frame: Frame, inst: Instruction, items: Value) -> None:
    kind, depth = inst.arg
    box = frame.stack[-depth]
    if kind == "list":
        require_iterable(vm, items, "Value after * must be an iterable, not {}")
        vm.call_method(box, "extend", items)
    elif kind == "dict_merge":
        below = [value for value in frame.stack[-depth - 3 : -depth - 1] if value is not ABSENT]
        merge_keywords(vm, below[-1], box, items)
    else:
        if kind == "dict_update" and not is_mapping(vm, items):
            raise vm.error(TypeError, f"{type_name(items.pytype)!r} object is not a mapping")
        vm.call_method(box, "update", items)


def is_mapping(vm: Machine, value: Value) -> bool:
    """Return whether `**value` finds keys. Attributes of the object itself are asked for last: that may run code."""
    known = issubclass(value.pytype, dict) or guarded_lookup(vm, value.pytype, "keys") is not MISSING
    return known or vm.has_attribute(value, "keys") is not None


def merge_keywords(vm: Machine, fn: Value, box: Value, items: Value) -> None:
    """Merge a mapping into the keywords of `fn(**items)`, where each key may come only once."""
    if not is_mapping(vm, items):
        text = f"argument after ** must be a mapping, not {type_name(items.pytype)}"
        raise vm.error(TypeError, f"{called(vm, fn)} {text}")
    for key, value in vm.dict_items(items):
        if vm.contains(box, key):
            text = f"got multiple values for keyword argument {vm.known(key, 'keyword')!r}"
            raise vm.error(TypeError, f"{called(vm, fn)} {text}")
        vm.setitem(box, key, value)


def called(vm: Machine, fn: Value) -> str:
    """Return how Python names a callable in the TypeError for keywords that do not fit."""
    name = vm.has_attribute(fn, "__qualname__")
    if name is None:
        return str(vm.known(vm.call(Known(str), [fn], {}), "name"))
    module = vm.concrete(vm.has_attribute(fn, "__module__") or NONE)
    return f"{f'{module}.' if module not in (None, 'builtins') else ''}{vm.known(name, 'name')}()"


@op("LIST_TO_TUPLE", "items -- tuple")
def list_to_tuple(vm: Machine, frame: Frame, inst: Instruction, items: Value) -> Value:
    return vm.make_tuple(list(vm.iterate(items)))


@op("UNPACK", "box -- *items")
def unpack(vm: Machine, frame: Frame, inst: Instruction, box: Value) -> Any:
    return vm.unpack(box, inst.arg)[::-1]


@op("UNPACK_EX", "box -- *items")
def unpack_ex(vm: Machine, frame: Frame, inst: Instruction, box: Value) -> Any:
    before, after = inst.arg
    require_iterable(vm, box, UNPACKED)
    items = list(vm.iterate(box))
    if len(items) < before + after:
        wanted = before + after
        raise vm.error(ValueError, f"not enough values to unpack (expected at least {wanted}, got {len(items)})")
    middle = vm.new(list, items[before : len(items) - after])
    return [*items[len(items) - after :][::-1], middle, *items[:before][::-1]]
