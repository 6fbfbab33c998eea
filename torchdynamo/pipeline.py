"""Compile one frame from start to end: the table of contents of the project.

Steps: decode, capture, finish the graph, backend, codegen, guards, entry. If any of them fails, the user's call runs
eagerly, and a warning names the cause.
"""

from __future__ import annotations

import functools
import sys
import time
import traceback
import weakref
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

import torch
import torch.compiler

from torchdynamo import _native, config, events, stances, storing, suspending, warm_start
from torchdynamo.backends import registry, settings
from torchdynamo.backends.padding import buckets_in
from torchdynamo.backends.static_shapes import at_fixed_sizes
from torchdynamo.cache import budget
from torchdynamo.cache.entries import CompiledEntry, entries_of, made_meanwhile, publish
from torchdynamo.cache.store.keys import FrameKey
from torchdynamo.cache.weak_invalidation import Ties
from torchdynamo.capture.capture import Capture
from torchdynamo.capture.exits import BreakExit, Return, Why
from torchdynamo.capture.speculate import self_invalidation
from torchdynamo.capture.vm import interop, torch_names, torch_settings
from torchdynamo.capture.vm.worth import modes_watch, worth_capturing
from torchdynamo.capture_retries import NOT_MADE, SHARED_MEMORY, Followed, follow
from torchdynamo.codegen import codegen, resume
from torchdynamo.core import learned, marks
from torchdynamo.core.reasons import explained, message
from torchdynamo.core.serials import Serials
from torchdynamo.core.signals import NotYet
from torchdynamo.core.source import Guard, Roots, Source
from torchdynamo.errors import (
    ASKED_FOR,
    FallbackWarning,
    InternalError,
    TorchDynamoError,
    TorchDynamoWarning,
)
from torchdynamo.first_run import FirstRun, is_endless_setup
from torchdynamo.graph import torch_compat
from torchdynamo.graph.build import GraphBuilder
from torchdynamo.graph_compilation import compile_captured, decline_graph
from torchdynamo.guards.aliases import alias_guards, memory_apart
from torchdynamo.guards.explain import FailedGuard, Guards, first_failure
from torchdynamo.guards.program import complete, lower
from torchdynamo.guards.sizes import number_guards
from torchdynamo.hook import collector, frames, interrupts
from torchdynamo.hook.compile_lock import turn
from torchdynamo.hook.stock import StockBuiltins
from torchdynamo.hook.user_warnings import warn_user
from torchdynamo.report import debug, progress, ranges
from torchdynamo.report.compiles import (
    beginning,
    next_graph_id,
    recompile_text,
    tell_again,
    tell_compiled,
    tell_left,
    what_failed,
)
from torchdynamo.report.guard_failures import GuardFail, announce
from torchdynamo.report.limit import named
from torchdynamo.report.marks import check_marks
from torchdynamo.report.recompiles import number_inputs
from torchdynamo.version_limit import affordable, over_limit
from torchdynamo.whole_graph import raised_in, raising_entry, unsupported

_owner_ids = Serials(1)
_compilers: Any = weakref.WeakValueDictionary()


class Compiler:
    """A backend with its settings: the callback that a thread's hook calls for a frame that no entry serves."""

    exporting = False
    shield = staticmethod(torch.compiler.disable)  # torch.compile around us would compile our frames

    def __init__(
        self,
        backend: Any,
        *,
        fullgraph: bool = False,
        dynamic: bool | None = None,
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
        recompile_limit: int | None = None,
        guard_fail_fn: Callable[[GuardFail], object] | None = None,
    ) -> None:
        self.guard_fail_fn = guard_fail_fn
        self.recompile_limit = recompile_limit  # in place of `config.cache_size_limit`
        self.backend = registry.lookup(backend)
        self.backend_name = registry.backend_name(self.backend)
        self.backend_is_ours = registry.is_ours(self.backend)
        self.given_dynamic = dynamic  # None: as the settings say
        self.buckets, options = buckets_in(options)
        asked = {"mode": mode if mode != "default" else None, "options": options}
        self.facts = functools.partial(registry.facts_of(self.backend), **asked)
        given = settings.taken(self.backend, {name: value for name, value in asked.items() if value is not None})
        if given:  # passed on to the backend, which raises for settings that it does not have
            self.backend = functools.partial(self.backend, **given)
        if self.buckets or getattr(self.backend, "fixed_sizes", False):
            self.backend = at_fixed_sizes(self.backend, self.buckets)
        self.fullgraph = fullgraph
        self.asked = (fullgraph, dynamic, mode, options, self.buckets, recompile_limit)
        self.told = False  # the program has been warned about settings of torch.compile
        self.owner_id = _owner_ids.take()
        weakref.finalize(self, _native.drop_owner, self.owner_id).atexit = False

    @property
    def dynamic(self) -> bool | None:
        """Return whether sizes are symbols; None if each becomes one once it has changed."""
        if self.given_dynamic is not None:
            return self.given_dynamic
        return config.dynamic_shapes or (None if config.automatic_dynamic_shapes else False)

    def __call__(self, frame: Any, cache_entry: Any, frame_state: Any) -> Any:
        region = interrupts.DeferredSignals()
        try:
            with interrupts.deferred() as region, collector.resting():
                return compile_frame(frame, self)
        except BaseException as error:
            if error is not region.error and not isinstance(error, (TorchDynamoError, TorchDynamoWarning)):
                raise
            # raised at the user's call, without frames of ours
            return raised_in(frame.f_code, error.with_traceback(None), self.owner_id)


