"""Small programs over numbers: what guards evaluate to see whether a condition still holds.

A program is a tuple of (operation, operand) in postfix order: `load` pushes one of the numbers that are given, `int`
and `float` push their operand, the rest take what they need off the stack. csrc/numbers.c runs the same programs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

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


def power(a: Any, b: Any) -> Any:
    """Return a power that is surely a real number, and no larger one than numbers.c computes."""
    if (type(a) is type(b) is int and 0 <= b <= 64) or (a > 0 and type(a) is float):
        return a**b
    raise Outside


class Outside(ArithmeticError):
    """A number that 64 bits do not hold."""


def run(program: Iterable[tuple[str, Any]], numbers: Sequence[Any]) -> Any:
    """Return the program's answer. Raises ArithmeticError or ValueError where 64 bits or Python know none."""
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
