"""Explain why a function is compiled again: what changed, what becomes a symbol, what stays constant and why."""

from __future__ import annotations

import ast
import linecache
import logging
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch

from torchdynamo.capture.torch.dynamic_marks import said_of
from torchdynamo.core.source import Guard, Position, Roots, Source
from torchdynamo.core.unsupported_text import quote
from torchdynamo.guards.explain import FailedGuard, has_name, named
from torchdynamo.guards.kind import read
from torchdynamo.guards.kinds.numbers import tell

logger = logging.getLogger("torchdynamo.recompiles")
MOST = (1 << 63) - 1


class NumberInput(NamedTuple):
    """A symbol that is an input of the graph: its name there, its source, its bounds."""

    name: str
    source: Source
    least: int | None
    most: int | None

    @property
    def bounds(self) -> str:
        if self.least is None and self.most is None:
            return "any"
        if self.most is None:
            return f"at least {self.least}"
        return f"at most {self.most}" if self.least is None else f"{self.least} to {self.most}"


class Decision(NamedTuple):
    """A condition on symbols that a line of the user's decided."""

    fact: str
    position: Position

    def __str__(self) -> str:
        place = f"{self.position.filename}:{self.position.line}"
        return "\n".join([f"{place} decides: {self.fact}", *pointed_at(self.position)])


class Hindrance(NamedTuple):
    """A reason why a number cannot become a symbol: it would end the graph."""

    text: str
    position: Position | None

    def __str__(self) -> str:
        if self.position is None:
            return f"where it varies, {self.text}"
        place = f"{self.position.filename}:{self.position.line}"
        return "\n".join([f"where it varies, {self.text} ({place})", *pointed_at(self.position)])


def pointed_at(place: Position) -> list[str]:
    """Return the source line of a position, with carets under the expression."""
    line = linecache.getline(place.filename, place.line) if place.line else ""
    end = place.end_column if place.end_line == place.line else None
    return quote(line, place.column, end) if line.strip() else []


def decisions(guards: Iterable[Guard]) -> list[Decision]:
    """Return the conditions on symbols that lines of the program have decided."""
    return [
        Decision(tell(program, guard.arg[0]), guard.position)
        for guard in guards
        if guard.kind == "NUMBERS" and guard.position is not None
        for program in guard.arg[1]
    ]


def recompile_message(
    where: str,
    failure: FailedGuard | None,
    numbers: Sequence[NumberInput],
    guards: Iterable[Guard],
    hindrance: Hindrance | None = None,
) -> str:
    """Return the message: the old and new value, and what the next entry assumes."""
    decided = decisions(guards)
    lines = [f"{where} is compiled again: {failure or 'another version does not fit'}"]
    if failure is not None and failure.guard.kind == "NUMBERS" and failure.guard.position is not None:
        lines += pointed_at(failure.guard.position)
    if numbers:
        lines.append(
            "what varies from now on: " + ", ".join(f"{named(n.source)} ({n.name}, {n.bounds})" for n in numbers)
        )
    elif failure is not None and is_any_float(failure.guard.source, guards):
        lines.append(f"what varies from now on: {named(failure.guard.source)} (any float)")
    elif failure is not None and not decided:
        why = str(hindrance or why_fixed(failure))
        lines += f"{named(failure.guard.source)} is static: {why}".splitlines()
    lines += [line for decision in decided for line in str(decision).splitlines()]
    return "\n    ".join(lines)


def is_any_float(source: Source, guards: Iterable[Guard]) -> bool:
    """Return whether the next entry takes a changed number as a float input."""
    return any(each.source is source and each.kind == "TYPE_MATCH" and each.arg is float for each in guards)


def why_fixed(failure: FailedGuard) -> str:
    """Return why a changed fact is guarded again in the next entry."""
    if failure.guard.kind == "TENSOR_MATCH":
        return "only sizes and strides can vary, and not those of parameters or under dynamic=False"
    if failure.guard.kind == "EQUALS_MATCH":
        return "only integers and floats can vary, and not where the program needs their value"
    return f"{failure.guard.kind} is about what an object is"


