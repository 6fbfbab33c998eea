"""Calling a backend, and what happens when it fails: the user gets eager's answer, and hears of it once."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Collection, Sequence
from types import CodeType
from typing import Any, TypeGuard

import torch.fx

from torchdynamo import config
from torchdynamo.backends.custom import with_symbols
from torchdynamo.backends.failure import add_position, raised_inside, without_our_frames
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
from torchdynamo.hook import interrupts

Run = Callable[..., Any]
Handler = Callable[[BaseException, tuple[Any, ...]], Any]


def compile_graph(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], backend: Backend, name: str, *, fullgraph: bool = False
) -> Run:
    """What the backend makes of the graph, or the graph itself if the backend declines (None) or fails (a warning).

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


class Failure(Exception):
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
            raise Failure(raised, spoiled=before != versions(tensors)) from raised

    def _first(self, args: tuple[Any, ...]) -> Any:
        contents, random = Contents(tensors_at(self.positions, args)), RandomState()
        try:
            result = self.fn(*args)
        except Exception as raised:
            if not raised_inside(raised, self.code):  # else it is the user's own error, and so is what it left behind
                contents.restore()
                random.restore()
            raise Failure(raised, spoiled=False) from raised
        self.proven = True
        return result


def on_error(
    gm: torch.fx.GraphModule,
    backend_name: str,
    mutates: Collection[str],
    name: str = "",
    raised: Callable[[Exception], None] | None = None,
    leaving: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]] = (),
) -> Handler:
    """What to do when the compiled graph raises: run it eagerly, if that is still possible.

    If eager raises too, that is the user's own error, at their line. Where somebody is there to be told, by `raised`,
    the graph gives None, and the frame will raise it. `mutates` names the inputs the graph writes to. `leaving`: what
    an error calls on its way out of the frame, which has begun inside of `with` blocks.
    """
    eager: Run = gm.forward
    code: CodeType = eager.__code__
    modes, switches = Modes.now(), changes_modes(gm)
    lines = {node.name: str(node.meta.get("stack_trace", "")) for node in gm.graph.nodes}
    warned = False

    def handler(error: BaseException, args: tuple[Any, ...]) -> Any:
        nonlocal warned
        if switches:
            modes.restore()
        spoiled = bool(mutates)
        if isinstance(error, Failure):
            spoiled = error.spoiled
            error = error.original
        if isinstance(error, InternalError):
            raise error
        if is_ordinary(error) and not raised_inside(error, code):
            if spoiled:
                text = f"backend {backend_name!r} failed while graph {name} ran and had changed its inputs already"
                raise BackendError(f"{text} ({type(error).__name__}: {error})", backend_name, name) from error
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
        if raised is None or not is_ordinary(error):
            add_position(error, code, lines)
            for call, given in leaving:
                call(*given)
            raise without_our_frames(error)
        raised(error)
        return None

    return handler


def is_ordinary(error: BaseException) -> TypeGuard[Exception]:
    """Whether it is an error at all, and not a way to end something."""
    return isinstance(error, Exception) and not isinstance(error, STOP_RECOMPUTING)


def _attempt(run: Run, args: tuple[Any, ...]) -> tuple[Any, Exception | None]:
    """The result, or what was raised: for raising it again outside the handler, with no context of ours."""
    try:
        return run(*args), None
    except Exception as error:
        return None, error


def _warn(text: str, cause: BaseException) -> None:
    if config.verbose:
        text = f"{text}\n{''.join(traceback.format_exception(cause))}"
    warnings.warn(text, FallbackWarning, stacklevel=3)
