"""Captures a frame as far as it goes: where a capture must end early, once more from the start up to there."""

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
from torchdynamo.specialization import MOST_WASTED, MOST_WHOLE, MOST_WHOLE_IF_ASKED, CompilerSettings, Specialization


class Followed(NamedTuple):
    """A frame that was executed as far as possible, and the code drafted for it."""

    capture: Capture
    draft: codegen.Draft
    builder: GraphBuilder
    why: Why | None
    constant: Break | None  # what numbers that vary would have led to: they are constants


MOST_TRIES = 64  # to capture a frame; eight times the most that any test takes
SHARED_MEMORY = "tensors share memory with what the function reads or writes itself"
NOT_MADE = "side effect not replayable"


def follow(code: CodeType, roots: Roots, compiler: CompilerSettings) -> Followed | Why:
    """Capture; where that must end early, again from the start up to there. Why, if nothing can be captured."""
    stops: StopPath = ()
    why: Why | None = None
    place: StopPath = ()  # of the first break
    checking = compiler.fullgraph or not learned.record(code).not_speculated
    known = entries_of(code, compiler.owner_id)
    most = MOST_WHOLE_IF_ASKED if resume.origin(code).code in marks.ASKED else MOST_WHOLE
    settling = compiler.fullgraph or (len(known) < most and wasted(code, compiler.owner_id) < MOST_WASTED)
    whole = settling and all(entry.why is None for entry in known)
    varying = drawn = frozenset[Source]()
    if compiler.dynamic is not False:
        undivided = compiler.fullgraph or interop.breaks_are_errors()
        varying, drawn = (
            what_varies(code, compiler.owner_id, roots, undivided),
            dynamism_across_breaks.varying_at_entry(code, roots),
        )
        varying |= dynamism_across_breaks.returned_floats(code, roots)
    specialization = Specialization(compiler, roots, varying, drawn, settling, bool(known) and whole)
    for _ in range(MOST_TRIES):
        builder = specialization.builder()
        try:
            with contextlib.nullcontext() if specialization.by_value else shape_env.sizes_zero_and_one_like_others():
                captured = capture(code, roots, builder, stops, checking)
            if not rests_rightly(captured, builder, compiler.fullgraph):
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
            raised.__traceback__ = None  # it leads to this frame, which keeps it, and so all the user's objects
            end = specialization.other(raised, builder, beginning=not stops)
            if end is None:
                continue
            place = place if why else end.restart
            why = why or why_of(end)
            earlier = end.restart
        except Restart as again:
            end = specialization.back() if specialization.fixed else None
            why = why or (why_of(end) if end else Why(NOT_MADE, {"what": again.what}, None))
            # What was made in a call that is followed to its inside may not have been made yet further out.
            inside = again.step < 0 or stops[:1] == (again.step,)
            earlier = end.restart if end else stops[: len(stops) // 2] if inside else (again.step,)
        if compiler.fullgraph or interop.breaks_are_errors():
            return why
        if stops and earlier >= stops:
            earlier = stops[:-1]
        if not earlier:
            return why
        stops = earlier
    raise InternalError(f"no way to capture it was found in {MOST_TRIES} tries, the last of which stopped at {stops}")


def why_of(end: Break) -> Why:
    """Say what a break means to the user."""
    return Why(end.reason, end.fields, end.where, end.callers, end.raises)


def rests_rightly(captured: Capture, builder: GraphBuilder, whole: bool) -> bool:
    """Return whether a frame whose graph raises, or says that a check fails, can run from its start as it was
    written.
    """
    vm = captured.machine
    if not vm.checks and not vm.may_raise:
        return True
    return vm.effects.is_level() and can_run_again(builder, vm.checks, vm.input_objects, whole)


def drafted(captured: Capture, builder: GraphBuilder) -> codegen.Draft:
    """Return the code of an entry, or None where there can be none."""
    try:
        return codegen.draft(captured, functools.partial(leaves_no_trace, captured, builder))
    except BaseException:
        captured.machine.let_go()
        raise


def leaves_no_trace(captured: Capture, builder: GraphBuilder) -> bool:
    """Return whether a graph that raises can be followed by the frame as it was written. Modes are put back before
    that: where a frame goes on inside of a `with` and leaves it, they are not those in which it raises.
    """
    return captured.machine.ops > 0 and not builder.record.random and can_run_again(builder, ())
