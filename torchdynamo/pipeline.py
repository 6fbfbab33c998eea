"""One frame from start to finish: the table of contents of the project.

decode, capture, finish the graph, backend, codegen, guards, entry. Whatever fails on the way, the user's call runs
as eager Python, and a warning names the cause.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any, NamedTuple

import torch
import torch.compiler

from torchdynamo import _native, config, stances
from torchdynamo.backends import registry
from torchdynamo.backends.padding import buckets_in
from torchdynamo.backends.run import Handler, compile_graph, on_error
from torchdynamo.backends.static_shapes import at_fixed_sizes
from torchdynamo.cache import budget
from torchdynamo.cache.compile_lock import made_meanwhile, publish, turn
from torchdynamo.cache.dynamic_sources import what_varies
from torchdynamo.cache.entries import CompiledEntry, entries_of, wasted
from torchdynamo.cache.weak_invalidation import Ties
from torchdynamo.capture.capture import Capture, capture
from torchdynamo.capture.exits import BreakExit, Return, Why
from torchdynamo.capture.speculate import self_invalidation
from torchdynamo.capture.torch.float_inputs import from_boxes, in_boxes
from torchdynamo.capture.torch.tensor_subclasses import overrides
from torchdynamo.capture.vm import interop
from torchdynamo.capture.vm.worth import modes_watch, worth_capturing
from torchdynamo.codegen import codegen, dynamism_across_breaks, resume
from torchdynamo.core import learned, marks
from torchdynamo.core.call_sites import CallSite
from torchdynamo.core.reasons import message
from torchdynamo.core.signals import Break, NotYet, Restart, Retry, StopPath
from torchdynamo.core.source import Guard, Roots, Source
from torchdynamo.errors import (
    CacheLimitWarning,
    ConstraintViolationError,
    FailOnRecompileLimitHit,
    FallbackWarning,
    ForbiddenFunction,
    InternalError,
    RecompileError,
    TorchDynamoError,
    TorchDynamoWarning,
    UnknownSetting,
    Unsupported,
    VerificationError,
)
from torchdynamo.first_run import FirstRun, may_come_again
from torchdynamo.graph import shape_env, torch_compat
from torchdynamo.graph.build import GraphBuilder
from torchdynamo.graph.deopt_safety import can_run_again, stages
from torchdynamo.graph.mutation import effects_of, mutated_inputs
from torchdynamo.graph.tracebacks import Program
from torchdynamo.guards.aliases import alias_guards, memory_apart, written_apart
from torchdynamo.guards.explain import FailedGuard, Guards, first_failure
from torchdynamo.guards.program import complete, lower
from torchdynamo.guards.sizes import number_guards
from torchdynamo.hook import collector, frames, interrupts
from torchdynamo.hook.stock import StockBuiltins
from torchdynamo.hook.user_warnings import warn_user
from torchdynamo.report import debug, explain, recompiles
from torchdynamo.report.guard_failures import GuardFail, announce
from torchdynamo.report.limit import limit_text, named, unprofitable_text
from torchdynamo.report.marks import check_marks
from torchdynamo.report.recompiles import Hindrance, NumberInput, number_inputs
from torchdynamo.specialization import MOST_WASTED, MOST_WHOLE, MOST_WHOLE_IF_ASKED, Specialization
from torchdynamo.whole_graph import raised_in, raising_entry, unsupported

_owner_ids = itertools.count(1)
_graph_numbers = itertools.count(0)
_loose: Any = weakref.WeakValueDictionary()


class Compiler:
    """What a thread's hook calls for a frame it has no entry for: one backend with its settings."""

    shield = staticmethod(torch.compiler.disable)  # torch.compile around us would compile our frames

    def __init__(
        self,
        backend: Any,
        *,
        fullgraph: bool = False,
        dynamic: bool | None = None,
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
        guard_fail_fn: Callable[[GuardFail], object] | None = None,
    ) -> None:
        self.guard_fail_fn = guard_fail_fn
        self.backend = registry.lookup(backend)
        self.backend_name = registry.backend_name(self.backend)
        self.dynamic = dynamic
        self.buckets, options = buckets_in(options)
        asked = {"mode": mode if mode != "default" else None, "options": options}
        given = {name: value for name, value in asked.items() if value is not None}
        if given:  # the backend's own business; one that takes none of it says so
            self.backend = functools.partial(self.backend, **given)
        if self.buckets or getattr(self.backend, "fixed_sizes", False):
            self.backend = at_fixed_sizes(self.backend, self.buckets)
        self.fullgraph = fullgraph
        self.told = False  # the program, of settings that are torch.compile's
        self.owner_id = next(_owner_ids)
        weakref.finalize(self, _native.drop_owner, self.owner_id).atexit = False

    def __call__(self, frame: Any, cache_entry: Any, frame_state: Any) -> Any:
        region = interrupts.DeferredSignals()
        try:
            with interrupts.deferred() as region, collector.resting():
                return compile_frame(frame, self)
        except BaseException as error:
            if error is not region.error and not isinstance(error, (TorchDynamoError, TorchDynamoWarning)):
                raise
            # at the user's call, without a frame of ours
            return raised_in(frame.f_code, error.with_traceback(None), self.owner_id)


