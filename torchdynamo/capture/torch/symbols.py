"""Apply Python's operators and conversions to symbols, numbers that have no value yet.

What stays a number of the graph is here; anything else that is asked of one (a method, its text, its hash) is asked of
its value: for a number that existed at entry that is a fact to guard, and one read from a tensor ends the graph.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from torchdynamo.capture.speculate import may_raise
from torchdynamo.capture.torch import number_conditions
from torchdynamo.core import policy
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Source
from torchdynamo.core.value import Known, Object, Symbol, TensorNode, Value, boolean
from torchdynamo.graph.raising_operators import TAKE_ALL_NUMBERS

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

TYPES: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
COMPARISONS = frozenset({"<", "<=", ">", ">=", "==", "!="})
DIVISIONS = frozenset({"/", "//", "%"})
ROUGH = frozenset({"**", "//", "%"})  # of floats: what sympy gives is not always Python's
NUMBER_TYPES = (bool, int, float)


def is_symbol(value: Value) -> bool:
    """Return whether the value is a number of the graph."""
    return value.__class__ is Symbol


def is_number(value: Value) -> bool:
    """Return whether the value is a number, of the graph or constant."""
    return value.__class__ is Symbol or (value.__class__ is Known and type(value.obj) in NUMBER_TYPES)


def from_node(vm: Machine, node: torch.fx.Node, number: Any) -> Value:
    """Return the value of a node that gives a number: a constant if it can only be this number."""
    fixed = vm.builder.numbers.fixed(number)
    if fixed is not None:
        vm.builder.erase(node)
        return Known(fixed)
    return Symbol(node, number, TYPES[type(number)])


def settled(vm: Machine, value: Value) -> Known:
    """Return the number as a constant, which is guarded."""
    assert isinstance(value, Symbol)
    return Known(vm.builder.numbers.settle(value.fake))


def is_of_unknown_size(vm: Machine, example: Any) -> bool:
    """Return whether a fake tensor has a size that depends on what a tensor holds."""
    return isinstance(example, torch.Tensor) and any(
        isinstance(size, torch.SymInt) and vm.builder.numbers.unknown(size) for size in example.shape
    )


def at_entry(vm: Machine, value: Value) -> Value:
    """Return a number that is there at entry as a constant, which is guarded; anything else as it is."""
    if isinstance(value, Symbol) and not unknown(vm, value):
        return settled(vm, value)
    if isinstance(value, Object) and value.pytype in (list, tuple, torch.Size):
        items = list(vm.iterate(value))
        known = [at_entry(vm, item) for item in items]
        return value if known == items else vm.new(value.pytype, known)
    return value


def truth(vm: Machine, value: Symbol) -> bool:
    """Return `bool(value)`, where it must be known."""
    known = number_conditions.decide(vm, value) if unknown(vm, value) or policy.in_optimizer(vm.frames) else None
    return vm.builder.numbers.decide(value.fake) if known is None else known


def follows(vm: Machine, value: Value) -> bool:
    """Return whether the truth of a number follows from what is known."""
    try:
        return isinstance(value, Symbol) and truth(vm, value) is not None
    except Break:
        return False


def is_positive(vm: Machine, value: Value) -> bool:
    """Return whether a number is known to be above zero; that of a number at entry is guarded."""
    if value.__class__ is Known:
        return bool(value.obj > 0)
    above = vm.binary(">", value, Known(0))
    try:
        return holds(vm, above)
    except Break:
        return False


def is_nonzero(vm: Machine, value: Value) -> bool:
    """Return whether a number of the graph is not zero now, which is guarded: sympy takes `n % n` for 0 in any case."""
    return holds(vm, vm.binary("!=", value, Known(0)))


def holds(vm: Machine, condition: Value) -> bool:
    """Return whether a condition holds now, which is guarded. Raises Break if only the graph can tell."""
    return truth(vm, condition) if isinstance(condition, Symbol) else bool(vm.concretely(condition))


def opaque(
    vm: Machine, fn: Callable[..., Any], args: list[Value], pytype: type, kwargs: dict[str, Value] | None = None
) -> Value:
    """Return a number that the graph computes and of which nothing is known."""
    if fn not in TAKE_ALL_NUMBERS:
        may_raise.be_careful(vm, getattr(fn, "__name__", "a number"))
    number, named = vm.builder.numbers.fresh(pytype), {name: given(arg) for name, arg in (kwargs or {}).items()}
    node = vm.builder.note(fn, tuple(given(arg) for arg in args), named, number, vm.position())
    vm.ops += 1
    return Symbol(node, number, pytype)


def given(value: Value) -> Any:
    """Return a number or tensor as an argument of a node."""
    return value.node if isinstance(value, (Symbol, TensorNode)) else value.obj  # type: ignore[union-attr]


# -- operators --------------------------------------------------------------------------------------------------------
def binary(vm: Machine, op: str, fn: Callable[[Any, Any], Any], a: Value, b: Value) -> Value:
    """Return `a op b`, one of them a Symbol and neither a tensor."""
    if is_number(a) and is_number(b):
        return arithmetic(vm, op, fn, a, b)
    other = b if a.__class__ is Symbol else a
    if op in ("==", "!=") and other.__class__ is Known and type(other.obj) is not complex:
        return boolean(op == "!=")
    return of_constants(vm, op, a, b)


def of_constants(vm: Machine, op: str, a: Value, b: Value) -> Value:
    """Return `a op b` with numbers of the graph as constants, which are guarded."""
    return vm.binary(op, *(settled(vm, each) if each.__class__ is Symbol else each for each in (a, b)))


def arithmetic(vm: Machine, op: str, fn: Callable[[Any, Any], Any], a: Value, b: Value) -> Value:
    """Return `a op b` of two numbers, at least one of them of the graph."""
    if is_long(a) or is_long(b):  # a graph's numbers have 64 bits
        return of_constants(vm, op, a, b)
    if op in DIVISIONS and b.__class__ is Known and not b.obj:
        try:
            fn(1.0 if a.pytype is float else 1, b.obj)
        except ZeroDivisionError as error:
            raise vm.error(ZeroDivisionError, *error.args) from None
    truths = a.pytype is bool and b.pytype is bool
    if truths and op in COMPARISONS:  # sympy compares no conditions
        return opaque(vm, fn, [a, b], bool) if unknown(vm, a) or unknown(vm, b) else of_constants(vm, op, a, b)
    if not (truths and op in ("&", "|")):
        a, b = plain(vm, a), plain(vm, b)
    if a.pytype is float or b.pytype is float or op == "/":
        if op == "**" and not (stays_real(vm, a, b) or policy.in_optimizer(vm.frames)):
            raise Break("data-dependent value", name="**")  # it may be a complex number
        vague = is_counted if op in ROUGH else unknown
        if vague(vm, a) or vague(vm, b):
            return opaque(vm, fn, [a, b], bool if op in COMPARISONS else float)
        if op == "%":  # of sizes; sympy has no ranges of such remainders
            return of_constants(vm, op, a, b)
    if op == "**" and b.__class__ is not Known:
        if a.pytype is float and stays_real(vm, a, b) and (may_flow(vm) or not policy.of_optimizer(vm.frames)):
            return opaque(vm, fn, [a, b], float)
        b = settled(vm, b)
    if op == "**" and b.obj < 0:  # type: ignore[union-attr]
        return opaque(vm, fn, [a, b], float) if unknown(vm, a) else vm.binary(op, settled(vm, a), b)
    if op in ("<<", ">>", "&", "|", "^") and a.pytype is int:
        if unknown(vm, a) or unknown(vm, b):
            return opaque(vm, fn, [a, b], int)
        return of_constants(vm, op, a, b)
    if op in DIVISIONS and b.__class__ is Symbol and not unknown(vm, b) and not is_nonzero(vm, b):
        return of_constants(vm, op, a, b)  # which raises
    return vm.emit("call_function", fn, [a, b], {})


def may_flow(vm: Machine) -> bool:
    """Return whether what follows from a count of steps may be an unknown number, like what a scheduler changes."""
    numbers = vm.builder.numbers
    numbers.scheduled |= numbers.schedules
    return numbers.schedules


def is_long(value: Value) -> bool:
    """Return whether an integer is too large for 64 bits."""
    return value.__class__ is Known and type(value.obj) is int and value.obj.bit_length() > 63


def stays_real(vm: Machine, base: Value, exponent: Value) -> bool:
    """Return whether a power is no complex number; that of a number at entry is guarded."""
    if exponent.__class__ is Known and exponent.obj == int(exponent.obj):
        return True
    return is_positive(vm, base)


def plain(vm: Machine, value: Value) -> Value:
    """Return a truth value as the integer that it is; other values as they are."""
    if value.pytype is not bool:
        return value
    return Known(int(value.obj)) if value.__class__ is Known else to_int(vm, value)


def unknown(vm: Machine, value: Value) -> bool:
    """Return whether a number depends on what a tensor holds."""
    return isinstance(value, Symbol) and vm.builder.numbers.unknown(value.fake)


def is_counted(vm: Machine, value: Value) -> bool:
    """Return whether a value depends on what a tensor holds, or on a number of the program's: on more than sizes."""
    return isinstance(value, Symbol) and (unknown(vm, value) or vm.builder.numbers.is_counted(value.fake))


