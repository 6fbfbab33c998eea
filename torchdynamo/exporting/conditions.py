"""Turn the guards of a capture into conditions of an exported program, which people read and torch checks.

Conditions on sizes and integers of arguments become guards of torch's own shape environment while the graph is traced,
which an ExportedProgram keeps and its `module()` checks; so do dtypes. What is about the program itself (modules,
globals, settings) has been decided for good: it is told, and there is nothing left to check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from torchdynamo.core.naming import text_of
from torchdynamo.core.number_programs import OPERATIONS, Program
from torchdynamo.core.source import Guard, Source
from torchdynamo.exporting.calls import ExampleCall
from torchdynamo.guards.explain import WITHOUT_PLACE
from torchdynamo.guards.kinds import KINDS
from torchdynamo.guards.kinds.numbers import SIGNS, tell
from torchdynamo.guards.kinds.tensor_match import TensorMeta

KEY = "torchdynamo"


class Condition(NamedTuple):
    """A fact that held for the example call. `place`: the line that relies on it; `checked`: by `program.module()`."""

    text: str
    place: str
    checked: bool

    def __str__(self) -> str:
        return f"{self.text}  ({self.place})" if self.place else self.text


def conditions(guards: Iterable[Guard], call: ExampleCall) -> list[Condition]:
    """Return the guards of a capture as conditions; those on arguments come first."""
    own: list[Condition] = []
    others: list[Condition] = []
    for guard in guards:
        at = guard.position
        place = f"{at.filename}:{at.line}" if at is not None and at.filename != call.code.co_filename else ""
        if guard.kind == "NUMBERS":
            sources, programs = guard.arg
            for program in programs:
                checked = is_checked(program, guard, call)
                (own if checked else others).append(Condition(tell(program, sources), place, checked))
        elif call.is_argument(guard.source):
            own += [Condition(text, place, checked) for text, checked in of_argument(guard, call)]
        else:
            others.append(Condition(of_program(guard), place, False))
    return list(dict.fromkeys([*own, *others]))


def of_argument(guard: Guard, call: ExampleCall) -> list[tuple[str, bool]]:
    """Return what a guard says of an argument, and whether a loaded program checks it."""
    place, arg = str(guard.source), guard.arg
    if isinstance(arg, TensorMeta):
        sizes = [
            (f"{place}.size({dim}) == {size}", True) for dim, size in enumerate(arg.size or ()) if size is not None
        ]
        facts = [(f"{place}.dtype == {arg.dtype}", True), (f"{place}.dim() == {len(arg.size or ())}", True)]
        told = [f"device == {str(arg.device)!r}", f"requires_grad == {arg.requires_grad}", f"layout == {arg.layout}"]
        told += [] if arg.stride is None else [f"stride() == {arg.stride}"]
        return [*facts, *sizes, *((f"{place}.{fact}", False) for fact in told)]
    if guard.kind == "EQUALS_MATCH":
        return [(f"{place} == {text_of(arg)}", guard.source in call.sources)]
    return [(of_program(guard), guard.kind in ("TYPE_MATCH", "LENGTH", "HAS_KEY", "NO_KEY"))]


def of_program(guard: Guard) -> str:
    """Return what a guard says, in one line."""
    subject = WITHOUT_PLACE.get(guard.kind, str(guard.source))
    return f"{subject} {guard.kind} {KINDS[guard.kind].describe(guard.arg)}".strip()


# -- conditions that torch checks -------------------------------------------------------------------------------------
SYMBOLIC: dict[str, Callable[..., Any]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "not": torch.sym_not,
    "min": torch.sym_min,
    "max": torch.sym_max,
    "to_float": torch.sym_float,
    "where": torch.sym_ite,
}


class SizeConditions:
    """Conditions on sizes and integers, over the leaves of a call's arguments."""

    def __init__(self, guards: Iterable[Guard], call: ExampleCall, leaf_of: Callable[[Source], int | None]) -> None:
        self.rows: list[tuple[Program, list[tuple[int, str, Any]]]] = []
        for guard in guards:
            for program in guard.arg[1] if guard.kind == "NUMBERS" else ():
                places = [place_of(source, leaf_of) for source in guard.arg[0]]
                used = {operand for name, operand in program if name == "load"}
                if is_checked(program, guard, call) and all(places[at] is not None for at in used):
                    self.rows.append((program, [each or (0, "", None) for each in places]))

    def hold(self, leaves: Sequence[Any]) -> None:
        """Have torch guard the conditions on the numbers of these leaves, as it traces."""
        for program, places in self.rows:
            numbers = [number(leaves[at], how, arg) for at, how, arg in places]
            torch._check(evaluated(program, numbers))


