"""Numbers of NumPy's that change from call to call: numbers of the graph, with the type that NumPy gave them.

Such a number is an object whose entity notes the plain number behind it. Arithmetic of 64 bits goes on with that; for
whatever else wants to look at it, it is settled: taken for the constant that it is now.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from torchdynamo.capture.torch import float_inputs, numpy_arrays, sizes, symbols
from torchdynamo.core.source import Source
from torchdynamo.core.value import Known, Object, Symbol, TensorNode, Value
from torchdynamo.graph.numpy_nodes import np

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


class NumberPayload(NamedTuple):
    """The payload of a number of NumPy's that is a number of the graph."""

    number: Value  # a Symbol, of Python's type


def held(vm: Machine, value: Value) -> Value | None:
    """Return the plain number behind a number of NumPy's that varies; None for any other value."""
    if value.__class__ is not Object or not numpy_arrays.flowing_type(value):
        return None
    known = vm.entity(value).payload_if(NumberPayload)
    return None if known is None else known.number


def among(vm: Machine, a: Value, b: Value) -> bool:
    """Return whether one of two operands is a varying number of NumPy's, and neither a tensor, which answers itself."""
    if a.__class__ is TensorNode or b.__class__ is TensorNode:
        return False
    return held(vm, a) is not None or held(vm, b) is not None


def enter(vm: Machine, obj: Any, source: Source) -> Value | None:
    """Return the value of a number of NumPy's that existed and varies; None if it is to be a constant."""
    kept = obj.item()
    place = place_of(obj, source)
    numbers = vm.builder.numbers
    number: Value
    if type(kept) is int and obj.dtype.kind in "iu":
        always = numbers.always and source.how == "local"
        if not (sizes.varies(vm, kept, place) or (always and sizes.LEAST <= kept <= sizes.MOST)):
            return None
        number = sizes.enter_int(vm, kept, place)
    elif type(kept) is float and place in numbers.varying:
        number = float_inputs.enter_float(vm, kept, place)
    else:
        return None
    value = vm.heap.adopt(obj, source)
    vm.entity(value).payload = NumberPayload(number)
    return value


def place_of(obj: Any, source: Source) -> Source:
    """Return the source of the plain number in one of NumPy's: an integer, to compute sizes from, or a float."""
    return Source("method", source, "__index__" if obj.dtype.kind in "iu" else "item")


def settled(vm: Machine, value: Object) -> Any:
    """Return a varying number of NumPy's as a constant, which is guarded."""
    number = held(vm, value)
    assert number is not None
    return value.pytype(number.obj if number.__class__ is Known else symbols.settled(vm, number).obj)


def made(vm: Machine, cls: Any, number: Value) -> Value:
    """Return a number of NumPy's type `cls`."""
    return Known(cls(number.obj)) if number.__class__ is Known else vm.new(cls, payload=NumberPayload(number))


FAR = 1 << 62  # integers of NumPy's have 64 bits


# -- arithmetic -------------------------------------------------------------------------------------------------------
SIMPLE = frozenset({"+", "-", "*", "<", "<=", ">", ">=", "==", "!="})
DIVISIONS: dict[str, tuple[type, ...]] = {"/": (int, float), "//": (int,), "%": (int,)}


def binary(vm: Machine, op: str, fn: Callable[[Any, Any], Any], a: Value, b: Value) -> Value | None:
    """Return `a op b`, one of them a varying number of NumPy's and neither a tensor; None where constants must do.

    NumPy wraps integers around and divides by zero; Python does not, so there the number is a constant.
    """
    pair = operand(vm, a), operand(vm, b)
    if op not in SIMPLE and not (op in DIVISIONS and b.__class__ is Known and b.obj):
        return None
    if pair[0] is None or pair[1] is None or (op in DIVISIONS and pair[0].pytype not in DIVISIONS[op]):
        return None
    kind = type(fn(example(a), example(b)))
    if kind not in PLAIN or is_far(fn(*map(now, pair))):
        return None
    result = vm.binary(op, *pair)  # type: ignore[arg-type]
    return made(vm, kind, within(vm, result)) if result.pytype is PLAIN[kind] else None


def operand(vm: Machine, value: Value) -> Value | None:
    """Return the plain number; None for what is none, or is one that NumPy rounds or wraps otherwise."""
    plain = held(vm, value)
    if plain is not None:
        return plain if value.pytype in PLAIN and value.pytype is not np.bool_ else None
    if value.__class__ is Known and type(value.obj) in PLAIN and type(value.obj) is not np.bool_:
        return Known(value.obj.item())
    in_graph = value.__class__ is Symbol and value.pytype in (int, float)
    return value if in_graph or (value.__class__ is Known and type(value.obj) in (int, float)) else None


def example(value: Value) -> Any:
    """Return a number of the value's type: what NumPy makes of two types does not depend on these."""
    kind: Any = value.pytype
    return value.obj if value.__class__ is Known else kind(1)


def now(value: Any) -> Any:
    """Return the plain number that a value is in this call; 1 where nobody knows."""
    if value.__class__ is Known:
        return value.obj
    hint = getattr(getattr(value.fake, "node", None), "hint", None)
    return 1 if hint is None else hint


def is_far(number: Any) -> bool:
    """Return whether an integer is near where NumPy's wrap around."""
    return type(number) is int and abs(number) > FAR


def within(vm: Machine, number: Value) -> Value:
    """Return an integer, guarded to be far from where NumPy's wrap around; a constant if it is not far."""
    if number.__class__ is Symbol and number.pytype is int:
        for op, bound in (("<=", FAR), (">=", -FAR)):
            if not vm.truth(vm.compare(op, number, Known(bound))):
                return symbols.settled(vm, number)
    return number


def unary(vm: Machine, op: str, value: Value) -> Value | None:
    """Return `-value` or `+value`; None where constants must do."""
    number = operand(vm, value)
    if held(vm, value) is None or number is None or is_far(now(number)):
        return None
    return made(vm, value.pytype, within(vm, vm.unary(op, number)))


PLAIN: dict[Any, type] = {} if np is None else {np.int64: int, np.float64: float, np.bool_: bool}


# -- what it is asked for ---------------------------------------------------------------------------------------------
def to_truth(vm: Machine, self: Object) -> Value:
    return Known(vm.truth(held(vm, self)))  # type: ignore[arg-type]


def to_int(vm: Machine, self: Object) -> Value:
    return symbols.to_int(vm, held(vm, self))  # type: ignore[arg-type]


def to_float(vm: Machine, self: Object) -> Value:
    return symbols.to_float(vm, held(vm, self))  # type: ignore[arg-type]


def to_python(vm: Machine, self: Object) -> Value:
    return held(vm, self)  # type: ignore[return-value]


def negated(vm: Machine, self: Object) -> Value | None:
    return unary(vm, "-", self)


def same(vm: Machine, self: Object) -> Value | None:
    return unary(vm, "+", self)


ASKED: dict[str, Callable[[Machine, Object], Value | None]] = {
    "__bool__": to_truth,
    "__int__": to_int,
    "__index__": to_int,
    "__float__": to_float,
    "item": to_python,
    "tolist": to_python,
    "__neg__": negated,
    "__pos__": same,
}
