"""Capture a frame as far as possible: where a capture must end early, do it again from the start up to there."""

from __future__ import annotations

import contextlib
import functools
from types import CodeType
from typing import NamedTuple

from torchdynamo.cache.dynamic_sources import what_varies
from torchdynamo.cache.entries import entries_of, wasted
from torchdynamo.capture.capture import Capture, capture
from torchdynamo.capture.exits import Return, Why
from torchdynamo.capture.speculate import self_invalidation
from torchdynamo.capture.vm import interop
from torchdynamo.capture.vm.call_records import Checking
from torchdynamo.codegen import codegen, dynamism_across_breaks, resume
from torchdynamo.core import learned, marks
from torchdynamo.core.signals import Break, Restart, Retry, StopPath
from torchdynamo.core.source import Roots, Source
from torchdynamo.errors import (
    InternalError,
)
from torchdynamo.graph import shape_env
from torchdynamo.graph.build import GraphBuilder
from torchdynamo.graph.deopt_safety import can_run_again
from torchdynamo.guards.blocks import checking_of_blocks
from torchdynamo.specialization import MOST_WASTED, MOST_WHOLE, MOST_WHOLE_IF_ASKED, CompilerSettings, Specialization


class Followed(NamedTuple):
    """A captured frame, and the code drafted for it."""

    capture: Capture
    draft: codegen.Draft
    builder: GraphBuilder
    why: Why | None
    constant: Break | None  # the break that symbols would have led to, if numbers are constants because of it


BLOCKS: Checking | None = checking_of_blocks  # how guards are held against further blocks; None: all are executed
MOST_TRIES = 64  # tries to capture a frame: eight times as many as any test takes
SHARED_MEMORY = "tensors share memory with what the function reads or writes itself"
NOT_MADE = "side effect not replayable"


def follow(
    code: CodeType, roots: Roots, compiler: CompilerSettings, asked: frozenset[Source] = frozenset()
) -> Followed | Why:
    """Capture a frame, again and shorter if needed; return the reason if nothing can be captured.

    asked: sources of numbers that are symbols, besides those that have been seen to change.
    """
    stops: StopPath = ()
    why: Why | None = None
    place: StopPath = ()  # stop of the first break
    is_error = interop.breaks_are_errors()
    checking = compiler.fullgraph or not learned.record(code).not_speculated
    known = entries_of(code, compiler.owner_id)
    most = MOST_WHOLE_IF_ASKED if resume.origin(code).code in marks.ASKED else MOST_WHOLE
    settling = compiler.fullgraph or (len(known) < most and wasted(code, compiler.owner_id) < MOST_WASTED)
    whole = settling and all(entry.why is None for entry in known)
    varying = drawn = frozenset[Source]()
    if compiler.dynamic is not False:
        undivided = compiler.fullgraph or is_error
        varying, drawn = (
            what_varies(code, compiler.owner_id, roots, undivided),
            dynamism_across_breaks.varying_at_entry(code, roots),
        )
        varying |= dynamism_across_breaks.returned_floats(code, roots)
    specialization = Specialization(compiler, roots, varying | asked, drawn, settling, bool(known) and whole)
    for _ in range(MOST_TRIES):
        builder = specialization.builder()
        try:
            with contextlib.nullcontext() if specialization.by_value else shape_env.sizes_zero_and_one_like_others():
                captured = capture(code, roots, builder, stops, checking, BLOCKS)
            if not can_deoptimize(captured, builder, compiler.fullgraph):
                captured.machine.let_go()
                stops, why, checking = (), None, False
                continue
            if specialization.counts(self_invalidation.counted(captured, resume.own_cell_names(code))):
                captured.machine.let_go()
                continue
            dynamism_across_breaks.record_sources(code, self_invalidation.left(captured))
            captured = captured._replace(why=why if stops == place else None)
            if isinstance(captured.exit, Return):
                dynamism_across_breaks.record_results(resume.origin(code).code, captured.exit.value, captured.machine)
            constant = specialization.tried if specialization.fixed else None
            return Followed(captured, drafted(captured, builder), builder, why, constant)
        except Retry as again:
            specialization.drop(again.without)
            continue
        except Break as raised:
            raised.__traceback__ = None  # it would make a cycle with this frame and keep the user's objects alive
            end = specialization.other(raised, builder, beginning=not stops)
            if end is None:
                continue
            place = place if why else end.restart
            why = why or why_of(end)
            earlier, is_error = end.restart, end.is_error
        except Restart as again:
            end = specialization.back() if specialization.fixed else None
            why = why or (why_of(end) if end else Why(NOT_MADE, {"what": again.what}, None))
            # An object made in an inlined call may not exist yet at a stop further out.
            inside = again.step < 0 or stops[:1] == (again.step,)
            earlier = end.restart if end else stops[: len(stops) // 2] if inside else (again.step,)
        if compiler.fullgraph or is_error:
            return why
        if stops and earlier >= stops:
            earlier = stops[:-1]
        if not earlier:
            return why
        stops = earlier
    raise InternalError(f"no way to capture it was found in {MOST_TRIES} tries, the last of which stopped at {stops}")


def why_of(end: Break) -> Why:
    """Return a break as the reason to be shown to the user."""
    return Why(end.reason, end.fields, end.where, end.callers, end.raises, end.is_error)


def can_deoptimize(captured: Capture, builder: GraphBuilder, whole: bool) -> bool:
    """Return whether a frame can run from its start, as written, if its graph raises or an assertion fails."""
    vm = captured.machine
    if not vm.checks and not vm.may_raise:
        return True
    return vm.effects.is_level() and can_run_again(builder, vm.checks, vm.input_objects, whole)


def drafted(captured: Capture, builder: GraphBuilder) -> codegen.Draft:
    """Return the code drafted for a capture. Raises Restart where an object cannot be materialized."""
    try:
        return codegen.draft(captured, functools.partial(leaves_no_trace, captured, builder))
    except BaseException:
        captured.machine.let_go()
        raise


def leaves_no_trace(captured: Capture, builder: GraphBuilder) -> bool:
    """Return whether the frame can run as written after its graph has raised.

    Modes are restored before that. If a continuation begins inside of a `with` block and leaves it, its modes at the
    end are not those in which the graph raises.
    """
    return captured.machine.ops > 0 and not builder.record.random and can_run_again(builder, ())
