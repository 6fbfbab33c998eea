"""Facts about numbers that vary: conditions over integers and tensors' sizes, as small programs.

The argument is (sources, programs). A program is a tuple of (operation, operand) in postfix order: `load` pushes the
number at a source, `int` and `float` push their operand, the rest take what they need off the stack. What a tensor of
one number holds is a float, and what is asked for as one; all other sources hold integers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, TypeAlias

from torchdynamo.capture.naming import text_of
from torchdynamo.capture.source import Guard, Roots, Source
from torchdynamo.guards.kind import Change, Check, Kind, NodeOf, read

Program: TypeAlias = "tuple[tuple[str, Any], ...]"
LIMIT = 1 << 63

FUNCTIONS = "sqrt exp expm1 log log1p log2 log10 cos sin tan acos asin atan cosh sinh tanh".split()  # of math

# The order is that of Op in csrc/numbers.c. With each: how many operands, and what it gives.
OPERATIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "load": (0, lambda: None),
    "int": (0, lambda: None),
    "float": (0, lambda: None),
    "add": (2, operator.add),
    "mul": (2, operator.mul),
    "floordiv": (2, operator.floordiv),
    "mod": (2, operator.mod),
    "pow": (2, lambda a, b: power(a, b)),
    "min": (2, min),
    "max": (2, max),
    "eq": (2, operator.eq),
    "ne": (2, operator.ne),
    "lt": (2, operator.lt),
    "le": (2, operator.le),
    "gt": (2, operator.gt),
    "ge": (2, operator.ge),
    "and": (2, lambda a, b: bool(a and b)),
    "or": (2, lambda a, b: bool(a or b)),
    "not": (1, operator.not_),
    "abs": (1, abs),
    "to_float": (1, float),
    "truediv": (2, operator.truediv),
    "trunc": (1, math.trunc),
    "floor": (1, math.floor),
    "ceil": (1, math.ceil),
    "where": (3, lambda cond, a, b: a if cond else b),
    "round": (1, round),
    **{name: (1, getattr(math, name)) for name in FUNCTIONS},
}
NUMBERS = {name: index for index, name in enumerate(OPERATIONS)}
MEASURES = {"size": 1, "stride": 2}
CONTENTS = 3


def power(a: Any, b: Any) -> Any:
    """A power that is surely a real number."""
    if type(a) is type(b) is int or (a > 0 and type(a) is float):
        return a**b
    raise Outside


class Outside(ArithmeticError):
    """A number that 64 bits do not hold."""


def run(program: Program, numbers: list[Any]) -> Any:
    """The program's answer."""
    stack: list[Any] = []
    for name, operand in program:
        count, fn = OPERATIONS[name]
        if name == "load":
            stack.append(numbers[operand])
        elif count == 0:
            stack.append(operand)
        else:
            args = stack[-count:]
            stack[-count:] = [fn(*args)]
        if type(stack[-1]) is int and not -LIMIT <= stack[-1] < LIMIT:
            raise Outside
    (answer,) = stack
    return answer


def numbers_at(sources: tuple[Source, ...], roots: Roots) -> list[Any]:
    """What is there now."""
    found = [read(source, roots) for source in sources]
    if not all(fits(source, number) for source, number in zip(sources, found, strict=True)):
        raise Outside
    return found


def fits(source: Source, number: Any) -> bool:
    """Whether it is a number of the kind that is expected there."""
    if is_contents(source):
        return type(number) is float
    return type(number) is int and -LIMIT <= number < LIMIT


def is_contents(source: Source) -> bool:
    """A float: what a tensor of one number holds, or a float itself."""
    return source.how == "method" and source.arg in ("item", "__float__")


def holds_one(program: Program, sources: tuple[Source, ...], roots: Roots) -> bool:
    try:
        return bool(run(program, numbers_at(sources, roots)))
    except (ArithmeticError, ValueError):
        return False


def holds(value: Any, arg: tuple[tuple[Source, ...], tuple[Program, ...]], roots: Roots) -> bool:
    sources, programs = arg
    return all(holds_one(program, sources, roots) for program in programs)


def lower(guard: Guard, node_of: NodeOf) -> Check:
    sources, programs = guard.arg
    inputs = tuple(place(source, node_of) for source in sources)
    return -1, "numbers", (inputs, tuple(tuple((NUMBERS[name], operand) for name, operand in p) for p in programs))


def place(source: Source, node_of: NodeOf) -> tuple[int, int, int]:
    """How the native program finds a number: an int object, a float object, or a tensor's size or stride."""
    if is_contents(source):
        return CONTENTS, node_of(source), 0
    kind = MEASURES.get(source.how, 0)
    if kind and source.base is not None:
        return kind, node_of(source.base), source.arg
    return 0, node_of(source), 0


def why(value: Any, arg: tuple[tuple[Source, ...], tuple[Program, ...]], roots: Roots) -> Change:
    sources, programs = arg
    for program in programs:
        if not holds_one(program, sources, roots):
            used = {operand for name, operand in program if name == "load"}
            now = ", ".join(f"{sources[i]} = {text_of(read(sources[i], roots))}" for i in sorted(used))
            return Change("", tell(program, sources), now)
    return Change("", "", "")


SIGNS = {
    "add": "+",
    "mul": "*",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "and": "and",
    "or": "or",
    "truediv": "/",
}


def tell(program: Program, sources: tuple[Source, ...]) -> str:
    """The condition as Python would say it."""
    stack: list[str] = []
    for name, operand in program:
        count = OPERATIONS[name][0]
        args = [stack.pop() for _ in range(count)][::-1]
        if name == "load":
            stack.append(str(sources[operand]))
        elif count == 0:
            stack.append(repr(operand))
        elif name in SIGNS:
            stack.append(f"({args[0]} {SIGNS[name]} {args[1]})")
        else:
            stack.append(f"{name}({', '.join(args)})")
    return stack[0].removeprefix("(").removesuffix(")")


KIND = Kind(
    "NUMBERS",
    holds=holds,
    lower=lower,
    why=why,
    told=lambda arg: " and ".join(tell(program, arg[0]) for program in arg[1]),
)
