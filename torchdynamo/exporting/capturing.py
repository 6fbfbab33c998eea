"""Capture a call as one graph, without running it."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torchdynamo.capture.exits import Why
from torchdynamo.capture.vm.worth import modes_watch
from torchdynamo.capture_retries import Followed, follow
from torchdynamo.core.reasons import explained
from torchdynamo.core.signals import NotYet
from torchdynamo.core.source import Guard, Roots, Source
from torchdynamo.errors import ExportError
from torchdynamo.exporting.calls import ExampleCall
from torchdynamo.exporting.shapes import Varying
from torchdynamo.graph import torch_compat
from torchdynamo.guards.aliases import alias_guards
from torchdynamo.guards.program import complete
from torchdynamo.guards.sizes import number_guards
from torchdynamo.hook import collector, interrupts
from torchdynamo.hook.compile_lock import turn
from torchdynamo.hook.stock import StockBuiltins
from torchdynamo.report.marks import check_marks
from torchdynamo.whole_graph import body_of, unsupported, why_never

WITHOUT_END = 3600.0  # seconds to wait for another thread that compiles


@dataclass
class ExportSettings:
    """The settings of a capture for export, as `specialization.CompilerSettings`."""

    dynamic: bool | None = None
    fullgraph: bool = True
    buckets: Mapping[str, Any] = field(default_factory=dict)
    backend_name: str = "export"
    owner_id: int = 0
    recompile_limit: int | None = None
    exporting: bool = True


class Captured(NamedTuple):
    """A captured call."""

    call: ExampleCall
    found: Followed
    roots: Roots


def captured(call: ExampleCall, varying: Varying) -> Captured:
    """Capture a call.

    Raises Unsupported if it is not one graph, ConstraintViolationError if what is said to vary is made a constant, and
    ExportError if it cannot be captured now.
    """
    reason = why_never(call.fn)
    if reason is not None:
        code = body_of(call.fn).__code__
        raise unsupported(Why(reason, {"name": code.co_name}, None), code)
    if modes_watch():
        raise ExportError(explained("a mode that intercepts operators is active", "foreign mode"))
    with (
        interrupts.deferred(),
        collector.resting(),
        StockBuiltins(builtins.__dict__) as seen,
        turn(WITHOUT_END),
        torch_compat.without_saved_tensor_hooks(),
        varying.marks(),
    ):
        roots = call.roots(seen)
        try:
            found = follow(call.code, roots, ExportSettings(), frozenset(varying.numbers_said))
        except NotYet:
            raise ExportError("a module gets its parameters in its first call: call it once, then export it") from None
        if isinstance(found, Why):
            callers = tuple(each for each in found.callers if each.filename != call.code.co_filename)
            raise unsupported(found._replace(callers=callers), call.code)
        try:
            check_marks(found.capture, found.builder.numbers)
        except BaseException:
            found.capture.machine.let_go()
            raise
        return Captured(call, found, roots)


def guards_of(made: Captured, gm: Any) -> list[Guard]:
    """Return all that the graph rests on; gm: the closed graph."""
    captured, builder = made.found.capture, made.found.builder
    sizes = number_guards(builder.numbers, captured.machine.layouts)
    state = Guard(Source("globals"), "GLOBAL_STATE")
    return list(complete([*captured.guards, *sizes, state, *alias_guards(captured, gm)], made.roots))
