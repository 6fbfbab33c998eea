"""Generators and coroutines: run them as code that has what lies between two waits captured, where that is worth it."""

from __future__ import annotations

from types import CodeType

from torchdynamo import _native, config, events
from torchdynamo.bytecode import versions
from torchdynamo.bytecode.decode import decode
from torchdynamo.cache import budget
from torchdynamo.capture.vm import interop
from torchdynamo.capture.vm.worth import worth_capturing
from torchdynamo.codegen import resume
from torchdynamo.codegen.outline import place_of
from torchdynamo.codegen.suspended import rewritten
from torchdynamo.core import marks
from torchdynamo.core.source import Roots
from torchdynamo.guards.program import lower
from torchdynamo.hook import frames
from torchdynamo.report.compiles import beginning
from torchdynamo.specialization import CompilerSettings

SUSPENDING = frozenset({"generator", "coroutine"})


def entry_of(code: CodeType, roots: Roots, reason: str, compiler: CompilerSettings) -> _native.Entry | None:
    """Return an entry for a generator or coroutine; None for other code, and for one that stays Python.

    reason: why frames of this code are not captured themselves.
    """
    if reason not in SUSPENDING or compiler.fullgraph or interop.breaks_are_errors():
        return None
    if code in marks.ASKED:  # what was compiled by itself is on while it is called, not while it runs
        return None
    worth = resume.does_something(decode(code), 0) and worth_capturing(roots, code)
    if not (worth or config.capture_everything):
        return None
    made = rewritten(code)
    return None if made is None else _native.Entry(made, lower([], (), code), owner_id=compiler.owner_id)


def note_asked(code: CodeType) -> None:
    """Record that a generator or coroutine which was passed to `compile` stays Python, where its call runs none of it.

    Elsewhere the first call records it. Does nothing for other code.
    """
    reason = frames.skip_reason(code, {}) if not versions.CALL_BEGINS_GENERATOR else None
    if reason in SUSPENDING:
        _native.skip_code(code, reason)
        events.skipped(reason, beginning(code))


def found_nothing(code: CodeType, owner_id: int) -> None:
    """Record that a part of a generator or coroutine has nothing to capture; one without anything stays Python.

    Does nothing for other code.
    """
    known = place_of(code)
    if known is None or known[1].kind != "segment":
        return
    whole = known[0]
    account = budget.account(whole, owner_id)
    account.barren += 1
    if account.barren > budget.IN_VAIN and not account.operators:
        _native.clear_code(whole)
        _native.skip_code(whole, "no operators")


def found_something(code: CodeType, owner_id: int) -> None:
    """Record that operators were captured in a part of a generator or coroutine. Does nothing for other code."""
    known = place_of(code)
    if known is not None and known[1].kind == "segment":
        budget.account(known[0], owner_id).operators += 1
