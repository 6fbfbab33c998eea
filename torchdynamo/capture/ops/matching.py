"""The match statement: is it a mapping, a sequence, of this class; its keys, its attributes."""

from __future__ import annotations

from typing import Any

from torchdynamo._native import collection_flags, type_name
from torchdynamo.bytecode.instruction import Instruction
from torchdynamo.capture.frame import Frame
from torchdynamo.capture.interpreter import op
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import is_open
from torchdynamo.capture.vm.wrap import class_source
from torchdynamo.core.value import FALSE, NONE, TRUE, Known, Value, boolean

SEQUENCE, MAPPING = 1 << 5, 1 << 6  # Py_TPFLAGS_SEQUENCE, Py_TPFLAGS_MAPPING
ITSELF = 1 << 22  # Py_TPFLAGS_MATCH_SELF: a pattern like `int(x)` matches the subject itself


@op("MATCH_MAPPING", "-- answer")
def match_mapping(vm: Machine, frame: Frame, inst: Instruction) -> Value:
    return boolean(collection_of(vm, frame.stack[-1]) == MAPPING)


@op("MATCH_SEQUENCE", "-- answer")
def match_sequence(vm: Machine, frame: Frame, inst: Instruction) -> Value:
    return boolean(collection_of(vm, frame.stack[-1]) == SEQUENCE)


def collection_of(vm: Machine, subject: Value) -> int:
    """Return the flag that says whether patterns take an object for a sequence or a mapping, and guard it."""
    cls = subject.pytype
    flags = collection_flags(cls)
    if is_open(cls) and id(cls) not in vm.made_classes:
        vm.guard(class_source(cls), "COLLECTION", flags)
    return flags


@op("MATCH_KEYS", "-- values")
def match_keys(vm: Machine, frame: Frame, inst: Instruction) -> Value:
    return values_under(vm, frame.stack[-2], frame.stack[-1])


@op("MATCH_KEYS_BOOL", "-- values answer")
def match_keys_bool(vm: Machine, frame: Frame, inst: Instruction) -> Any:
    values = values_under(vm, frame.stack[-2], frame.stack[-1])
    return values, boolean(values is not NONE)


@op("COPY_DICT_WITHOUT_KEYS", "subject keys -- subject rest")
def rest_of_mapping(vm: Machine, frame: Frame, inst: Instruction, subject: Value, keys: Value) -> Any:
    """Copy what a pattern `{"key": value, **rest}` has not matched; later versions do it with other instructions."""
    rest = vm.call(Known(dict), [], {})
    vm.call_method(rest, "update", subject)
    for key in vm.iterate(keys):
        vm.delitem(rest, key)
    return subject, rest


def values_under(vm: Machine, subject: Value, keys: Value) -> Value:
    """Return a tuple of the items under these keys, or None if one is missing. The mapping is asked by its `get`."""
    missing = vm.new(object)
    seen, found = set(), []
    for key in vm.iterate(keys):
        same = vm.hkey(key)
        if same in seen:
            text = vm.known(vm.call(Known(repr), [key], {}), "key")
            raise vm.error(ValueError, f"mapping pattern checks duplicate key ({text})")
        seen.add(same)
        value = vm.call_method(subject, "get", key, missing)
        if vm.identical(value, missing):
            return NONE
        found.append(value)
    return vm.make_tuple(found)


@op("MATCH_CLASS", "subject cls names -- values")
def match_class(vm: Machine, frame: Frame, inst: Instruction, subject: Value, cls: Value, names: Value) -> Value:
    return attributes_of(vm, subject, cls, inst.arg, vm.known(names, "names"))


@op("MATCH_CLASS_BOOL", "subject cls names -- values answer")
def match_class_bool(vm: Machine, frame: Frame, inst: Instruction, subject: Value, cls: Value, names: Value) -> Any:
    values = attributes_of(vm, subject, cls, inst.arg, vm.known(names, "names"))
    return (subject, FALSE) if values is NONE else (values, TRUE)


def attributes_of(vm: Machine, subject: Value, cls: Value, positions: int, names: tuple[str, ...]) -> Value:
    """Return a tuple of the attributes that a class pattern names, or None where it does not match."""
    if not issubclass(cls.pytype, type):
        raise vm.error(TypeError, "called match pattern must be a class")
    if not vm.truth(vm.call(Known(isinstance), [subject, cls], {})):
        return NONE
    real: type = vm.known(cls, "class")
    given = vm.has_attribute(cls, "__match_args__") if positions else None
    if given is not None and given.pytype is not tuple:
        raise vm.error(TypeError, f"{type_name(real)}.__match_args__ must be a tuple (got {type_name(given.pytype)})")
    order = [] if given is None else list(vm.iterate(given))
    itself = positions > 0 and given is None and bool(real.__flags__ & ITSELF)
    allowed = 1 if itself else len(order)
    if positions > allowed:
        plural = "" if allowed == 1 else "s"
        raise vm.error(
            TypeError, f"{real.__name__}() accepts {allowed} positional sub-pattern{plural} ({positions} given)"
        )
    found: list[Value] = [subject] if itself else []
    seen: set[str] = set()
    for each in (*order[:positions], *map(Known, names)):
        if each.pytype is not str:
            raise vm.error(TypeError, f"__match_args__ elements must be strings (got {type_name(each.pytype)})")
        name: str = vm.known(each, "name")
        if name in seen:
            raise vm.error(TypeError, f"{type_name(real)}() got multiple sub-patterns for attribute {name!r}")
        seen.add(name)
        value = vm.has_attribute(subject, name)
        if value is None:
            return NONE
        found.append(value)
    return vm.make_tuple(found)