def unary(vm: Machine, op: str, a: Symbol) -> Value:
    """Return `-a`, `+a` or `~a`."""
    value = plain(vm, a)
    if op == "+":
        return value
    if op == "-" and value.pytype is float and unknown(vm, value):
        return opaque(vm, operator.neg, [value], float)
    if value.__class__ is not Symbol:
        return vm.unary(op, value)
    negative = vm.emit("call_function", operator.neg, [value], {})
    return negative if op == "-" else vm.binary("-", negative, Known(1))


def negation(vm: Machine, a: Symbol) -> Value:
    """Return `not a`."""
    answer = to_bool(vm, a)
    if answer.__class__ is not Symbol:
        return boolean(not answer.obj)  # type: ignore[union-attr]
    return vm.emit("call_function", torch.sym_not, [answer], {})


# -- conversions ------------------------------------------------------------------------------------------------------
def to_int(vm: Machine, a: Value) -> Value:
    """Return `int(a)`."""
    if a.pytype is int:
        return a
    if a.pytype is bool:
        return vm.emit("call_function", torch.sym_ite, [a, Known(1), Known(0)], {})
    if unknown(vm, a):
        return opaque(vm, torch.sym_int, [a], int)
    return vm.emit("call_function", torch.sym_int, [a], {})


def to_float(vm: Machine, a: Value) -> Value:
    """Return `float(a)`."""
    value = plain(vm, a)
    if value.pytype is float:
        return value
    if unknown(vm, value):
        return opaque(vm, torch.sym_float, [value], float)
    return vm.emit("call_function", torch.sym_float, [value], {})


