"""Calling a backend, and what happens when it fails: the user gets eager's answer, and hears of it once."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Sequence
from types import CodeType
from typing import Any, TypeGuard

import torch.fx

from torchdynamo import config
from torchdynamo.backends.custom import with_symbols
from torchdynamo.backends.preserve import (
    Contents,
    RandomState,
    mutated_positions,
    tensors_at,
    undisturbed,
    versions,
)
from torchdynamo.backends.registry import Backend, backend_name
from torchdynamo.backends.verify import verify
from torchdynamo.errors import BackendError, FallbackWarning, InternalError
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
    """Return what the backend makes of the graph, or the graph itself if the backend declines (None) or fails (a
    warning).

    Make the `on_error` handler before this: a backend may rewrite the graph it is given.
    """
    as_captured: Run = gm.forward
    guarded = _needs_care(gm)
    label = backend_name(backend)

    def compile_one(fixed: torch.fx.GraphModule, examples: Sequence[Any]) -> Run | None:
        return compile_graph(fixed, examples, backend, f"{name} at fixed sizes", fullgraph=fullgraph)

    try:
        with undisturbed(gm, example_inputs, backend):
            compiled = with_symbols(gm, example_inputs, backend, compile_one)
        if compiled is None:
            return as_captured
        if not callable(compiled):
            raise TypeError(f"a backend returns a callable or None, and this one returned a {type(compiled).__name__}")
        made: Run = compiled
    except Exception as cause:
        if interrupts.came():
            raise
        text = f"backend {label!r} failed on graph {name} ({type(cause).__name__}: {cause})"
        if fullgraph or not config.suppress_errors:
            raise BackendError(text, label, name) from cause
        _warn(f"{text}; the graph runs eagerly", cause)
        return as_captured
    if config.verify_correctness:
        with undisturbed(gm, example_inputs, backend):
            verify(as_captured, made, example_inputs, label, name)
    if not guarded or getattr(compiled, "__code__", None) is as_captured.__code__:
        return made
    return Careful(made, mutated_positions(gm), as_captured.__code__)


def _needs_care(gm: torch.fx.GraphModule) -> bool:
    effects = effects_of(gm)
    return bool(effects.mutated) or effects.random


class GraphFailure(Exception):
    """A compiled graph that writes to inputs or draws random numbers raised `original`.

    `spoiled`: inputs have changed, so it cannot be run again.
    """

    def __init__(self, original: Exception, spoiled: bool) -> None:
        super().__init__(original)
        self.original = original
        self.spoiled = spoiled


class Careful:
    """Runs a compiled graph that a second run would not repeat: one that writes to its inputs, or is random.

    The first call is the one that fails if any does; it can be undone. Later ones only note whether inputs changed.
    """

    __slots__ = ("code", "fn", "positions", "proven")

    def __init__(self, fn: Run, positions: tuple[int, ...], code: CodeType) -> None:
        self.fn = fn
        self.positions = positions
        self.code = code
        self.proven = False

    def __call__(self, *args: Any) -> Any:
        if not self.proven:
            return self._first(args)
        if not self.positions:
            return self.fn(*args)
        tensors = tensors_at(self.positions, args)
        before = versions(tensors)
        try:
            return self.fn(*args)
        except Exception as raised:
            raise GraphFailure(raised, spoiled=before != versions(tensors)) from raised

    def _first(self, args: tuple[Any, ...]) -> Any:
        contents, random = Contents(tensors_at(self.positions, args)), RandomState()
        try:
            result = self.fn(*args)
        except Exception as raised:
            if not raised_inside(raised, self.code):  # else it is the user's own error, and so is what it left behind
                contents.restore()
                random.restore()
            raise GraphFailure(raised, spoiled=False) from raised
        self.proven = True
        return result


def on_error(
    gm: torch.fx.GraphModule,
    backend_name: str,
    mutates: Collection[str],
    name: str = "",
    raised: Callable[[Exception], None] | None = None,
    leaving: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]] = (),
    program: Program = NOWHERE,
    written: bool = False,
) -> Handler:
    """Return what to do when the compiled graph raises: run it eagerly, if that is still possible.

    If eager raises too, that is the user's own error: it is given back, to be raised at their line of the `program`.
    Where the frame can run as it was `written`, or somebody is there to be told, by `raised`, None is given, and the
    frame will raise it. `mutates` names the inputs the graph writes to. `leaving`: what an error calls on its way out
    of the frame, which has begun inside of `with` blocks.
    """
    eager: Run = gm.forward
    code: CodeType = eager.__code__
    modes, switches = Modes.now(), changes_modes(gm)
    warned = False

    def handler(error: BaseException, args: tuple[Any, ...] | None) -> Any:
        nonlocal warned
        if args is None:  # the frame was to raise it, and has not
            return program.shown(error, code)
        if switches:
            modes.restore()
        spoiled, given_up = bool(mutates), error
        if isinstance(error, GraphFailure):
            spoiled = error.spoiled
            error = error.original
        if isinstance(error, InternalError):
            return program.shown(error, code)
        if is_ordinary(error) and not raised_inside(error, code):
            if spoiled:
                return program.shown(half_done(error), code)
            result, failed = _attempt(eager, args)
            if failed is None:
                if not warned:
                    warned = True
                    what = f"{type(error).__name__}: {error}"
                    _warn(f"backend {backend_name!r}: graph {name} raised {what}; it ran eagerly instead", error)
                return result
            if switches:
                modes.restore()
            error = failed
        if is_ordinary(error) and (written or raised is not None):
            if raised is not None:
                raised(error)
            given_up.__traceback__ = None  # it leads to all that the graph has computed
            return None
        for call, given in leaving:
            call(*given)
        return program.shown(error, code)

    def half_done(cause: Exception) -> BackendError:
        text = f"backend {backend_name!r} failed while graph {name} ran and had changed its inputs already"
        error = BackendError(f"{text} ({type(cause).__name__}: {cause})", backend_name, name)
        error.__cause__ = cause
        return error

    return handler


def is_ordinary(error: BaseException) -> TypeGuard[Exception]:
    """Return whether it is an error at all, and not a way to end something."""
    return isinstance(error, Exception) and not isinstance(error, STOP_RECOMPUTING)


def _attempt(run: Run, args: tuple[Any, ...]) -> tuple[Any, Exception | None]:
    """Return the result, or what was raised: for raising it again outside the handler, with no context of ours."""
    try:
        return run(*args), None
    except Exception as error:
        return None, error


def _warn(text: str, cause: BaseException) -> None:
    if config.verbose:
        text = f"{text}\n{''.join(traceback.format_exception(cause))}"
    warn_user(text, FallbackWarning)