def compiler_for(backend: Any, **settings: Any) -> Compiler:
    """The compiler of this backend and these settings; the same one while somebody holds it."""
    key = (backend if isinstance(backend, str) else id(backend), *sorted(settings.items(), key=str))
    try:
        found = _loose.get(key)
    except TypeError:  # settings that cannot be hashed
        return Compiler(backend, **settings)
    if found is None:
        found = _loose[key] = Compiler(backend, **settings)
    return found


def reset() -> None:
    """Forget all that was compiled, and what was learnt from it."""
    _native.clear_all()
    learned.forget()


def compile_frame(frame: Any, compiler: Compiler) -> Any:
    """An entry for this frame, or None to run it as it is."""
    with StockBuiltins(frame.f_builtins) as seen:
        return compile_seeing(seen, frame, compiler)


# Errors that are no faults of ours, which would be swallowed: the program asks for them.
ASKED_FOR = (
    TorchDynamoWarning,
    ConstraintViolationError,
    ForbiddenFunction,
    RecompileError,
    UnknownSetting,
    Unsupported,
    VerificationError,
)


def failures(code: CodeType, compiler: Compiler, roots: Roots) -> list[FailedGuard | None]:
    """What of each version does not hold, newest first."""
    return [first_failure(entry.guards, roots) for entry in reversed(entries_of(code, compiler.owner_id))]


def compile_seeing(seen: dict[str, Any], frame: Any, compiler: Compiler) -> Any:
    """The same, with the builtins that the program sees."""
    started = time.perf_counter()
    code: CodeType = frame.f_code
    try:
        if modes_watch() or interop.is_switched_off():
            return None
        if interop.disables_its_calls(frame.f_func) or interop.skips_itself(frame.f_func):
            _native.skip_code(code, "disabled function", interop.disables_its_calls(frame.f_func))
            return None
        roots = Roots(frame.f_locals, frame.f_globals, seen, frame.closure)
        reason = skip_reason(code, roots)
        if reason is not None:
            _native.skip_code(code, reason)
            return None
        if not compiler.told:
            compiler.told = True
            stances.tell_of_settings()
        if not stances.may_compile(code, named(code), functools.partial(failures, code, compiler, roots)):
            return None
        if over_limit(code, compiler, roots) or not affordable(code, compiler, roots):
            return None
        with turn() as ours:
            made = made_meanwhile(code, roots, compiler.owner_id)
            if made is None and ours and not over_limit(code, compiler, roots):
                announce(code, compiler.owner_id, roots, compiler.guard_fail_fn)
                made = build_entry(code, roots, compiler, started)
                budget.took(code, compiler.owner_id, time.perf_counter() - started)
                publish(code, made)
                interop.stance()  # to see it change: capturing may have imported what has it
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
            raise InternalError(f"compiling {resume.origin(code).code.co_name} failed: {error!r}") from error
        return give_up(code, error)


def skip_reason(code: CodeType, roots: Roots) -> str | None:
    """Why this frame is left to Python, or None if it is worth a try."""
    if code in marks.SKIPPED:
        return "skipped function"
    if resume.is_continuation(code):
        return None
    return frames.skip_reason(code, roots.globals) or (
        None if config.capture_everything or worth_capturing(roots, code) else "no tensors"
    )


def give_up(code: CodeType, error: Exception) -> None:
    """A fault of ours or of a backend: leave the function to Python from now on, and say so once."""
    _native.skip_code(code, "internal error")
    text = f"torchdynamo could not compile {named(code)}: {type(error).__name__}: {error}; it runs eagerly"
    if config.verbose:
        text = f"{text}\n{''.join(traceback.format_exception(error))}"
    warn_user(text, FallbackWarning)


def over_limit(code: CodeType, compiler: Compiler, roots: Roots) -> bool:
    """Whether the function has as many entries as allowed; the more often it was asked in vain, the rarer it asks."""
    known = entries_of(code, compiler.owner_id)
    if len(known) < config.cache_size_limit:
        return False
    if budget.miss(code, compiler.owner_id) == 1 or config.fail_on_recompile_limit_hit:
        tell_of_limit(code, known[-1], roots)
    return True


