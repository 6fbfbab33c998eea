"""Call backends; when one fails, fall back on eager and warn once."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Sequence
from types import CodeType
from typing import Any, NamedTuple, TypeGuard

import torch.fx

from torchdynamo import config
from torchdynamo.backends import collectives, graph_agreement
from torchdynamo.backends.custom import with_symbols
from torchdynamo.backends.ensemble import record
from torchdynamo.backends.failed_graph import failed_graph
from torchdynamo.backends.preserve import (
    Contents,
    RandomState,
    mutated_positions,
    restore_versions,
    state_restored,
    tensors_at,
    unseen_positions,
    versions,
)
from torchdynamo.backends.registry import Backend, backend_name, has_mark
from torchdynamo.backends.replaceable import Replaceable
from torchdynamo.backends.verify import Advice, Shadowed, no_advice, verify
from torchdynamo.core.reasons import explained
from torchdynamo.errors import (
    BackendError,
    FallbackWarning,
    InternalError,
    RanksDisagree,
    RecordingError,
    TorchDynamoError,
    VerificationError,
)
from torchdynamo.graph.generators import GeneratorStates, is_generator
from torchdynamo.graph.modes import Modes
from torchdynamo.graph.mutation import changes_modes, effects_of
from torchdynamo.graph.torch_compat import STOP_RECOMPUTING
from torchdynamo.graph.tracebacks import Program, raised_inside
from torchdynamo.hook import interrupts
from torchdynamo.hook.user_warnings import warn_user

Run = Callable[..., Any]
Handler = Callable[[BaseException, Any], Any]
NOWHERE = Program()


def compile_graph(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], backend: Backend, name: str, *, fullgraph: bool = False
) -> Run:
    """Compile a graph by a backend; return the graph's own forward if the backend declines or fails.

    A failure is a warning, or a BackendError under `fullgraph` or without `config.suppress_errors`. Make the `on_error`
    handler first, because a backend may modify the graph. Raises VerificationError under `config.verify_correctness`.

    name: the graph as messages call it.
    """
    record.note(gm, example_inputs, name)
    as_captured: Run = gm.forward
    effects, unseen = effects_of(gm), unseen_positions(gm)
    if effects.communicates and has_mark(backend, "tries_graphs"):
        return as_captured
    label = backend_name(backend)
    kept = failed_graph(gm, backend)

    def compile_one(fixed: torch.fx.GraphModule, examples: Sequence[Any]) -> Run | None:
        return compile_graph(fixed, examples, backend, f"{name} at fixed sizes", fullgraph=fullgraph)

    try:
        with state_restored(gm, example_inputs, backend):
            compiled = with_symbols(gm, example_inputs, backend, compile_one)
        if compiled is None:
            return as_captured
        if not callable(compiled):
            raise TypeError(f"a backend returns a callable or None, and this one returned a {type(compiled).__name__}")
        made: Run = compiled
    except Exception as cause:
        if interrupts.came():
            raise
        text = f"backend {label!r} failed on {name} ({type(cause).__name__}: {cause})"
        advice = kept.advice(example_inputs)
        if isinstance(cause, RecordingError):
            raise
        if fullgraph or not config.suppress_errors:
            raise BackendError(explained(text, "backend failed") + advice, label, name) from cause
        _warn(explained(f"{text}; the graph runs eagerly", "backend failed"), cause, advice, name)
        return as_captured
    if config.verify_correctness and not effects.communicates:
        with state_restored(gm, example_inputs, backend):
            verify(as_captured, made, example_inputs, label, name, kept.advice)
    if type(config.verify_correctness) is int and not effects.communicates:
        made = Shadowed(as_captured, made, config.verify_correctness, label, name, kept.advice)
    if effects.repeatable or getattr(compiled, "__code__", None) is as_captured.__code__:
        return made
    sent = graph_agreement.collectives_of(gm, name) if effects.communicates else None
    careful = Careful(made, mutated_positions(gm), as_captured.__code__, sent, unseen)
    if isinstance(made, Replaceable):
        made.held_by(careful)
    return careful


WROTE, COMMUNICATED = "changed its inputs", "communicated with other ranks"


class Leaving(NamedTuple):
    """A call that an error makes on its way out of a frame, to leave a `with` block."""

    call: Callable[..., Any]
    args: tuple[Any, ...]


class GraphFailure(Exception):
    """Reports that a compiled graph which must not simply run twice raised `original`.

    done: what it had done by then that cannot be undone, so that it cannot run again; empty for nothing.
    """

    def __init__(self, original: Exception, done: str) -> None:
        super().__init__(original)
        self.original = original
        self.done = done


class Careful:
    """Runs a compiled graph that must not simply run twice: it writes to inputs, draws random numbers or communicates.

    Most failures occur in the first call, which is undone. Later calls only record whether inputs have changed. What
    was communicated is never undone.
    """

    __slots__ = ("__weakref__", "code", "communicates", "fn", "made", "positions", "proven", "sent", "unseen")

    def __init__(
        self,
        fn: Run,
        positions: tuple[int, ...],
        code: CodeType,
        sent: graph_agreement.Collectives | None = None,
        unseen: tuple[int, ...] = (),
    ) -> None:
        self.fn = self.made = fn  # another may come in the place of `fn` (`replaceable.py`)
        self.positions = positions
        self.code = code
        self.sent, self.communicates = sent, sent is not None  # to other ranks
        self.unseen = unseen  # positions of inputs that it writes to behind autograd's back
        self.proven = False

    def __call__(self, *args: Any) -> Any:
        if self.sent is not None:
            graph_agreement.check(self.sent)
        if not self.proven:
            return self._first(args)
        if not (self.positions or self.communicates):
            return self.fn(*args)
        tensors = tensors_at(self.positions, args)
        before, begun = versions(tensors), self._issued()
        try:
            return self._run(args)
        except GraphFailure:  # of a piece
            raise
        except Exception as raised:
            done = WROTE if before != versions(tensors) else ""
            raise GraphFailure(raised, COMMUNICATED if collectives.any_since(begun) else done) from raised

    def _run(self, args: tuple[Any, ...]) -> Any:
        if not self.unseen:
            return self.fn(*args)
        tensors = tensors_at(self.unseen, args)
        before = versions(tensors)
        result = self.fn(*args)
        restore_versions(tensors, before)
        return result

    def _issued(self) -> collectives.Issued:
        return collectives.issued() if self.communicates else {}

    def _first(self, args: tuple[Any, ...]) -> Any:
        contents, random, begun = Contents(tensors_at(self.positions, args)), RandomState(), self._issued()
        generators = GeneratorStates(filter(is_generator, args))
        try:
            result = self._run(args)
        except GraphFailure:
            raise
        except Exception as raised:
            if not raised_inside(raised, self.code):  # an error of the program leaves its side effects behind
                contents.restore()
                random.restore()
                generators.restore()
            raise GraphFailure(raised, COMMUNICATED if collectives.any_since(begun) else "") from raised
        self.proven = True
        return result


def on_error(
    gm: torch.fx.GraphModule,
    backend_name: str,
    mutates: Collection[str],
    name: str = "",
    raised: Callable[[Exception], None] | None = None,
    leaving: Sequence[Leaving] = (),
    program: Program = NOWHERE,
    written: bool = False,
    advice: Advice = no_advice,
    modes: Modes | None = None,
) -> Handler:
    """Return the handler that is called when the compiled graph raises: it runs the graph in eager if it still can.

    If eager raises as well, the error is the program's own and is returned, to be raised at its line of the `program`.
    Where the frame can run as it was `written`, or a callback `raised` is given, the handler returns None, and the
    frame runs and raises by itself.

    mutates: names of the inputs that the graph writes to. leaving: calls to make as the error leaves the frame, for
    the `with` blocks that the frame is in. advice: what a warning ends with, given the inputs.
    modes: those that the graph begins in, the current ones by default.
    """
    eager: Run = gm.forward
    code: CodeType = eager.__code__
    begun, switches = modes or Modes.now(), changes_modes(gm)
    warned = False

    def handler(error: BaseException, args: tuple[Any, ...] | None) -> Any:
        nonlocal warned
        if args is None:  # the frame ran as written and did not raise
            return program.shown(error, code)
        if switches:
            begun.restore()
        done, given_up = WROTE if mutates else "", error
        if isinstance(error, GraphFailure):
            done = error.done
            error = error.original
        if isinstance(error, (InternalError, RanksDisagree, RecordingError, VerificationError)):
            return program.shown(error, code)
        if is_ordinary(error) and not raised_inside(error, code):
            if done:
                return program.shown(failed_after(done, error, advice(args)), code)
            result, failed = _attempt(eager, args)
            if failed is None:
                if not warned:
                    warned = True
                    _warn_of_eager(error, backend_name, name, advice(args))
                return result
            if switches:
                begun.restore()
            error = failed
        if is_ordinary(error) and (written or raised is not None):
            if raised is not None:
                raised(error)
            given_up.__traceback__ = None  # it would keep all that the graph has computed alive
            return None
        for each in leaving:
            each.call(*each.args)
        return program.shown(error, code)

    def failed_after(done: str, cause: Exception, ending: str) -> BackendError:
        text = f"backend {backend_name!r} failed while {name} ran and had {done} already"
        text = explained(f"{text} ({type(cause).__name__}: {cause})", "graph failed")
        error = BackendError(text + ending, backend_name, name)
        error.__cause__ = cause
        return error

    return handler


class EagerOnError:
    """Runs a compiled piece of a graph, or the piece in eager where that raises and has done nothing for good.

    An error that eager raises as well is the program's own.
    """

    def __init__(self, fn: Run, eager: Run, backend_name: str, advice: Advice = no_advice) -> None:
        self.fn, self.eager, self.backend_name, self.advice = fn, eager, backend_name, advice
        self.warned = False

    def __call__(self, *args: Any) -> Any:
        try:
            return self.fn(*args)
        except Exception as raised:
            error = raised
        failure = error.original if isinstance(error, GraphFailure) else error
        done = isinstance(error, GraphFailure) and error.done
        if done:
            raise error
        if isinstance(failure, (TorchDynamoError, STOP_RECOMPUTING)) or raised_inside(failure, self.eager.__code__):
            raise failure
        result, failed = _attempt(self.eager, args)
        if failed is not None:
            raise failed
        if not self.warned:
            self.warned = True
            _warn_of_eager(failure, self.backend_name, "a piece between NumPy's operators", self.advice(args))
        return result


def is_ordinary(error: BaseException) -> TypeGuard[Exception]:
    """Return whether this is an error, rather than an exception that ends a thread, process or recomputation."""
    return isinstance(error, Exception) and not isinstance(error, STOP_RECOMPUTING)


def _attempt(run: Run, args: tuple[Any, ...]) -> tuple[Any, Exception | None]:
    """Return (result, None) or (None, exception): raised outside of the `except` block, it gets no context of ours."""
    try:
        return run(*args), None
    except Exception as error:
        return None, error


def _warn_of_eager(error: BaseException, backend_name: str, name: str, advice: str) -> None:
    text = f"backend {backend_name!r}: {name} raised {type(error).__name__}: {error}; it ran eagerly instead"
    _warn(explained(text, "graph failed"), error, advice, name)


def _warn(text: str, cause: BaseException, advice: str, graph: str) -> None:
    if config.verbose:
        text = f"{text}\n{''.join(traceback.format_exception(cause))}"
    warn_user(text + advice, FallbackWarning, graph)