def place_of(source: Source, leaf_of: Callable[[Source], int | None]) -> tuple[int, str, Any] | None:
    """Return the leaf that a number is of, and how it is read; None if it is of none."""
    if source.how in ("size", "stride") and source.base is not None:
        leaf = leaf_of(source.base)
        return None if leaf is None else (leaf, source.how, source.arg)
    leaf = leaf_of(source)
    return None if leaf is None else (leaf, "", None)


def number(leaf: Any, how: str, arg: Any) -> Any:
    """Return a number of a leaf: itself, a size or a stride."""
    return getattr(leaf, how)(arg) if how and isinstance(leaf, torch.Tensor) else leaf


def evaluated(program: Program, numbers: Sequence[Any]) -> Any:
    """Return the truth of a condition on numbers, some of which may be torch's symbols."""
    stack: list[Any] = []
    for name, operand in program:
        count, fn = OPERATIONS[name]
        if count == 0:
            stack.append(numbers[operand] if name == "load" else operand)
        else:
            stack[-count:] = [SYMBOLIC.get(name, fn)(*stack[-count:])]
    return stack[0]


# Operations of conditions that are written in Python as `tell` writes them.
IN_PYTHON = frozenset({*SIGNS, "load", "int", "float", "min", "max", "abs", "not"})


def checks(guards: Iterable[Guard], call: ExampleCall, leaf_of: Callable[[Source], int | None]) -> list[str]:
    """Return the conditions on sizes, integers and dtypes of arguments as an ExportedProgram keeps its guards.

    torch makes guards of its own of most of these, but takes sizes for larger than 1.
    """
    names = [f"L[{name!r}]{pytree.keystr(path)}" for name, path in call.paths]

    def spelled(source: Source) -> str | None:
        place = place_of(source, leaf_of) if call.is_argument(source) else None
        return None if place is None else names[place[0]] + (f".{place[1]}({place[2]})" if place[1] else "")

    found: dict[str, None] = {}
    for guard in guards:
        if guard.kind == "NUMBERS":
            for program in guard.arg[1]:
                if is_checked(program, guard, call) and {name for name, _ in program} <= IN_PYTHON:
                    sources = [spelled(source) for source in guard.arg[0]]
                    if all(sources[operand] is not None for name, operand in program if name == "load"):
                        found[tell(program, tuple(sources))] = None
        elif isinstance(guard.arg, TensorMeta) and spelled(guard.source) is not None:
            found[f"str({spelled(guard.source)}.dtype) == {str(guard.arg.dtype)!r}"] = None
        elif guard.kind == "EQUALS_MATCH" and guard.arg is None and spelled(guard.source) is not None:
            found[f"{spelled(guard.source)} is None"] = None
    return list(found)


def is_checked(program: Program, guard: Guard, call: ExampleCall) -> bool:
    """Return whether a loaded program checks a condition: one on arguments, on strides only if the program asked for
    them. Operators take all strides.
    """
    used = [guard.arg[0][operand] for name, operand in program if name == "load"]
    if not all(map(call.is_argument, used)):
        return False
    return guard.position is not None or all(source.how != "stride" for source in used)
