"""Operators over values: the special methods Python would call, in the order it would call them."""

from __future__ import annotations

import collections
import operator
import sys
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchdynamo._native import type_name
from torchdynamo.capture.torch import numpy_arrays, numpy_numbers, overrides, symbols, tensor_methods
from torchdynamo.capture.vm import enums, model, process_settings
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.iteration import is_iterable
from torchdynamo.capture.vm.lookup import (
    guard_metaclass,
    guarded_lookup,
    guarded_slot,
    has_python_operators,
    is_class,
    is_plain_constant,
)
from torchdynamo.capture.vm.refused_operands import refused_operands
from torchdynamo.capture.vm.sameness import identical
from torchdynamo.capture.vm.scalar_subclasses import indexed, plain_seen_by
from torchdynamo.capture.vm.wrap import (
    CONSTANTS,
    class_attribute,
    holds_nan,
    identity_of,
    lift,
    refuse_unseen,
)
from torchdynamo.core.policy import PURE_TYPES
from torchdynamo.core.signals import Break, Raised
from torchdynamo.core.value import Known, Object, Symbol, TensorNode, Value, boolean

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

# operator -> (function, method, reflected method)
BINARY: dict[str, tuple[Callable[[Any, Any], Any], str, str]] = {
    "+": (operator.add, "__add__", "__radd__"),
    "-": (operator.sub, "__sub__", "__rsub__"),
    "*": (operator.mul, "__mul__", "__rmul__"),
    "/": (operator.truediv, "__truediv__", "__rtruediv__"),
    "//": (operator.floordiv, "__floordiv__", "__rfloordiv__"),
    "%": (operator.mod, "__mod__", "__rmod__"),
    "@": (operator.matmul, "__matmul__", "__rmatmul__"),
    "**": (operator.pow, "__pow__", "__rpow__"),
    "&": (operator.and_, "__and__", "__rand__"),
    "|": (operator.or_, "__or__", "__ror__"),
    "^": (operator.xor, "__xor__", "__rxor__"),
    "<<": (operator.lshift, "__lshift__", "__rlshift__"),
    ">>": (operator.rshift, "__rshift__", "__rrshift__"),
    "<": (operator.lt, "__lt__", "__gt__"),
    "<=": (operator.le, "__le__", "__ge__"),
    ">": (operator.gt, "__gt__", "__lt__"),
    ">=": (operator.ge, "__ge__", "__le__"),
    "==": (operator.eq, "__eq__", "__eq__"),
    "!=": (operator.ne, "__ne__", "__ne__"),
}
INPLACE: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "+=": (operator.iadd, "__iadd__"),
    "-=": (operator.isub, "__isub__"),
    "*=": (operator.imul, "__imul__"),
    "/=": (operator.itruediv, "__itruediv__"),
    "//=": (operator.ifloordiv, "__ifloordiv__"),
    "%=": (operator.imod, "__imod__"),
    "@=": (operator.imatmul, "__imatmul__"),
    "**=": (operator.ipow, "__ipow__"),
    "&=": (operator.iand, "__iand__"),
    "|=": (operator.ior, "__ior__"),
    "^=": (operator.ixor, "__ixor__"),
    "<<=": (operator.ilshift, "__ilshift__"),
    ">>=": (operator.irshift, "__irshift__"),
}
UNARY: dict[str, tuple[Callable[[Any], Any], str]] = {
    "-": (operator.neg, "__neg__"),
    "+": (operator.pos, "__pos__"),
    "~": (operator.invert, "__invert__"),
}
IN_GRAPH = (TensorNode, Symbol)
# The methods with which a type may leave an operator to the other side; `%` writes any object into a string.
DIVIDING = ("__divmod__", "__rdivmod__")
YIELDING = frozenset((*(name for _, *names in BINARY.values() for name in names), *DIVIDING)) - {"__mod__"}


