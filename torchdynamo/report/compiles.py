"""Report compiled frames, and why they were compiled again, to event collectors and the log."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import CodeType
from typing import Any

from torchdynamo import config
from torchdynamo.cache.entries import entries_of
from torchdynamo.capture.exits import Why
from torchdynamo.codegen import resume
from torchdynamo.core.reasons import message
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Guard, Roots
from torchdynamo.guards.explain import FailedGuard, first_failure
from torchdynamo.report import explain, recompiles
from torchdynamo.report.limit import named
from torchdynamo.report.recompiles import Hindrance, NumberInput


def what_failed(code: CodeType, owner_id: int, roots: Roots) -> FailedGuard | None:
    """Return the guard of the newest entry that fails for this call; None if nobody reads it."""
    if not (recompiles.wanted() or explain.watched() or config.debug):
        return None
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


def tell(
    code: CodeType,
    backend: str,
    gm: Any,
    why: Why | None,
    guards: list[Guard],
    started: float,
    numbers: Sequence[NumberInput] = (),
    again: str = "",
) -> None:
    """Report a compiled frame to the collectors of events."""
    if explain.watched():
        place = why.position if why else None
        users = resume.origin(code)
        explain.emit(
            explain.CompileEvent(
                function=users.code.co_name,
                filename=place.filename if place else users.code.co_filename,
                line=(place.line if place else None) or users.line,
                graph=gm,
                ops=sum(node.op.startswith("call_") for node in gm.graph.nodes) if gm else 0,
                reason=why.reason if why else None,
                reason_text=message(why.reason, **why.fields) if why else "",
                guards=guards,
                seconds=time.perf_counter() - started,
                backend=backend,
                numbers=numbers,
                again=again,
            )
        )