def remedy(failure: FailedGuard | None, roots: Roots, dynamic: bool | None) -> str:
    """Return what to write so that a function is not compiled for each value."""
    if failure is None:
        return RAISE
    guard, change = failure.guard, failure.change
    if guard.kind == "NUMBERS" and guard.position is not None:
        place = f"{guard.position.filename}:{guard.position.line}"
        return f"{place} depends on the number, so each answer needs its own version: use tensors, or raise the limit."
    if dynamic is False and (change.part in SIZES or type(guard.arg) in (int, float)):
        return "dynamic=None, the default, makes that a symbol once it changes; dynamic=False never does."
    if guard.kind == "TENSOR_MATCH" and change.part in SIZES:
        before, now = (ast.literal_eval(sizes) or () for sizes in (change.old, change.new))  # None: a nested tensor's
        dims = [dim for dim, (old, new) in enumerate(zip(before, now)) if old != new and old is not None]
        if not dims:
            return RAISE
        if not has_name(guard.source):
            return "torchdynamo.mark_dynamic of the input that it is computed from saves a compile."
        tensor = read(guard.source, roots)
        if isinstance(tensor, torch.Tensor) and said_of(tensor).static.intersection(dims):
            return f"mark_static has been said of {guard.source}: without, that becomes a symbol once it changes."
        marks = dims[0] if len(dims) == 1 else dims
        return f"torchdynamo.mark_dynamic({guard.source}, {marks}) makes that a symbol from the first compile on."
    if guard.kind == "EQUALS_MATCH" and type(guard.arg) in (int, float) and has_name(guard.source):
        return f'torchdynamo.config.dynamic_sources = "{guard.source}" makes it a symbol from the first compile on.'
    if guard.kind == "EQUALS_MATCH" and guard.source.how == "method" and type(guard.arg) is bytes:
        return ARRAY
    if guard.kind == "EQUALS_MATCH":
        return VALUES.get(type(guard.arg), RAISE)
    return KINDS.get(guard.kind, RAISE)


RAISE = "Compute with tensors what varies, or raise the limit."
ARRAY = "Make a tensor of the NumPy array before the call: its numbers are constants where they decide something."
TEXTS = "Each string needs its own version: decide by it outside of the function, or raise the limit."
# What to write where a value that is no number changes, by its type.
VALUES = {
    str: TEXTS,
    bytes: TEXTS,
    bool: "Each side of a flag needs its own version: decide by it outside of the function, or raise the limit.",
}
# The same by kind of guard, where the object itself is another one.
ANOTHER = "Make the object once and pass the same one in each call: another one needs a version of its own."
KINDS = {
    "ID_MATCH": ANOTHER,
    "FUNCTION_MATCH": "Define the function once, outside of what is called often: each one needs a version of its own.",
    "SAME_OBJECT": "Pass the same object in both places in each call, or in none.",
    "TENSOR_MATCH": "Bring the tensor to one dtype, device and requires_grad before the call, or raise the limit.",
    "TYPE_MATCH": "Convert the value to one type before the call, or raise the limit.",
    "GLOBAL_STATE": "Set modes such as grad mode and autocast to the same in each call, or raise the limit.",
}
SIZES = frozenset({".size()", ".stride()"})


def wanted() -> bool:
    """Return whether anybody reads these messages."""
    return logger.isEnabledFor(logging.INFO)


def say(text: str) -> None:
    logger.info("%s", text)


def number_inputs(values: Iterable[Any], ranges: Any) -> list[NumberInput]:
    """Return those inputs of a graph that are symbols, with their bounds."""
    found = []
    for value in values:
        least, most = ranges(value.fake)
        if least is None or least != most:
            found.append(NumberInput(value.node.name, value.source, least, most))
    return found
