"""Create continuations: the rest of a frame as a function of its live locals and stack."""

from __future__ import annotations

import functools
import inspect
import itertools
import operator
from collections.abc import Collection, Iterable, Iterator
from types import CodeType
from typing import Any, NamedTuple
from weakref import ref

from torchdynamo import _native
from torchdynamo.bytecode import versions
from torchdynamo.bytecode.assemble import assemble
from torchdynamo.bytecode.bound import maybe_unbound
from torchdynamo.bytecode.decode import decode
from torchdynamo.bytecode.flow import reachable, successors
from torchdynamo.bytecode.instruction import CALLS, Code, Instruction, Item, Label
from torchdynamo.bytecode.liveness import live_locals
from torchdynamo.bytecode.percode import PerCode
from torchdynamo.codegen.setups import Setups, raised_again, raising_without_place, setups_at
from torchdynamo.codegen.unbound_cells import checked
from torchdynamo.core.signals import Restart
from torchdynamo.graph.tracebacks import Above

_numbers = itertools.count(1)
LOOP = "loop with a break"
"""Why a continuation is not captured that goes on in a loop, where nothing else has ended the graph."""


class Unset:
    """Stands for a variable that is not set, among what code is given."""


class Origin(NamedTuple):
    """The code that the user wrote and a continuation continues, and the length of the continuation's prologue."""

    code: CodeType
    prologue: int
    line: int  # line at which the user's code goes on; its first line if this is no continuation
    title: str  # name that is unique among continuations of the code, which all have the function's name
    shape: ResumePoint | None = None  # how to make the continuation again


class ResumePoint(NamedTuple):
    """Where a continuation begins, and what it is given: the arguments of `continuation`, for the user's code."""

    at: int  # the instruction
    names: tuple[str, ...]
    stack: tuple[bool, ...]
    until: int | None
    unsure: tuple[str, ...] = ()  # variables among them that may be unset: Unset is given for these


# weak: the user's code owns its continuations
_origins: PerCode[tuple[ref[CodeType], int, int, str, ResumePoint]] = PerCode()


def origin(code: CodeType) -> Origin:
    """Return the user's code behind a continuation; other code is its own origin."""
    known = _origins.get(code)
    source = None if known is None else known[0]()
    if known is None or source is None:
        return Origin(code, 0, code.co_firstlineno, code.co_name)
    return Origin(source, *known[1:])


def own_cell_names(code: CodeType) -> tuple[str, ...]:
    """Return the cell variables that each call of the user's function creates."""
    return origin(code).code.co_cellvars


def shape_of(code: CodeType) -> ResumePoint | None:
    """Return the shape of a continuation; None for code that is none."""
    return origin(code).shape


def is_continuation(code: CodeType) -> bool:
    return _origins.get(code) is not None


def continuation(
    code: CodeType,
    index: int,
    names: tuple[str, ...],
    stack: tuple[bool, ...],
    until: int | None = None,
    unsure: tuple[str, ...] = (),
) -> tuple[CodeType, ...]:
    """Return code that begins at instruction `index` with these locals and this stack (True: NULL).

    At the instruction `until`, where the stack is empty, it calls a second continuation, which is returned as well.
    Continuations are made once for each place and shape, and live as long as the user's code.
    """
    source, shift, *_ = origin(code)
    if index < shift:  # inside the prologue: none of the program has run yet
        raise Restart(-1)
    shape = ResumePoint(index - shift, names, stack, until and until - shift, unsure)
    known: dict[ResumePoint, tuple[CodeType, ...]] = decode(source).analyses.setdefault("continuations", {})
    if shape not in known:
        known[shape] = make(source, shape)
    return known[shape]


def prologue_of(stack: tuple[bool, ...], start: Label, position: Any, setups: Setups = ()) -> list[Instruction]:
    """Return instructions that restore the stack and jump to where the frame was left.

    If that is the last of the handlers, its exception, on top of the stack, is raised again.
    """
    made: list[Instruction] = []
    for depth, null in enumerate(stack):
        made += [Instruction("SETUP_FINALLY", label) for below, label in setups if below == depth]
        if (depth, start) in setups:
            made += raised_again(f"__stack{depth}")
        elif null:
            made.append(Instruction("NULL"))
        else:
            made.append(Instruction("LOAD_FAST", f"__stack{depth}"))
            made.append(Instruction("DELETE_FAST", f"__stack{depth}"))
    made += [Instruction("SETUP_FINALLY", label) for below, label in setups if below == len(stack)]
    made.append(Instruction("JUMP", start))
    for instruction in made:
        instruction.position = position
    return made


def unset(names: Iterable[str], unsure: Collection[str], position: Any) -> Iterator[Item]:
    """Yield instructions that unset the variables for which Unset is given."""
    for name in names:
        if name in unsure:
            over = Label()
            yield Instruction("LOAD_FAST", name, position)
            yield Instruction("LOAD_CONST", Unset, position)
            yield Instruction("COMPARE", "is", position)
            yield Instruction("BRANCH", ("false", over), position)
            yield Instruction("DELETE_FAST", name, position)
            yield over