def compiler_for(backend: Any, **arguments: Any) -> Compiler:
    """Return the compiler of a backend and settings: an existing one, if it is still alive."""
    key = (backend if isinstance(backend, str) else id(backend), *sorted(arguments.items(), key=str))
    try:
        found = _compilers.get(key)
    except TypeError:  # settings that cannot be hashed
        return Compiler(backend, **arguments)
    if found is None:
        found = _compilers[key] = Compiler(backend, **arguments)
    return found


def reset() -> None:
    """Drop all entries and all that was learned about code objects."""
    _native.clear_all()
    learned.forget()
    events.clear()


def compile_frame(frame: Any, compiler: Compiler) -> Any:
    """Return an entry for this frame, or None to run it as it is."""
    with StockBuiltins(frame.f_builtins) as seen:
        return compile_with_builtins(seen, frame, stances.chosen(compiler, compiler_for))


def failures(code: CodeType, compiler: Compiler, roots: Roots) -> list[FailedGuard | None]:
    """Return the guard of each entry that fails, the newest entry first."""
    return [first_failure(entry.guards, roots) for entry in reversed(entries_of(code, compiler.owner_id))]


def compile_with_builtins(seen: dict[str, Any], frame: Any, compiler: Compiler) -> Any:
    """Return an entry for a frame, or None to run it as it is; `seen`: the builtins that the program sees.

    Raises Unsupported under `fullgraph`, and InternalError if errors are not suppressed.
    """
    started = time.perf_counter()
    code: CodeType = frame.f_code
    try:
        if torch_settings.is_switched_off():
            return None
        if interop.disables_its_calls(frame.f_func) or interop.skips_itself(frame.f_func):
            _native.skip_code(code, "disabled function", interop.disables_its_calls(frame.f_func))
            return None
        roots = Roots(frame.f_locals, frame.f_globals, seen, frame.closure)
        reason = skip_reason(code, roots)
        if reason is not None or modes_watch():
            entry = None if reason is None else suspending.entry_of(code, roots, reason, compiler)
            if entry is not None:
                return entry
            if reason is not None:  # else in this call only
                budget.leave_alone(code, reason, compiler.owner_id, compiler.fullgraph)
                suspending.found_nothing(code, compiler.owner_id)
            events.skipped(reason or "foreign mode", beginning(code))
            return None
        if not compiler.told:
            compiler.told = True
            stances.warn_of_settings()
        if not stances.may_compile(code, roots, named(code), functools.partial(failures, code, compiler, roots)):
            return None
        if over_limit(code, compiler, roots) or not affordable(code, compiler, roots):
            return None
        with turn() as ours:
            made = made_meanwhile(code, roots, compiler.owner_id)
            if made is None and ours and not over_limit(code, compiler, roots):
                made = new_entry(code, roots, compiler, started)
                publish(code, made)
                torch_names.look_again()  # capturing may have imported torch.compile's front end
            return made
    except NotYet:
        return None
    except ASKED_FOR:
        raise  # a warning that the user's filters made an error, and errors that were asked for
    except Exception as error:
        if interrupts.came():
            raise
        if compiler.fullgraph or not config.suppress_errors:
            if isinstance(error, TorchDynamoError):
                raise
            text = f"compiling {resume.origin(code).code.co_name} failed: {error!r}"
            raise InternalError(explained(text, "internal error")) from error
        return give_up(code, compiler, error)