def special(vm: Machine, obj: Value, name: str, *args: Value) -> Value | None:
    """Return `type(obj).name(obj, *args)` as an operator calls it; None where the type has no such method."""
    if obj.__class__ is Symbol:
        obj = symbols.settled(vm, obj)
    refuse_unseen(obj, *args)
    cls = obj.pytype
    if obj.__class__ is Known and is_class(obj.obj):
        guard_metaclass(vm, obj.obj)
    slot = guarded_slot(vm, cls, name)
    if slot[0] == "model":
        return slot[1](vm, obj, *args)
    if slot[0] == "missing":
        return None
    if slot[1][1] is None:
        if name in ("__hash__", "__iter__"):
            return None
        if name == "__contains__":
            raise vm.error(TypeError, f"{type_name(cls)!r} object is not a container")
        raise vm.error(TypeError, "'NoneType' object is not callable")
    found = slot[1][1]
    if type(found) is types.FunctionType:
        if obj.__class__ is Known and found.__module__ in model.LIBRARIES:
            enums.guard_members(vm, obj.obj)
            return vm.run_pure(found, [obj, *args], {})
        return vm.call(Known(found, class_attribute(vm, cls, name)), [obj, *args], {})
    if slot[1][0] is object and name == "__ne__":
        return inverted(vm, special(vm, obj, "__eq__", *args))
    if slot[1][0] is object and (obj.__class__ is not Known or name == "__eq__"):
        return None
    if obj.__class__ is Known:
        if cls in PURE_TYPES and name in YIELDING and any(is_foreign(arg) for arg in args):
            return Known(NotImplemented)
        return vm.run_pure(found, [obj, *args], {})
    known = plain_seen_by(vm, name, obj)
    if known is not None:
        yields = name in YIELDING and any(map(is_foreign, args))
        return Known(NotImplemented) if yields else vm.run_pure(found, [known, *args], {})
    plain = vm.concrete(obj) if cls in PURE_TYPES else None
    if plain is not None and all(vm.concrete(arg) is not None for arg in args):
        return vm.run_pure(found, [obj, *args], {})
    raise Break("unsupported method", name=name, type=cls.__name__)


def inverted(vm: Machine, equal: Value | None) -> Value | None:
    """Return the result of `object.__ne__`, given that of `__eq__`."""
    return equal if equal is None or is_not_implemented(equal) else unary(vm, "not", equal)


def inverting(equal: Callable[[Machine, Any, Value], Value]) -> Callable[[Machine, Any, Value], Value | None]:
    """Return the row of `__ne__`, given that of `__eq__`."""
    return lambda vm, self, other: inverted(vm, equal(vm, self, other))


def is_foreign(value: Value) -> bool:
    """Return whether operators of Python's own numbers and strings leave this operand to its class."""
    if numpy_arrays.is_numpys(value):
        return True
    return value.__class__ is Object and all(
        model.is_open(base) or base in (object, list, dict, collections.deque) for base in value.pytype.__mro__
    )


def is_unknown_to_torch(vm: Machine, value: Value) -> bool:
    """Return whether torch's operators do not know objects of this class."""
    return is_foreign(value) and not numpy_arrays.is_numpys(value) and not overrides.is_other(vm, value)


def binary(vm: Machine, op: str, a: Value, b: Value) -> Value:
    """Return `a op b`, in place or not, comparisons included."""
    inplace, declined = INPLACE.get(op), False  # by torch, which leaves such an operand to its class
    fn = inplace[0] if inplace else BINARY[op][0]
    if (a.__class__ is Object or b.__class__ is Object) and numpy_numbers.among(vm, a, b):
        plainly = op[:-1] if inplace else op
        answer = numpy_numbers.binary(vm, plainly, BINARY[plainly][0], a, b)
        if answer is not None:
            return answer
    if numpy_arrays.meets_tensor(a, b):
        return numpy_arrays.with_tensor(vm, fn, a, b)
    if a.__class__ in IN_GRAPH or b.__class__ in IN_GRAPH:
        if a.__class__ is not TensorNode and b.__class__ is not TensorNode:
            op = op[:-1] if inplace else op
            return symbols.binary(vm, op, BINARY[op][0], a, b)
        if a.__class__ is not TensorNode and inplace:  # a number is not changed in place
            fn = BINARY[op[:-1]][0]
        if a.pytype in (str, bytes):
            raise Break("data-dependent value", name="format")
        names = (inplace[1], BINARY[op[:-1]][1]) if inplace else (BINARY[op][1],)
        answer = tensor_methods.of_operator(vm, names, BINARY[op[:-1] if inplace else op][2], a, b)
        if answer is not None:
            return answer
        declined = (a.__class__ is Object and is_unknown_to_torch(vm, a)) or (
            b.__class__ is Object and is_unknown_to_torch(vm, b)
        )
        if not declined and (a.__class__ is not Object or not vm.overrides(a, op)):
            try:
                return vm.emit("call_function", fn, [a, b], {})
            except Raised as raised:  # by a `__torch_function__`: torch leaves the operator to the other side then, too
                if not issubclass(raised.value.pytype, TypeError):
                    raise
                declined = True
    if a.__class__ is Known and b.__class__ is Known and is_plain_constant(a) and is_plain_constant(b):
        return constant_binary(vm, fn, a, b)
    if b.__class__ is Object and issubclass(a.pytype, SEQUENCES) and is_last_asked(vm, op, a.pytype, b.pytype):
        told = vm.special(b, BINARY[op[:-1] if inplace else op][2], a)
        answer = by_sequence(vm, op, a, b) if is_not_implemented(told) else told
        if answer is not None:
            return answer
        raise refused_operands(vm, BINARY[op[:-1] if inplace else op][0], a, b)
    if inplace:
        result = None if declined and a.__class__ is TensorNode else special(vm, a, inplace[1], b)
        if result is not None and not is_not_implemented(result):
            return result
        op = op[:-1]
    comparing = op in COMPARISONS
    result = by_sides(vm, BINARY[op][1:], a, b, comparing, declined)
    if result is not None:
        return result
    if op in ("==", "!="):
        same = identical(vm, a, b)
        return boolean(same if op == "==" else not same)
    if op == "*":
        for items, count in ((a, b), (b, a)):
            times = indexed(vm, count) if items.pytype in REPEATED else count
            if times is not count:
                return binary(vm, op, items, times)
    raise refused_operands(vm, fn, a, b)