def make(code: CodeType, shape: ResumePoint) -> tuple[CodeType, ...]:
    """Return the continuation of the user's code with this shape, and the one that it calls, if any."""
    index, names, stack, until, unsure = shape
    items = checked(code)
    resumed = [item for item in items if isinstance(item, Instruction)][index]
    start, position = Label(), resumed.position
    setups = setups_at(decode(code), index, start, len(stack))
    prologue = [*unset(names, unsure, position), *prologue_of(stack, start, position, setups)]
    length = sum(isinstance(item, Instruction) for item in prologue)
    at = items.index(resumed)
    arguments = (*names, *(f"__stack{depth}" for depth, null in enumerate(stack) if not null))
    rest: tuple[CodeType, ...] = ()
    if until is not None and does_something(decode(code), until):
        items, rest = continue_at(code, items, until, arguments)
    title = f"__resume_at_{resumed.offset}_{next(_numbers)}"
    name = None if versions.ONE_FRAME_SHOWN else title
    made = given(code, [*prologue, *items[:at], start, *items[at:]], arguments, name)
    _native.called_last(made)
    _origins.set(made, (ref(code), length, (position and position.lineno) or code.co_firstlineno, title, shape))
    return made, *rest


def continue_at(
    code: CodeType, items: list[Item], until: int, given: tuple[str, ...]
) -> tuple[list[Item], tuple[CodeType, ...]]:
    """Return the items with a call of another continuation at instruction `until`, and that continuation.

    Items are unchanged if the continuation would need a variable that may be unset there.
    """
    reached = [item for item in items if isinstance(item, Instruction)][until]
    live = live_locals(decode(code), until)
    names = tuple(name for name in code.co_varnames if name in live and name not in code.co_cellvars)
    (rest,), free, there = continuation(code, until, names, ()), free_names(code), Label()
    callee = [
        *(Instruction("LOAD_CELL", name) for name in free),
        *([Instruction("BUILD", ("tuple", len(free)))] if free else ()),
        Instruction("LOAD_CONST", rest),
        Instruction("MAKE_FUNCTION", ("closure",) if free else ()),
    ]
    null = Instruction("NULL")
    call = [
        *([null, *callee] if versions.NULL_FIRST else [*callee, null]),
        *(Instruction("LOAD_FAST", name) for name in names),
        Instruction("CALL", (len(names), ())),
        Instruction("RETURN"),
    ]
    jump = Instruction("JUMP", there)
    for instruction in (jump, *call):
        instruction.position = reached.position
    at = items.index(reached)
    made = [*items[:at], jump, *items[at:], there, *call]
    unset = maybe_unbound(made, given)
    return (items, ()) if any(made[place] in call for place in unset) else (made, (rest,))


def does_something(code: Code, start: int) -> bool:
    """Return whether anything is called or computed from an instruction on."""
    normal = successors(code)
    return any(code.instructions[index].op in COMPUTING for index in reachable([start], normal.__getitem__))


COMPUTING = CALLS | {"BINARY", "COMPARE", "UNARY", "GETITEM"}


class Rest(NamedTuple):
    """Arguments of `rest_of_frame`, from which the code for the rest of a frame was made."""

    code: ref[CodeType]  # weak, because it may be the code that owns the entry
    items: list[Item]
    names: tuple[str, ...]
    way: Above | None


_rests: PerCode[Rest] = PerCode()


def rest_of(code: CodeType) -> Rest | None:
    """Return what code was made of, if it is for the rest of a frame."""
    return _rests.get(code)


def rest_of_frame(code: CodeType, items: list[Item], names: tuple[str, ...], way: Above | None) -> CodeType:
    """Return code, not captured, for the rest of a frame with these variables.

    way: called with an exception that leaves the frame, to complete its traceback.
    """
    made = given(code, items, names)
    _rests.set(made, Rest(ref(code), items, names, way))
    _native.called_last(made, True, way)
    _native.skip_code(made, "left at a break")
    return made


def given(code: CodeType, items: list[Item], names: tuple[str, ...], name: str | None = None) -> CodeType:
    """Return the code of a function like `code` that takes these as positional arguments, and all its cells as free."""
    return assemble(
        raising_without_place(items),
        code,
        name=name,
        argnames=names,
        argcount=len(names),
        posonlyargcount=0,
        kwonlyargcount=0,
        flags=code.co_flags & ~OTHERWISE_CALLED,
        varnames=[each for each in code.co_varnames if each not in names and each not in code.co_cellvars],
        cellvars=(),
        freevars=free_names(code),
    )


OTHERWISE_CALLED = functools.reduce(
    operator.or_,
    (
        *(inspect.CO_VARARGS, inspect.CO_VARKEYWORDS, inspect.CO_GENERATOR),
        *(inspect.CO_COROUTINE, inspect.CO_ASYNC_GENERATOR, inspect.CO_ITERABLE_COROUTINE),
    ),
)


def free_names(code: CodeType) -> tuple[str, ...]:
    """Return the variables that a continuation takes as cells: the function's own and its free ones."""
    return (*code.co_cellvars, *code.co_freevars)