def to_bool(vm: Machine, a: Value) -> Value:
    """Return `bool(a)`, which may stay a number of the graph."""
    return a if a.pytype is bool else vm.binary("!=", a, Known(0))


CONVERSIONS: dict[type, Callable[[Any, Value], Value]] = {int: to_int, float: to_float, bool: to_bool}


def extreme(vm: Machine, fn: Any, values: list[Value]) -> Value | None:
    """Return `min` or `max` of numbers of one type; None where the first of equals has to be found by comparing."""
    kinds = {value.pytype for value in values}
    if policy.in_optimizer(vm.frames) and kinds == {int, float}:  # torch.sym_max makes a float of either
        return opaque(vm, torch.sym_max if fn is max else torch.sym_min, values, float)
    if not all(map(is_number, values)) or not any(map(is_symbol, values)) or kinds != {int}:
        return None
    best = values[0]
    for value in values[1:]:
        best = vm.emit("call_function", torch.sym_max if fn is max else torch.sym_min, [best, value], {})
    return best


def absolute(vm: Machine, a: Value) -> Value:
    """Return `abs(a)`."""
    value = plain(vm, a)
    if value.pytype is float and unknown(vm, value):
        return opaque(vm, abs, [value], float)
    return vm.emit("call_function", abs, [value], {})