def is_last_asked(vm: Machine, op: str, sequence: type, other: type) -> bool:
    """Return whether C asks a sequence for `sequence op other` after the other operand, of the program's.

    Sequences of C have no operators of numbers. Those of other classes come first, in place too.
    """
    if op not in ("+", "*", "+=", "*=") or sequence is other:
        return False
    method, reflected = BINARY[op.rstrip("=")][1:]
    own = (method, reflected, INPLACE[op][1]) if op in INPLACE else (method, reflected)
    return type(guarded_lookup(vm, other, reflected)) is types.FunctionType and not any(
        model.is_written_by_program(guarded_lookup(vm, sequence, name)) for name in own
    )


def by_sequence(vm: Machine, op: str, a: Value, b: Value) -> Value | None:
    """Return what a sequence of C answers itself; None if it refuses the other operand."""
    for name in ((INPLACE[op][1],) if op in INPLACE else ()) + (BINARY[op.rstrip("=")][1],):
        result = special(vm, a, name, b)
        if result is not None and not is_not_implemented(result):
            return result
    return None


SEQUENCES = (list, tuple, bytearray, collections.deque)


def by_sides(
    vm: Machine, names: tuple[str, str], a: Value, b: Value, comparing: bool = False, declined: bool = False
) -> Value | None:
    """Ask two operands in the order in which Python does; return None if neither answers.

    names: the methods of the left operand and of the right one. declined: whether torch leaves the operands to their
    classes.
    """
    method, reflected = names
    first = [(a, method, b), (b, reflected, a)]
    if b.pytype is a.pytype:
        first = first if comparing else first[:1]
    elif a.pytype in b.pytype.__mro__ and (comparing or overrides_method(vm, b.pytype, a.pytype, reflected)):
        first = first[::-1]
    for left, name, right in first:
        silent = declined and (left.__class__ is TensorNode or (left.__class__ is Known and left.pytype in PURE_TYPES))
        result = None if silent else special(vm, left, name, right)
        if result is not None and not is_not_implemented(result):
            return result
    return None


REPEATED = (str, bytes)  # whose repetition takes an object with `__index__`
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


def overrides_method(vm: Machine, cls: type, base: type, name: str) -> bool:
    """Return whether a class overrides the method of a base, whose operators go first otherwise."""
    return guarded_lookup(vm, cls, name) not in (guarded_lookup(vm, base, name), MISSING)


def constant_binary(vm: Machine, fn: Callable[[Any, Any], Any], a: Known, b: Known) -> Value:
    """Run an operator on two constants."""
    if type(a.obj) is tuple or type(b.obj) is tuple:  # which compares what is in it by identity first
        identity_of(vm, a)
        identity_of(vm, b)
    plain = type(a.obj) in PLAIN and type(b.obj) in PLAIN
    try:
        return lift(vm, fn(a.obj, b.obj) if plain else process_settings.run(vm, fn, (a.obj, b.obj), {}))
    except Break:
        raise
    except Exception as error:  # the user's expression raises
        raise vm.refused(error) from None


PLAIN = (int, float, bool, tuple, type(None))  # whose operators rest on no setting


def is_not_implemented(value: Value) -> bool:
    """Return whether a value is NotImplemented."""
    return value.__class__ is Known and value.obj is NotImplemented


