"""The match statement: is it a mapping, a sequence, of this class; its keys, its attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchdynamo.bytecode.instruction import Instruction
from torchdynamo.capture.frame import Frame
from torchdynamo.capture.interpreter import op
from torchdynamo.capture.value import FALSE, NONE, TRUE, Known, Value, boolean

if TYPE_CHECKING:
    from torchdynamo.capture.machine import Machine

SEQUENCE, MAPPING = 1 << 5, 1 << 6  # Py_TPFLAGS_SEQUENCE, Py_TPFLAGS_MAPPING
# A pattern like `int(x)` with one position: what it matches is the subject itself.
ITSELF = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)


@op("MATCH_MAPPING", "-- answer")
def match_mapping(vm: Machine, frame: Frame, inst: Instruction) -> Value:
    return boolean(bool(frame.stack[-1].pytype.__flags__ & MAPPING))


@op("MATCH_SEQUENCE", "-- answer")
def match_sequence(vm: Machine, frame: Frame, inst: Instruction) -> Value:
    return boolean(bool(frame.stack[-1].pytype.__flags__ & SEQUENCE))


@op("MATCH_KEYS", "-- values")
def match_keys(vm: Machine, frame: Frame, inst: Instruction) -> Value:
    return values_under(vm, frame.stack[-2], frame.stack[-1])


@op("MATCH_KEYS_BOOL", "-- values answer")
def match_keys_bool(vm: Machine, frame: Frame, inst: Instruction) -> Any:
    values = values_under(vm, frame.stack[-2], frame.stack[-1])
    return values, boolean(values is not NONE)


def values_under(vm: Machine, subject: Value, keys: Value) -> Value:
    """A tuple of the items, or None where a key is missing."""
    found = []
    for key in vm.iterate(keys):
        if not vm.contains(subject, key):
            return NONE
        found.append(vm.getitem(subject, key))
    return vm.make_tuple(found)


@op("MATCH_CLASS", "subject cls names -- values")
def match_class(vm: Machine, frame: Frame, inst: Instruction, subject: Value, cls: Value, names: Value) -> Value:
    return attributes_of(vm, subject, cls, inst.arg, vm.known(names, "names"))


@op("MATCH_CLASS_BOOL", "subject cls names -- values answer")
def match_class_bool(vm: Machine, frame: Frame, inst: Instruction, subject: Value, cls: Value, names: Value) -> Any:
    values = attributes_of(vm, subject, cls, inst.arg, vm.known(names, "names"))
    return (subject, FALSE) if values is NONE else (values, TRUE)


def attributes_of(vm: Machine, subject: Value, cls: Value, positions: int, names: tuple[str, ...]) -> Value:
    """A tuple of the attributes the pattern names, or None where it does not match."""
    if not vm.truth(vm.call(Known(isinstance), [subject, cls], {})):
        return NONE
    real: type = vm.known(cls, "class")
    wanted: list[str] = []
    found: list[Value] = []
    if positions:
        given = vm.has_attribute(cls, "__match_args__")
        if given is None and issubclass(real, ITSELF):
            given, found, positions = Known(()), [subject], positions - 1
        if given is not None and given.pytype is not tuple:
            raise vm.error(TypeError, f"{real.__name__}.__match_args__ must be a tuple (got {given.pytype.__name__})")
        order = vm.known(given, "names") if given is not None else ()
        if len(order) < positions:
            raise vm.error(
                TypeError, f"{real.__name__}() accepts {len(order)} positional sub-patterns ({positions} given)"
            )
        wanted += order[:positions]
    for name in (*wanted, *names):
        value = vm.has_attribute(subject, name)
        if value is None:
            return NONE
        found.append(value)
    return vm.make_tuple(found)