def new_entry(code: CodeType, roots: Roots, compiler: Compiler, started: float) -> Any:
    """Return an entry that the store has for a frame, else one of a capture; None if the frame is left to Python."""
    announce(code, compiler.owner_id, roots, compiler.guard_fail_fn)
    again = bool(entries_of(code, compiler.owner_id))
    with events.timing(), progress.shown(code), ranges.compiling(code, again):
        key = warm_start.key_if_used(code, roots, compiler)
        made = warm_start.find(key, code, roots, compiler, started, functools.partial(settle, compiler))
        if made is None:
            made = build_entry(code, roots, compiler, started, key)
    budget.took(code, compiler.owner_id, time.perf_counter() - started)
    return made


def skip_reason(code: CodeType, roots: Roots) -> str | None:
    """Return why this frame is not compiled; None if it is worth a try."""
    if code in marks.SKIPPED:
        return "skipped function"
    if resume.is_continuation(code):
        return None
    return frames.skip_reason(code, roots.globals) or (
        None if config.capture_everything or worth_capturing(roots, code) else budget.NO_TENSORS
    )


def give_up(code: CodeType, compiler: Compiler, error: Exception) -> None:
    """Never compile this function again by this compiler, after a bug of ours or of its backend, and warn once."""
    _native.rest_code(code, compiler.owner_id, sys.maxsize)
    text = f"torchdynamo could not compile {named(code)}: {type(error).__name__}: {error}; it runs eagerly"
    text = explained(text, "internal error")
    if config.verbose:
        text = f"{text}\n{''.join(traceback.format_exception(error))}"
    warn_user(text, FallbackWarning)


def build_entry(
    code: CodeType, roots: Roots, compiler: Compiler, started: float, key: FrameKey | None, *, first: bool = True
) -> Any:
    """Capture a frame and return an entry for it; None if it is left to Python. key: under which it is stored."""
    failed = what_failed(code, compiler.owner_id, roots)
    with torch_compat.without_saved_tensor_hooks(), ranges.phase(code, "capture"):
        found = follow(code, roots, compiler)
    if isinstance(found, Why):
        return leave(code, compiler, found, started)
    try:
        return entry_of(found, failed, code, roots, compiler, started, key, first)
    finally:
        found.capture.machine.let_go()


def entry_of(
    found: Followed,
    failed: FailedGuard | None,
    code: CodeType,
    roots: Roots,
    compiler: Compiler,
    started: float,
    key: FrameKey | None,
    first: bool,
) -> Any:
    """Compile a captured frame and return its entry; None if it is left to Python.

    first: a capture that invalidates its own guards becomes a first run, after which the function is captured again.
    """
    captured, draft, builder, why, constant = found
    check_marks(captured, builder.numbers)
    for continuation in draft.continuations:
        self_invalidation.goes_on(captured, continuation)
    if why is not None and is_worthless(captured, draft):
        return leave(code, compiler, why, started)
    operators = builder.count_operators()
    if gains_nothing(captured, operators, code, compiler):
        return None
    backend, settling = compiler.backend, None
    if first and self_invalidation.undoes_itself(captured, resume.own_cell_names(code)) and not is_endless_setup(code):
        settling = FirstRun.of(captured, functools.partial(settle, compiler))
        backend, draft = decline_graph, codegen.draft(captured, lambda: found.draft.rerun is not None, settling.emit)
    graph_id = next_graph_id(code)
    with torch_compat.without_saved_tensor_hooks(), ranges.phase(code, "graph"):
        called = compile_captured(captured, draft, builder, compiler, backend, graph_id)
    graph, arguments, bound_inputs, gm, *_ = called
    if not memory_apart(captured.machine, gm):
        return leave(code, compiler, Why(NOT_MADE, {"what": SHARED_MEMORY}, None), started)
    name = repr(graph) if graph else ""
    with ranges.phase(code, "code"):
        written = codegen.finish(draft, name, arguments, len(bound_inputs), discard=not draft.outputs)
        new_code = written.assembled(draft.code)
    with ranges.phase(code, "guards"):
        guards = guards_of(captured, builder, gm, roots)
        program = lower(guards, [*bound_inputs, *draft.bound], code)
    for continuation in draft.skipped:
        _native.skip_code(continuation, why.reason if why else resume.LOOP)
    ties = Ties(code, guards, draft.bound)
    record = CompiledEntry(new_code, Guards(guards, program), gm, why, name, compiler, ties)
    begun = {"local": (name, graph)} if graph else {}
    entry = _native.Entry(new_code, program, owner_id=compiler.owner_id, info=record, **begun)
    budget.spent(code, compiler.owner_id, operators)
    pure = draft.does_nothing_else
    at_call = isinstance(captured.exit, BreakExit) and captured.exit.callee is None and bool(why and why.callers)
    new = storing.NewEntry(
        *(code, roots, compiler, captured, called, written, guards, program, draft.bound, pure, operators, why),
        *(at_call, settling),
    )
    stored = storing.keep(key, new)
    if settling is not None:
        settling.entry = entry
        return entry
    varying = number_inputs(captured.machine.numbers_in, builder.numbers.bounds)
    again = "" if failed is None else recompile_text(code, failed, varying, guards, constant)
    if failed is not None:
        tell_again(code, failed, again, roots, compiler.dynamic)
    calls = sum(node.op.startswith("call_") for node in gm.graph.nodes) if gm else 0
    tell_compiled(code, graph_id, compiler.backend_name, entry, started, calls, varying, again, at_call, stored)
    if config.debug:
        debug.print_frame(record.name, gm, code, new_code, guards, again)
    return entry


