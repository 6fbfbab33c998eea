"""Assemble canonical instructions into a code object.

The caller says what the code does; the prologue that CPython expects at the top of a frame is added here. The
`bytecode` package resolves jumps and writes the exception table and the line table.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from types import CodeType

import bytecode as package
from bytecode.instr import CellVar, Instr, InstrLocation

from torchdynamo.bytecode import versions
from torchdynamo.bytecode.constants import Constants
from torchdynamo.bytecode.depth import Raw, stack_size
from torchdynamo.bytecode.emit import StreamWriter
from torchdynamo.bytecode.instruction import Instruction, Item, Label, RegionEnd, RegionStart
from torchdynamo.bytecode.lines import NOWHERE, fill_gaps
from torchdynamo.bytecode.qualnames import qualname_of, remember_qualname
from torchdynamo.bytecode.regions import has_stop_handler
from torchdynamo.bytecode.writers import WRITERS

_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_STARS = (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS)


def argument_names(code: CodeType) -> tuple[str, ...]:
    """Return the names of all arguments, `*args` and `**kwargs` last, as in co_varnames."""
    count = code.co_argcount + code.co_kwonlyargcount + sum(bool(code.co_flags & star) for star in _STARS)
    return code.co_varnames[:count]


def assemble(
    items: Sequence[Item],
    like: CodeType,
    *,
    name: str | None = None,
    qualname: str | None = None,
    argnames: Sequence[str] | None = None,
    argcount: int | None = None,
    posonlyargcount: int | None = None,
    kwonlyargcount: int | None = None,
    flags: int | None = None,
    varnames: Sequence[str] | None = None,
    cellvars: Sequence[str] | None = None,
    freevars: Sequence[str] | None = None,
) -> CodeType:
    """Return a code object that runs `items` and otherwise has the attributes of `like`.

    argnames: all arguments in order, stars included; `argcount` follows from it unless given. varnames: locals after
    the arguments, in order (arguments among them are skipped); further locals that the instructions use are added at
    the end. Raises ValueError if a name is both a cell and a free variable.
    """
    final_flags = like.co_flags if flags is None else flags
    arguments = argument_names(like) if argnames is None else tuple(argnames)
    kwonly = like.co_kwonlyargcount if kwonlyargcount is None else kwonlyargcount
    positional = like.co_argcount if argcount is None else argcount
    if argnames is not None and argcount is None:
        positional = len(arguments) - kwonly - sum(bool(final_flags & star) for star in _STARS)
    local = tuple(dict.fromkeys([*arguments, *(like.co_varnames if varnames is None else varnames)]))

    made = package.Bytecode()
    made.name = like.co_name if name is None else name
    made.filename = like.co_filename
    made.first_lineno = like.co_firstlineno
    made.flags = package.CompilerFlags(final_flags)
    made.argcount = positional
    made.posonlyargcount = like.co_posonlyargcount if posonlyargcount is None else posonlyargcount
    made.kwonlyargcount = kwonly
    made.argnames = list(local)
    made.cellvars = list(like.co_cellvars if cellvars is None else cellvars)
    made.freevars = list(like.co_freevars if freevars is None else freevars)
    made.qualname = qualname or _qualname(like, name)

    first = like.co_consts[0] if like.co_consts else None
    constants = Constants(first if isinstance(first, str) else None)
    made.docstring = constants.docstring  # type: ignore[assignment]
    both = set(made.cellvars) & set(made.freevars)
    if both:  # possible in class bodies, where the name does not tell which of the two an instruction means
        raise ValueError(f"{like.co_name}: {', '.join(sorted(both))} is both a cell and free")
    suspends = bool(final_flags & _SUSPENDS)
    own = RegionStart(Label(), True, 0) if suspends and has_stop_handler(like) else None
    items = [*_body(items, made.first_lineno, own)]
    emitter = StreamWriter(items, constants, made.cellvars, made.freevars, local, arguments, WRITERS)
    stream = [*_prologue(made, suspends), *emitter.run()]
    if not versions.LINE_CAN_BE_NONE:
        fill_gaps(stream, made.first_lineno)
    size = stack_size(stream, versions.GENERATOR_DEPTH * suspends)
    made.extend(stream)
    code = constants.fill(made.to_code(stacksize=size, compute_exception_stack_depths=False))
    if versions.FUNCTION_TAKES_QUALNAME:
        remember_qualname(code, made.qualname)
    return code


def _qualname(like: CodeType, name: str | None) -> str:
    qualname = qualname_of(like)
    return qualname if name is None else qualname[: -len(like.co_name)] + name


def _body(items: Sequence[Item], line: int, own: RegionStart | None) -> Iterator[Item]:
    """Yield the items with what begins a frame. own: the region that is around a generator's."""
    if own is not None:
        yield own
    if versions.HAS_PROLOGUE:
        yield Instruction("RESUME", 0, versions.Positions(line, line, 0, 0))
    yield from items
    if own is not None:
        yield RegionEnd(own)
        yield own.handler
        yield Instruction("INTRINSIC", "STOPITERATION_ERROR", versions.Positions())
        yield Instruction("RERAISE", 1, versions.Positions())


def _prologue(made: package.Bytecode, suspends: bool) -> Iterator[Raw]:
    top = InstrLocation(made.first_lineno, None, None, None)
    if versions.HAS_PROLOGUE:
        if made.freevars:
            yield Instr("COPY_FREE_VARS", len(made.freevars), location=NOWHERE)
        for name in made.cellvars:
            yield Instr("MAKE_CELL", CellVar(name), location=NOWHERE)
        if suspends:
            yield Instr("RETURN_GENERATOR", location=top)
            yield Instr("POP_TOP", location=top)
    elif suspends:
        kinds = (inspect.CO_GENERATOR, inspect.CO_COROUTINE, inspect.CO_ASYNC_GENERATOR)
        kind = next(number for number, flag in enumerate(kinds) if made.flags & flag)
        yield Instr("GEN_START", kind, location=NOWHERE)