def affordable(code: CodeType, compiler: Compiler, roots: Roots) -> bool:
    """Return whether one more version may pay for itself; the first time that it may not, say so in the log."""
    if compiler.fullgraph:
        return True
    refused = budget.refusal(code, resume.origin(code).code, compiler.owner_id)
    known = entries_of(code, compiler.owner_id)
    if refused is not None and refused.times == 1 and known and recompiles.wanted():
        guards, versions, calls = known[-1].guards, refused.versions, refused.calls
        recompiles.say(unprofitable_text(code, guards, roots, versions, calls, compiler.dynamic))
    return refused is None


def tell_of_limit(code: CodeType, newest: CompiledEntry, roots: Roots) -> None:
    """Say what keeps failing: in a warning of the program's own functions, in the log of a library's."""
    text = limit_text(code, newest.guards, roots, config.cache_size_limit, newest.compiler.dynamic)
    if config.fail_on_recompile_limit_hit:
        raise FailOnRecompileLimitHit(text)
    if frames.is_library(resume.origin(code).code):
        recompiles.say(text)
    else:
        warn_user(text, CacheLimitWarning)


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


def follow(code: CodeType, roots: Roots, compiler: Compiler) -> Followed | Why:
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
            dynamism_across_breaks.known(code, roots),
        )
        varying |= dynamism_across_breaks.returned_floats(code, roots)
    specialization = Specialization(compiler, roots, varying, drawn, settling, bool(known) and whole)
    for _ in range(MOST_TRIES):
        builder = specialization.builder()
        try:
            with contextlib.nullcontext() if specialization.by_value else shape_env.treating_sizes_alike():
                captured = capture(code, roots, builder, stops, checking)
            if not rests_rightly(captured, builder, compiler.fullgraph):
                captured.machine.let_go()
                stops, why, checking = (), None, False
                continue
            if specialization.counts(self_invalidation.counted(captured, resume.own_cells(code))):
                captured.machine.let_go()
                continue
            dynamism_across_breaks.leave(code, self_invalidation.left(captured))
            captured = captured._replace(why=why if stops == place else None)
            if isinstance(captured.exit, Return):
                dynamism_across_breaks.returns(resume.origin(code).code, captured.exit.value, captured.machine)
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
    """Whether a frame whose graph raises, or says that a check fails, can run from its start as it was written."""
    vm = captured.machine
    if not vm.checks and not vm.may_raise:
        return True
    return vm.effects.is_level() and can_run_again(builder, vm.checks, vm.input_objects, whole)


def drafted(captured: Capture, builder: GraphBuilder) -> codegen.Draft:
    """The code for it; where there can be none, nobody needs the capture."""
    try:
        return codegen.draft(captured, functools.partial(leaves_no_trace, captured, builder))
    except BaseException:
        captured.machine.let_go()
        raise


def leaves_no_trace(captured: Capture, builder: GraphBuilder) -> bool:
    """Whether a graph that raises can be followed by the frame as it was written. Modes are put back before that: where
    a frame goes on inside of a `with` and leaves it, they are not those in which it raises."""
    return captured.machine.ops > 0 and not builder.record.random and can_run_again(builder, ())


def build_entry(code: CodeType, roots: Roots, compiler: Compiler, started: float, *, first: bool = True) -> Any:
    """The frame is captured, and what comes of it made an entry."""
    failed = what_failed(code, compiler, roots)
    with torch_compat.nobody_saves():
        found = follow(code, roots, compiler)
    if isinstance(found, Why):
        return leave(code, compiler, found, started)
    try:
        return entry_of(found, failed, code, roots, compiler, started, first)
    finally:
        found.capture.machine.let_go()