def guards_of(captured: Capture, builder: GraphBuilder, gm: Any, roots: Roots) -> list[Guard]:
    """Return all that the entry of a capture takes for granted: of objects, sizes, process state and aliases."""
    state = Guard(Source("globals"), "GLOBAL_STATE")
    sizes = number_guards(builder.numbers, captured.machine.layouts)
    return complete([*captured.guards, *sizes, state, *alias_guards(captured, gm)], roots)


def leave(code: CodeType, compiler: Compiler, why: Why, started: float) -> Any:
    """Leave a function to Python. In whole-graph mode raise Unsupported instead, unless the program
    itself will raise.
    """
    is_error = interop.breaks_are_errors() if why.is_error is None else why.is_error
    if compiler.fullgraph or is_error:
        error = unsupported(why, code)
        if why.raises:
            return raising_entry(code, error, compiler.owner_id)
        raise error
    stored = storing.pass_over(code, compiler, message(why.reason, **why.fields))
    tell_left(code, compiler.backend_name, why, started, stored)
    _native.skip_code(code, why.reason)
    return None


def settle(compiler: Compiler, code: CodeType, roots: Roots) -> Any:
    """Return the entry for a frame after the call that set it up; the next call gets to see errors.

    None if an entry already serves: for another object of the same kind, set up before.
    """
    if any(first_failure(known.guards, roots) is None for known in entries_of(code, compiler.owner_id)):
        return None
    try:
        with interrupts.deferred():
            started, key = time.perf_counter(), warm_start.key_if_used(code, roots, compiler)
            found = warm_start.find(key, code, roots, compiler, started)
            return found or build_entry(code, roots, compiler, started, key, first=False)
    except Exception:
        if config.verbose:
            traceback.print_exc()
        return None


def is_worthless(captured: Capture, draft: codegen.Draft) -> bool:
    """Return whether nothing was captured before a loop that runs in Python, nor will be after it."""
    leave = captured.exit
    if not isinstance(leave, BreakExit) or not leave.resume_here or captured.machine.ops:
        return False
    if captured.machine.effects.since(captured.machine.effects.start) or not draft.skipped:
        return False
    return not resume.is_continuation(captured.code) or len(draft.continuations) == len(draft.skipped)


def gains_nothing(captured: Capture, operators: int, code: CodeType, compiler: Compiler) -> bool:
    """Return whether a frame has too few operators on tensors to be compiled, unless settings demand it."""
    written = resume.origin(code).code
    if budget.is_fruitful(code, written, compiler.owner_id, operators):
        suspending.found_something(written, compiler.owner_id)
        return False
    if compiler.fullgraph or config.capture_everything:
        return False
    barren = budget.is_barren(code, written, compiler.owner_id, isinstance(captured.exit, Return))
    if barren:
        suspending.found_nothing(written, compiler.owner_id)
        storing.pass_over(code, compiler, f"{operators} operators on tensors are too few to gain anything")
    return barren