def unary(vm: Machine, op: str, a: Value) -> Value:
    """Return `-a`, `+a`, `~a` or `not a`."""
    if op == "not":
        return symbols.negation(vm, a) if a.__class__ is Symbol else boolean(not truth(vm, a))
    fn, method = UNARY[op]
    if a.__class__ is Symbol:
        return symbols.unary(vm, op, a)
    if a.__class__ is TensorNode:
        return tensor_methods.answered(vm, a, method) or vm.emit("call_function", fn, [a], {})
    if a.__class__ is Known and not has_python_operators(a):
        return vm.run_pure(fn, [a], {})
    result = special(vm, a, method)
    if result is None:
        raise vm.error(TypeError, f"bad operand type for unary {op}: {type_name(a.pytype)!r}")
    return result


REFERENCE = weakref.ReferenceType


def compare(vm: Machine, op: str, a: Value, b: Value) -> Value:
    """Return the result of COMPARE: rich comparison, identity or membership."""
    if op in ("is", "is not"):
        if a.__class__ is Object and b.__class__ is Object and a.pytype is b.pytype is REFERENCE:
            return boolean(model.IDENTICAL[REFERENCE](vm, a, b) == (op == "is"))
        return boolean(identical(vm, a, b) == (op == "is"))
    if op == "in":
        return boolean(contains(vm, b, a))
    if op == "not in":
        return boolean(not contains(vm, b, a))
    return binary(vm, op, a, b)


def truth(vm: Machine, value: Value) -> bool:
    """Return `bool(value)`."""
    if value.__class__ is Known and not has_python_operators(value):
        return bool(value.obj)
    if value.__class__ is TensorNode:
        return truth(vm, vm.call_method(value, "__bool__"))
    if value.__class__ is Symbol:
        return symbols.truth(vm, value)
    answer = special(vm, value, "__bool__")
    if answer is None:
        answer = special(vm, value, "__len__")
        return answer is None or truth(vm, as_length(vm, answer))
    if answer.pytype is not bool:
        raise vm.error(TypeError, f"__bool__ should return bool, returned {type_name(answer.pytype)}")
    return bool(vm.known(answer, "truth value"))


def length(vm: Machine, value: Value) -> Value:
    """Return `len(value)`."""
    if value.__class__ is Known and not has_python_operators(value):
        return vm.run_pure(len, [value], {})
    answer = special(vm, value, "__len__")
    if answer is None:
        raise vm.error(TypeError, f"object of type {type_name(value.pytype)!r} has no len()")
    return as_length(vm, answer)


def as_length(vm: Machine, answer: Value) -> Value:
    """Check the result of `__len__`, and return it: an integer, not below zero."""
    if answer.__class__ is Symbol:
        return answer
    if answer.__class__ is not Known or type(answer.obj) is not int or answer.obj > sys.maxsize:
        raise Break("unknown call", name="__len__")
    if answer.obj < 0:
        raise vm.error(ValueError, "__len__() should return >= 0")
    return answer


def contains(vm: Machine, box: Value, item: Value) -> bool:
    """Return `item in box`."""
    if box.__class__ is Known and item.__class__ is Known and is_plain_constant(item) and not has_python_operators(box):
        if holds_nan(item.obj):  # found by identity
            identity_of(vm, item)
            identity_of(vm, box)
        return bool(vm.known(constant_binary(vm, operator.contains, box, item), "membership"))
    if box.__class__ is TensorNode:
        answer = tensor_methods.answered(vm, box, "__contains__", item)
        if answer is None:
            raise Break("data-dependent branch", type="TensorVariable")
        return truth(vm, answer)
    answer = special(vm, box, "__contains__", item)
    if answer is not None:
        return truth(vm, answer)
    if not is_iterable(vm, box):
        raise refused_operands(vm, operator.contains, box, item)
    return any(same_or_equal(vm, other, item) for other in vm.iterate(box))


def same_or_equal(vm: Machine, a: Value, b: Value) -> bool:
    """Return `a is b or a == b`, the test that containers make."""
    if a.pytype is b.pytype is int and (a.__class__ is Symbol or b.__class__ is Symbol):
        return truth(vm, binary(vm, "==", a, b))  # the same integers are equal ones
    if a.__class__ is Known and type(a.obj) in CONSTANTS and a.obj == a.obj:
        return truth(vm, binary(vm, "==", a, b))  # so are the same constants, but for nan
    return identical(vm, a, b) or truth(vm, binary(vm, "==", a, b))