def entry_of(
    found: Followed,
    failed: FailedGuard | None,
    code: CodeType,
    roots: Roots,
    compiler: Compiler,
    started: float,
    first: bool,
) -> Any:
    """The steps, in order. A `first` run that changes what its capture rests on is followed by the real one."""
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
    if first and self_invalidation.undoes_itself(captured, resume.own_cells(code)) and not may_come_again(code):
        settling = FirstRun(captured, functools.partial(settle, compiler))
        backend, draft = left_as_it_is, codegen.draft(captured, lambda: found.draft.rerun is not None, settling.emit)
    with torch_compat.nobody_saves():
        graph, arguments, bound_inputs, gm = compile_captured(captured, draft, builder, compiler, backend)
    if not memory_apart(captured.machine, gm):
        return leave(code, compiler, Why(NOT_MADE, {"what": SHARED_MEMORY}, None), started)
    name = repr(graph) if graph else ""
    new_code = codegen.finish(draft, name, arguments, len(bound_inputs), discard=not draft.outputs)
    state = Guard(Source("globals"), "GLOBAL_STATE")
    sizes = number_guards(builder.numbers, captured.machine.layouts)
    guards = complete([*captured.guards, *sizes, state, *alias_guards(captured, gm)], roots)
    program = lower(guards, [*bound_inputs, *draft.bound], code)
    for continuation in draft.skipped:
        _native.skip_code(continuation, why.reason if why else "loop with a break")
    ties = Ties(code, guards, draft.bound)
    record = CompiledEntry(new_code, Guards(guards, program), gm, why, name, compiler, ties)
    begun = {"local": (name, graph)} if graph else {}
    entry = _native.Entry(new_code, program, owner_id=compiler.owner_id, info=record, **begun)
    budget.spent(code, compiler.owner_id, operators)
    if settling is not None:
        settling.entry = entry
        return entry
    varying = number_inputs(captured.machine.numbers_in, builder.numbers.bounds)
    again = "" if failed is None else recompile_text(code, failed, varying, guards, constant)
    if again:
        recompiles.say(again)
    tell(code, compiler, gm, why, guards, started, varying, again)
    if config.debug:
        debug.print_frame(record.name, gm, code, new_code, guards)
        if again:
            print(again)
    return entry


def leave(code: CodeType, compiler: Compiler, why: Why, started: float) -> Any:
    """The function stays Python. In whole-graph mode that is an error, unless the program is going to raise its own."""
    if compiler.fullgraph or interop.breaks_are_errors():
        error = unsupported(why, code)
        if why.raises:
            return raising_entry(code, error, compiler.owner_id)
        raise error
    tell(code, compiler, None, why, [], started)
    _native.skip_code(code, why.reason)
    return None


def settle(compiler: Compiler, code: CodeType, roots: Roots) -> Any:
    """The entry for a frame as it is when the call that set it up is done; the next call hears of what goes wrong.

    None, if there is one that serves: for another object of the same kind, set up before.
    """
    if any(first_failure(known.guards, roots) is None for known in entries_of(code, compiler.owner_id)):
        return None
    try:
        with interrupts.deferred():
            return build_entry(code, roots, compiler, time.perf_counter(), first=False)
    except Exception:
        if config.verbose:
            traceback.print_exc()
        return None


def what_failed(code: CodeType, compiler: Compiler, roots: Roots) -> FailedGuard | None:
    """What of the newest version does not hold for this call, if anybody wants to know."""
    if not (recompiles.wanted() or explain.watched() or config.debug):
        return None
    known = entries_of(code, compiler.owner_id)
    return first_failure(known[-1].guards, roots) if known else None


def recompile_text(
    code: CodeType, failed: FailedGuard, varying: list[NumberInput], guards: list[Guard], constant: Break | None
) -> str:
    """Why a function is compiled once more."""
    hindrance = None
    if constant is not None:
        hindrance = Hindrance(message(constant.reason, **constant.fields), constant.where)
    return recompiles.told(named(code), failed, varying, guards, hindrance)


def tell(
    code: CodeType,
    compiler: Compiler,
    gm: Any,
    why: Why | None,
    guards: list[Guard],
    started: float,
    numbers: Sequence[NumberInput] = (),
    again: str = "",
) -> None:
    """Report the frame to whoever collects events."""
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
                backend=compiler.backend_name,
                numbers=numbers,
                again=again,
            )
        )


def is_worthless(captured: Capture, draft: codegen.Draft) -> bool:
    """Nothing was captured before a loop that stays Python anyway, nor will be, of a frame that was, behind it."""
    leave = captured.exit
    if not isinstance(leave, BreakExit) or not leave.resume_here or captured.machine.ops:
        return False
    if captured.machine.effects.since(captured.machine.effects.start):
        return False
    return not resume.is_continuation(captured.code) or len(draft.continuations) == len(draft.skipped)


def gains_nothing(captured: Capture, operators: int, code: CodeType, compiler: Compiler) -> bool:
    """Return whether a frame has too few operators on tensors, and nobody wants it compiled all the same."""
    written = resume.origin(code).code
    if operators > (budget.LITTLE if frames.is_library(written) else 0):
        budget.fruitful(code, written, compiler.owner_id)
        return False
    if compiler.fullgraph or config.capture_everything:
        return False
    return budget.is_barren(code, written, compiler.owner_id, isinstance(captured.exit, Return))


