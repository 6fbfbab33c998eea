"""Guard conditions on symbols: integers, floats, and sizes of tensors.

The argument is (sources, programs), see core/number_programs.py; `load` pushes the number at a source. A source that
reads a 0-dim tensor's content or converts to float gives a float, all others integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchdynamo.core.naming import text_of
from torchdynamo.core.number_programs import LIMIT, OPERATIONS, Outside, Program, run
from torchdynamo.core.source import Guard, Roots, Source
from torchdynamo.guards.kind import Check, GuardDifference, GuardKind, NodeOf, read

NUMBERS = {name: index for index, name in enumerate(OPERATIONS)}
MEASURES = {"size": 1, "stride": 2}
CONTENTS = 3


def numbers_at(sources: tuple[Source, ...], roots: Roots) -> list[Any]:
    """Return the numbers at these sources. Raises Outside for other objects and for integers beyond 64 bits."""
    found = [read(source, roots) for source in sources]
    if not all(fits(source, number) for source, number in zip(sources, found, strict=True)):
        raise Outside
    return found


def fits(source: Source, number: Any) -> bool:
    """Return whether an object is a number of the kind that is expected at its source."""
    if is_contents(source):
        return type(number) is float
    return type(number) is int and -LIMIT <= number < LIMIT


def is_contents(source: Source) -> bool:
    """Return whether a source gives a float: the content of a 0-dim tensor, or a float itself."""
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
    """Return how the native program reads a number: an int object, a float object, or a tensor's size or stride."""
    if is_contents(source):
        return CONTENTS, node_of(source), 0
    kind = MEASURES.get(source.how, 0)
    if kind and source.base is not None:
        return kind, node_of(source.base), source.arg
    return 0, node_of(source), 0


def why(value: Any, arg: tuple[tuple[Source, ...], tuple[Program, ...]], roots: Roots) -> GuardDifference:
    sources, programs = arg
    for program in programs:
        if not holds_one(program, sources, roots):
            used = {operand for name, operand in program if name == "load"}
            now = ", ".join(f"{sources[i]} = {text_of(read(sources[i], roots))}" for i in sorted(used))
            return GuardDifference("", tell(program, sources), now)
    return GuardDifference("", "", "")


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


def tell(program: Program, sources: Sequence[Any]) -> str:
    """Return a condition as Python text."""
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


KIND = GuardKind(
    "NUMBERS",
    holds=holds,
    lower=lower,
    why=why,
    describe=lambda arg: " and ".join(tell(program, arg[0]) for program in arg[1]),
)
