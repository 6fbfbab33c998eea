"""Turn torch's guards on symbols into guards of this package.

torch has them as sympy expressions, which are slow and need Python; here they become small programs
(guards/kinds/numbers.py). Symbols in an expression that cannot be translated are guarded to have their current value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from torchdynamo.core.number_programs import LIMIT, Program
from torchdynamo.core.source import Guard, Position, Source
from torchdynamo.graph.numbers import Numbers
from torchdynamo.graph.sizes import SizeLayout

# name of a sympy or torch class -> operation; operations with several operands are folded from the left
FOLDED = {"Add": "add", "Mul": "mul", "Max": "max", "Min": "min", "And": "and", "Or": "or"}
PLAIN = {
    "FloorDiv": "floordiv",
    "CleanDiv": "floordiv",
    "Mod": "mod",
    "PythonMod": "mod",
    "PowByNatural": "pow",
    "Equality": "eq",
    "Unequality": "ne",
    "StrictLessThan": "lt",
    "LessThan": "le",
    "StrictGreaterThan": "gt",
    "GreaterThan": "ge",
    "Not": "not",
    "Abs": "abs",
    "ToFloat": "to_float",
    "IntTrueDiv": "truediv",
    "FloatTrueDiv": "truediv",
    "TruncToInt": "trunc",
    "TruncToFloat": "trunc",
    "FloorToInt": "floor",
    "CeilToInt": "ceil",
    "RoundToInt": "round",
    "Where": "where",
    "Pow": "pow",
}


class NotTranslatable(Exception):
    """Raised for an expression that cannot be translated."""


def number_guards(numbers: Numbers, layouts: dict[Source, SizeLayout]) -> list[Guard]:
    """Return the guards on symbols at entry: one for each line that asked for any, and one for the others."""
    if not numbers.entries:
        return []
    places = numbers.places()
    writers: dict[Position | None, Writer] = {}
    for expr in conditions(numbers):
        writers.setdefault(places.get(expr), Writer(numbers)).require(expr)
    writer = writers.setdefault(None, Writer(numbers))
    for source, _ in numbers.entries.values():
        if source.how not in ("size", "stride"):
            writer.require_room(source)
    for source, layout in layouts.items():
        for dim, stride in enumerate(layout.stride):
            writer.require_stride(source, layout, dim, stride)
    return [
        Guard(Source("globals"), "NUMBERS", (tuple(writer.sources), tuple(writer.programs)), place)
        for place, writer in writers.items()
        if writer.programs
    ]


def conditions(numbers: Numbers) -> Iterator[Any]:
    """Yield torch's guards on symbols, and the ranges that symbols were given."""
    from sympy import Ge, Integer, Le  # type: ignore[import-untyped]

    yield from (guard.expr for guard in numbers.env.guards)
    for symbol, (source, _) in numbers.entries.items():
        known = numbers.env.var_to_range[symbol]
        least = 0 if source.how in ("size", "stride") else -LIMIT
        if known.lower.is_Integer and int(known.lower) > least:
            yield Ge(symbol, Integer(int(known.lower)))
        if known.upper.is_Integer and int(known.upper) < LIMIT - 1:
            yield Le(symbol, Integer(int(known.upper)))


class Writer:
    """Translates conditions to programs over a growing list of sources."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers
        self.sources: dict[Source, int] = {}
        self.programs: dict[Program, None] = {}

    def load(self, source: Source) -> tuple[str, int]:
        return "load", self.sources.setdefault(source, len(self.sources))

    def require(self, expr: Any) -> None:
        """Guard a condition; if it cannot be translated, guard the current value of each of its symbols."""
        if not expr.free_symbols & set(self.numbers.entries):
            return
        try:
            self.programs[tuple(self.said(expr))] = None
        except NotTranslatable:
            for symbol in expr.free_symbols & set(self.numbers.entries):
                source, value = self.numbers.entries[symbol]
                self.programs[self.load(source), ("int", value), ("eq", None)] = None

    def require_room(self, source: Source) -> None:
        """Guard that a Python integer fits into 64 bits, as integers of a graph must."""
        self.programs[self.load(source), self.load(source), ("eq", None)] = None

    def require_stride(self, source: Source, layout: SizeLayout, dim: int, stride: Any) -> None:
        """Guard that a stride is the product of sizes that it was at capture.

        It may be anything if its dimension has one element, or if the tensor is empty.
        """
        if not isinstance(stride, torch.SymInt) or stride.node.expr in self.numbers.entries:
            return
        empty: list[tuple[str, Any]] = [("int", 1)]
        for each in layout.size:
            empty += [*self.said(each.node.expr if isinstance(each, torch.SymInt) else each), ("mul", None)]
        length = layout.size[dim]
        single = [
            *self.said(length.node.expr if isinstance(length, torch.SymInt) else length),
            ("int", 1),
            ("eq", None),
        ]
        own = self.load(Source("stride", source, dim))
        same = [own, *self.said(stride.node.expr), ("eq", None)]
        self.programs[(*same, *single, ("or", None), *empty, ("int", 0), ("eq", None), ("or", None))] = None

    def said(self, expr: Any) -> Iterator[tuple[str, Any]]:
        """Yield the operations of an expression's program. Raises NotTranslatable."""
        if expr in self.numbers.entries:
            yield self.load(self.numbers.entries[expr][0])
        elif isinstance(expr, int) or expr.is_Integer:
            if not -LIMIT <= int(expr) < LIMIT:
                raise NotTranslatable
            yield "int", int(expr)
        elif expr.is_Float:
            yield "float", float(expr)
        elif expr.is_Boolean and not expr.args:
            yield "int", int(bool(expr))
        else:
            yield from self.applied(type(expr).__name__, expr.args)

    def applied(self, name: str, args: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
        if name in FOLDED:
            yield from self.said(args[0])
            for arg in args[1:]:
                yield from self.said(arg)
                yield FOLDED[name], None
        elif name in PLAIN:
            if name == "Pow" and not (args[1].is_Integer and args[1] >= 0):
                raise NotTranslatable
            for arg in args:
                yield from self.said(arg)
            yield PLAIN[name], None
        else:
            raise NotTranslatable
