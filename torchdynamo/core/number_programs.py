"""Programs over numbers, by which guards evaluate conditions.

A program is a tuple of (operation, operand) in postfix order: `load` pushes one of the given numbers, `int` and `float`
push their operand, other operations take their operands off the stack. csrc/numbers.c runs them natively.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

Program: TypeAlias = "tuple[tuple[str, Any], ...]"
LIMIT = 1 << 63

FUNCTIONS = "sqrt exp expm1 log log1p log2 log10 cos sin tan acos asin atan cosh sinh tanh".split()  # of module math

# Operation -> number of operands, and its function. The order is that of Op in csrc/numbers.c.
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
    """Return `a ** b` where the result is surely real and numbers.c computes it too; otherwise raise Outside."""
    if (isinstance(a, int) and isinstance(b, int) and 0 <= b <= 64) or (a > 0 and type(a) is float):
        return a**b
    raise Outside


class Outside(ArithmeticError):
    """Raised for a number that does not fit into 64 bits."""


def run(program: Iterable[tuple[str, Any]], numbers: Sequence[Any]) -> Any:
    """Return the result of a program. Raises ArithmeticError or ValueError where there is none, or where it does not
    fit into 64 bits.
    """
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
