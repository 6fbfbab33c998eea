"""Raise errors of whole-graph mode (`fullgraph=True`, `nopython=True`) where there can be no whole graph."""

from __future__ import annotations

import functools
import inspect
import linecache
from collections.abc import Callable
from types import CodeType, MethodType
from typing import Any, NoReturn
from weakref import ref

import torch

from torchdynamo import _native
from torchdynamo.bytecode.assemble import assemble
from torchdynamo.bytecode.decode import decode
from torchdynamo.bytecode.instruction import Instruction, Item
from torchdynamo.capture.exits import Why
from torchdynamo.codegen import resume
from torchdynamo.codegen.codegen import emit_call
from torchdynamo.core.source import Position
from torchdynamo.core.unsupported_text import unsupported_text
from torchdynamo.errors import Unsupported
from torchdynamo.guards.program import lower
from torchdynamo.hook.frames import is_library_file


def unsupported(why: Why, code: CodeType) -> Unsupported:
    """Return the exception for a reason why there is no whole graph."""
    end = why.position or Position(code.co_filename, code.co_firstlineno, function=code.co_name)
    calls = [*why.callers, end]
    users = [index for index, each in enumerate(calls) if not is_library_file(each.filename)]
    at = users[-1] if users else len(calls) - 1  # a library by itself is all there is to show
    place = calls[at]
    shown = (place.filename, place.line, place.function, line_of(place), place.column, end_column(place))
    lines = [(each.filename, each.line, each.function, line_of(each)) for each in calls]
    text = unsupported_text(why.reason, why.fields, *shown, callers=lines[:at], inside=lines[at + 1 :])
    return Unsupported(why.reason, text, place)


def line_of(place: Position) -> str:
    """Return the source line of a position; "" if it cannot be read."""
    return linecache.getline(place.filename, place.line) if place.line else ""


def end_column(place: Position) -> int | None:
    """Return the column at which the expression ends in its first line; None if it goes on in the next."""
    return place.end_column if place.end_line == place.line else None


class Refused:
    """Replaces a function whose kind can never be one graph: a call raises."""

    def __init__(self, fn: Callable[..., Any], reason: str) -> None:
        self.fn = fn
        code = body_of(fn).__code__
        self.error = unsupported(Why(reason, {"name": code.co_name}, None), code)

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise self.error

    @staticmethod
    def hide(error: BaseException) -> None:
        """Remove the traceback, so that the error appears to be raised by the call itself."""
        error.__traceback__ = None


def why_never(fn: Callable[..., Any]) -> str | None:
    """Return why a call of a function is never one graph, whatever its arguments; None if it may be."""
    body = body_of(fn)
    if inspect.isgeneratorfunction(body):
        return "generator"
    suspends = inspect.iscoroutinefunction(body) or inspect.isasyncgenfunction(body)
    return "coroutine" if suspends else None


def body_of(fn: Any) -> Any:
    """Return the function that a call of a callable finally runs."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if isinstance(fn, torch.nn.Module):
        fn = fn.forward
    elif not inspect.isroutine(fn):
        fn = fn.__call__
    return fn.__func__ if isinstance(fn, MethodType) else fn


def raised_in(code: CodeType, error: BaseException, owner_id: int) -> BaseException | _native.Entry:
    """Return an error, to be raised from a function's call; or an entry that raises it inside of a continuation.

    The entry raises where the continuation goes on, so that its open `with` and `finally` blocks run.
    """
    prologue = resume.origin(code).prologue
    if not prologue:
        return error
    decoded = decode(code)
    start = decoded.targets[decoded.instructions[prologue - 1].arg]
    resumed, items = decoded.instructions[start], decoded.items()
    at = items.index(resumed)
    raising = [Instruction("LOAD_CONST", error, resumed.position), Instruction("RAISE", 1, resumed.position)]
    return entry_for_one_call(code, [*items[:at], *raising, *items[at:]], owner_id)


def entry_for_one_call(code: CodeType, items: list[Item], owner_id: int) -> _native.Entry:
    """Return an entry that is dropped when its code begins to run."""
    owner = ref(code)
    kept: list[_native.Entry] = []

    def only_once() -> None:
        known = owner()
        if kept and known is not None:
            _native.drop_entry(known, kept.pop())

    first: list[Item] = []
    emit_call(lambda op, arg=None: first.append(Instruction(op, arg)), "LOAD_CONST", only_once, [], 0, 0)
    first.append(Instruction("POP"))
    entry = _native.Entry(assemble([*first, *items], code), lower([], (), code), owner_id=owner_id)
    kept.append(entry)
    return entry


def raising_entry(code: CodeType, instead: Unsupported, owner_id: int) -> _native.Entry:
    """Return an entry for one call: it runs the function's own code, and raises `instead` if that did not raise.

    It is for a program that will probably raise an error of its own. A rule of an operator may be stricter than the
    operator, so that nothing is raised. The next call is captured again.
    """

    def refuse() -> NoReturn:
        raise instead

    items: list[Item] = []

    def emit(op: str, arg: object = None) -> None:
        items.append(Instruction(op, arg))

    for fn in (_native.AsWritten(code), refuse):
        emit_call(emit, "LOAD_CONST", fn, [], 0, 0)
        emit("POP")
    emit("LOAD_CONST", None)
    emit("RETURN")
    return entry_for_one_call(code, items, owner_id)