def rounded(vm: Machine, a: Value, *digits: Value) -> Value:
    """Return `round(a)`, or a constant rounded to some digits."""
    if not digits and a.pytype in (int, bool):
        return plain(vm, a)
    if not digits:
        return opaque(vm, round, [a], int) if unknown(vm, a) else vm.emit("call_function", round, [a], {})
    return vm.run_pure(round, [a, *digits], {})


def divided(vm: Machine, a: Value, b: Value) -> Value:
    """Return `divmod(a, b)`."""
    return vm.make_tuple([vm.binary("//", a, b), vm.binary("%", a, b)])


def power(vm: Machine, a: Value, b: Value, *modulus: Value) -> Value:
    """Return `pow(a, b)`."""
    return vm.run_pure(pow, [a, b, *modulus], {}) if modulus else vm.binary("**", a, b)


FUNCTIONS: dict[Any, Callable[..., Value]] = {abs: absolute, round: rounded, divmod: divided, pow: power}


# -- texts ------------------------------------------------------------------------------------------------------------
def is_unknown(vm: Machine, value: Value, around: frozenset[int] = frozenset()) -> bool:
    """Return whether the text of a value depends on what a tensor holds. around: what it is in, by reference."""
    if isinstance(value, Object) and value.pytype in (str, list, tuple, torch.Size):
        inside = around | {value.ref}
        if value.pytype is str or value.ref in around:
            return value.pytype is str
        return any(is_unknown(vm, item, inside) for item in vm.iterate(value))
    return value.__class__ is TensorNode or unknown(vm, value)


def text(vm: Machine) -> Value:
    """Return a text that is not known: it may be handed on, to an error message that nobody gets to see."""
    return vm.new(str)


# -- tensors' metadata ------------------------------------------------------------------------------------------------
def measured(vm: Machine, tensor: TensorNode, method: str, args: list[Value], answer: Any) -> Value:
    """Return sizes, strides or a count of a tensor, in which unknown ones are numbers of the graph."""
    if method == "stride" and tensor.source in vm.layouts:
        alone = beside_one(vm, tensor)
        if alone and isinstance(answer, tuple):
            answer = tuple(alone.get(dim, step) for dim, step in enumerate(answer))
        elif alone and len(args) == 1 and args[0].__class__ is Known:
            answer = alone.get(args[0].obj % len(tensor.fake.shape), answer)
    if isinstance(answer, tuple):
        return vm.new(type(answer), [measure(vm, tensor, method, [Known(i)], part) for i, part in enumerate(answer)])
    return measure(vm, tensor, method, args, answer)


def beside_one(vm: Machine, tensor: TensorNode) -> dict[int, int]:
    """Return the strides of an input in dimensions of size 1, by dimension, and guard them: nothing else tells them."""
    source = tensor.source
    assert source is not None
    real, found = vm.input_objects[tensor.node], {}
    for dim, (size, step) in enumerate(zip(*vm.layouts[source], strict=True)):
        if type(step) is torch.SymInt and vm.builder.numbers.decide(size == 1):
            found[dim] = real.stride(dim)
            vm.guard(Source("stride", source, dim), "EQUALS_MATCH", found[dim])
    return found


def measure(vm: Machine, tensor: TensorNode, method: str, args: list[Value], number: Any) -> Value:
    """Return one size or stride as a value; one that was asked for before is the same symbol."""
    if type(number) is not torch.SymInt:
        return Known(number)
    expr = number.node.expr
    known = vm.sizes.get(expr)
    if known is None:
        known = vm.emit("call_method", method, [tensor, *args], {})
        vm.sizes[expr] = known
    return known


def has_symbols(answer: Any) -> bool:
    """Return whether sizes hold numbers that are not known."""
    if isinstance(answer, (tuple, list)):
        return any(map(has_symbols, answer))
    return type(answer) in TYPES