def compile_captured(
    captured: Capture, draft: codegen.Draft, builder: GraphBuilder, compiler: Compiler, backend: registry.Backend
) -> tuple[Any, list[str], list[Source], Any]:
    """Close the graph, hand it to the backend with the real tensors, and wrap what comes back."""
    vm = captured.machine
    if vm.ops == 0:
        return None, [], [], None
    values: list[Any] = [*vm.numbers_in, *vm.inputs, *vm.boxes, *vm.objects_in]
    inputs = sorted(values, key=lambda value: place_of(brought_by(value.source), captured.code))
    gm = builder.finish(draft.outputs, [value.node for value in inputs])
    remaining = set(gm.graph.find_nodes(op="placeholder"))
    used = [value for value in inputs if value.node in remaining]
    examples = [vm.input_objects[value.node] for value in used]
    name = f"__compiled_fn_{next(_graph_numbers)}"
    sources = [value.source for value in used if value.source is not None]
    # The tuple comes last: where a size has to come before its tensor, all come in the tuple.
    in_order = any(source.how in ("size", "stride") for source in sources)
    arguments = [source.arg for source in sources if is_plain_local(source, captured.code) and not in_order]
    bound = [source for source in sources if not is_plain_local(source, captured.code) or in_order]
    rerun = draft.rerun
    told, leaving = rerun.raised if rerun else None, blocks_left(captured)
    written = captured.code if draft.does_nothing_else else None
    program = Program(starting(captured), builder.call_sites)
    mutates = mutated_inputs(gm)
    handler = on_error(gm, compiler.backend_name, mutates, name, told, leaving, program, written is not None)
    subclasses = any(overrides(type(each)) for each in examples)
    layered = torch_compat.is_layered(examples)  # a call within one of torch.func's, which has been left to Python
    plain = written_apart(vm, gm) and not (subclasses or layered or effects_of(gm).as_captured)
    backend = backend if plain else left_as_it_is
    compile_part = functools.partial(compile_graph, backend=backend, name=name, fullgraph=compiler.fullgraph)
    with collector.awake(), shape_env.treating_sizes_alike(), interrupts.allowed():
        if rerun is None:
            fn = compile_part(gm, examples)
        else:
            rerun.final = compiler.fullgraph
            fn = rerun.compile(gm, examples, compile_part, draft.outputs, stages(gm.graph, vm.checks))
    if subclasses:
        fn = not_overridden(fn)
    boxes = tuple(index for index, value in enumerate(used) if value in vm.boxes)
    if boxes:
        fn, handler = from_boxes(fn, boxes), handled_in_boxes(handler, boxes)
    graph = _native.CompiledGraph(fn, name, splat=bool(bound), on_error=handler, written=written)
    return graph, arguments, bound, gm


def starting(captured: Capture) -> CallSite:
    """The frame, before its first instruction."""
    return CallSite(weakref.ref(captured.code), 0, captured.machine.roots.globals.get("__name__", ""), None)


def blocks_left(captured: Capture) -> list[tuple[Any, tuple[Any, ...]]]:
    """What a frame that goes on after a break has to call where it leaves the `with` blocks it was in."""
    if not resume.is_continuation(captured.code):
        return []
    return list(captured.machine.effects.switched())


def not_overridden(fn: Any) -> Any:
    """A graph has in it what `__torch_function__` made of the program: it is not asked once more."""

    def run(*args: Any) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return fn(*args)

    return run


def handled_in_boxes(handler: Handler, positions: tuple[int, ...]) -> Handler:
    """The handler of a graph's errors, for a graph that gets floats at these positions."""

    def handled(error: BaseException, args: Any) -> Any:
        return handler(error, args if args is None else in_boxes(args, positions))

    return handled


def brought_by(source: Source | None) -> Source | None:
    """The tensor that brings a size; anything else brings itself."""
    return source.base if source is not None and source.how in ("size", "stride") else source


def place_of(source: Source | None, code: CodeType) -> int:
    """Inputs of a graph: the frame's arguments first, in their order, then what comes bound."""
    if source is None or not is_plain_local(source, code):
        return len(code.co_varnames)
    return code.co_varnames.index(source.arg)


def is_plain_local(source: Source | None, code: CodeType) -> bool:
    """Whether the replacement code can read it with LOAD_FAST."""
    return source is not None and source.how == "local" and source.arg not in code.co_cellvars


def left_as_it_is(gm: Any, example_inputs: Any) -> None:
    """Stands in for the backend where operator by operator is right: for inputs that share memory, in first runs."""
