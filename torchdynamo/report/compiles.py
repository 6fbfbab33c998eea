"""Record what became of each frame: compiled, broken, compiled again, or left to Python."""

from __future__ import annotations

import itertools
import logging
import sys
import time
from collections.abc import Sequence
from types import CodeType
from typing import Any, NamedTuple
from weakref import ref

from torchdynamo import _native, events
from torchdynamo.cache.entries import CompiledEntry, entries_of
from torchdynamo.capture.exits import Why
from torchdynamo.codegen import outline, resume
from torchdynamo.core import learned
from torchdynamo.core.reasons import SKIPS, hint, message
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Guard, Position, Roots
from torchdynamo.events import Place
from torchdynamo.guards.explain import FailedGuard, first_failure
from torchdynamo.guards.explain import named as named_source
from torchdynamo.hook.frames import is_program
from torchdynamo.report import debug, explain, recompiles
from torchdynamo.report.limit import named
from torchdynamo.report.recompiles import Hindrance, NumberInput, remedy

graphs_log = logging.getLogger("torchdynamo.graphs")
guards_log = logging.getLogger("torchdynamo.guards")
bytecode_log = logging.getLogger("torchdynamo.bytecode")

_functions = itertools.count()


class GraphId(NamedTuple):
    """The name of a graph: a function's number in this process, and how many of its graphs came before."""

    function: str
    number: int
    version: int

    def __str__(self) -> str:
        return f"{self.function} graph {self.number}/{self.version}"


def next_graph_id(code: CodeType) -> GraphId:
    """Return the name of the next graph of a function; its continuations count as it."""
    users = resume.origin(code).code
    known = learned.record(users)
    if known.number is None:
        known.number = next(_functions)
    known.graphs += 1
    return GraphId(users.co_name, known.number, known.graphs - 1)


def whole(code: CodeType) -> str:
    """Return the function that a part was outlined from, as its graphs are named; "" for other code."""
    place = outline.place_of(resume.origin(code).code)
    if place is None:
        return ""
    users = resume.origin(place[0]).code
    number = learned.record(users).number
    return "" if number is None else f"{users.co_name} graph {number}"


def what_failed(code: CodeType, owner_id: int, roots: Roots) -> FailedGuard | None:
    """Return the guard of the newest entry that fails for this call; None for the first entry."""
    known = entries_of(code, owner_id)
    return first_failure(known[-1].guards, roots) if known else None


def recompile_text(
    code: CodeType, failed: FailedGuard, varying: list[NumberInput], guards: list[Guard], constant: Break | None
) -> str:
    """Return the message that says why a function is compiled again."""
    hindrance = None
    if constant is not None:
        hindrance = Hindrance(message(constant.reason, **constant.fields), constant.where)
    return recompiles.recompile_message(named(code), failed, varying, guards, hindrance)


def place_of(position: Position) -> Place:
    """Return a position of a capture as a place of an event."""
    filename, line, end_line, column, end_column, function = position
    return Place(filename, line or 0, function, end_line, column, end_column)


def beginning(code: CodeType) -> Place:
    """Return the place at which a function begins, or at which a continuation of it goes on."""
    users = resume.origin(code)
    return Place(users.code.co_filename, users.line, users.code.co_name)


def calling() -> tuple[Place, ...]:
    """Return the program's innermost active call: what has led to the frame that is compiled."""
    frame = sys._getframe(1)
    while frame is not None and not is_program(frame.f_code):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None:
        return ()
    code = resume.origin(frame.f_code).code  # a continuation has a name of its own on some versions
    return (Place(code.co_filename, frame.f_lineno or 0, code.co_name),)


def tell_compiled(
    code: CodeType,
    graph_id: GraphId,
    backend: str,
    entry: _native.Entry,
    started: float,
    operators: int,
    numbers: Sequence[NumberInput],
    again: str,
    at_call: bool,
    stored: str,
    loaded: bool = False,
) -> None:
    """Record a frame that has an entry, and the break at which that ends, if it does.

    at_call: the frame ends before a call that leads to the break, so the callee, if it is compiled, has it as well.
    stored: what the store of captures has of it. loaded: the entry comes from there.
    """
    record: CompiledEntry = entry.info
    gm, why = record.graph, record.why
    facts: dict[str, Any] = {"graph": str(graph_id), "backend": backend, "code": ref(code), "made": ref(record.code)}
    compiled = events.record(
        "compile",
        beginning(code),
        again,
        operators=operators,
        symbols=tuple((each.name, named_source(each.source), each.least, each.most) for each in numbers),
        chain=calling(),
        part_of=whole(code),
        seconds={"store": time.perf_counter() - started} if loaded else events.seconds(),
        stored="hit" if loaded else "",
        **facts,
    )
    if why is not None:
        tell_end("break", code, why, parent=compiled.number, at_call=at_call, **facts)
    if gm is not None and graphs_log.isEnabledFor(logging.DEBUG):
        graphs_log.debug("%s\n%s", graph_id, debug.graph_table(record.name, gm))
    if guards_log.isEnabledFor(logging.DEBUG):
        guards_log.debug("%s: %d guards\n%s", graph_id, len(record.guards), record.guards)
    if bytecode_log.isEnabledFor(logging.DEBUG):
        bytecode_log.debug("%s\n%s", debug.bytecode("ORIGINAL", code), debug.bytecode("MODIFIED", record.code))
    if explain.watched():
        explain.emit(explained(code, backend, why, started, entry, operators, numbers, again, stored))


def tell_again(code: CodeType, failed: FailedGuard, text: str, roots: Roots, dynamic: bool | None) -> None:
    """Record that a function is compiled again, and what has changed."""
    change = failed.change
    events.record(
        "recompile",
        beginning(code),
        text,
        hint=remedy(failed, roots, dynamic),
        source=f"{named_source(failed.guard.source)}{change.part}",
        old=str(change.old)[: events.LONGEST],
        new=str(change.new)[: events.LONGEST],
        code=ref(code),
    )


def tell_left(code: CodeType, backend: str, why: Why, started: float, stored: str) -> None:
    """Record a frame that is left to Python after a capture. stored: as for `tell_compiled`."""
    tell_end("skip" if why.reason in SKIPS else "break", code, why)
    if explain.watched():
        explain.emit(explained(code, backend, why, started, stored=stored))


def tell_end(kind: events.Kind, frame: CodeType, why: Why, **facts: Any) -> None:
    """Record what has ended the capture of a frame, at the user's line. facts: further fields of the event."""
    place = beginning(frame) if why.position is None else place_of(why.position)
    chain = tuple(place_of(each) for each in why.callers)
    text, advice = message(why.reason, **why.fields), hint(why.reason, **why.fields)
    events.record(kind, place, text, hint=advice, reason=why.reason, chain=chain, **facts)


def explained(
    code: CodeType,
    backend: str,
    why: Why | None,
    started: float,
    entry: _native.Entry | None = None,
    operators: int = 0,
    numbers: Sequence[NumberInput] = (),
    again: str = "",
    stored: str = "",
) -> explain.CompileEvent:
    """Return the frame as `torchdynamo.explain` collects it."""
    place = why.position if why else None
    users = resume.origin(code)
    record: CompiledEntry | None = entry.info if entry is not None else None
    return explain.CompileEvent(
        function=users.code.co_name,
        filename=place.filename if place else users.code.co_filename,
        line=(place.line if place else None) or users.line,
        graph=record.graph if record is not None else None,
        ops=operators,
        reason=why.reason if why else None,
        reason_text=message(why.reason, **why.fields) if why else "",
        guards=record.guards if record is not None else (),
        seconds=time.perf_counter() - started,
        backend=backend,
        numbers=numbers,
        again=again,
        entry=entry,
        stored=stored,
    )
