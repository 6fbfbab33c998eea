"""Call users' backends on graphs whose sizes or numbers are symbols, so that no value is baked in unnoticed.

The backend is called with symbols, inside of a `BackendStage` (`stage.py`). Its result serves all values, unless the
backend computed with the tensors of the call, as `torch.jit.trace` does, or its result traces when it is first called,
as `aot_function` does. Such a result serves only the values it was made at; other values get graphs of their own, with
constants. So do backends that raise when they meet a symbol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.fx

from torchdynamo import config
from torchdynamo.backends.registry import Backend, backend_name, has_mark
from torchdynamo.backends.stage import BackendStage, Trial, reads_values
from torchdynamo.core.reasons import explained
from torchdynamo.errors import FallbackWarning
from torchdynamo.graph.concretize import at_sizes, places, specialize_examples, without_numbers
from torchdynamo.graph.mutation import effects_of
from torchdynamo.graph.numbers import has_numbers
from torchdynamo.graph.sizes import sizes_of
from torchdynamo.graph.tracebacks import raised_inside
from torchdynamo.hook.user_warnings import warn_user

Run = Callable[..., Any]
Compile = Callable[[torch.fx.GraphModule, Sequence[Any]], Run | None]


def handles_symbols(backend: Backend) -> bool:
    """Return whether a backend handles symbols itself, as those of this package do."""
    return has_mark(backend, "leaves_inputs_alone") or has_mark(backend, "fixed_sizes")


def with_symbols(gm: torch.fx.GraphModule, examples: Sequence[Any], backend: Backend, compile_one: Compile) -> Any:
    """Compile a graph by a backend; return a callable that is right for all values of its symbols.

    compile_one: compiles a graph of constants. Raises the backend's exception where constants would not help.
    """
    if not has_numbers(gm) or handles_symbols(backend):
        return backend(gm, examples)
    stage, by_value = BackendStage(gm, examples), ByValue(gm, backend, compile_one)
    try:
        made = stage.call(backend, gm)
    except Exception:
        if not by_value.places:
            raise
        by_value.make(by_value.values(examples), examples)
        return by_value
    if not callable(made) or is_own_code(made, gm):
        return made
    if stage.computed:
        by_value.serve(examples, made)
        return by_value
    return made if stage.traced else FirstCallTrial(made, by_value)


def is_own_code(made: Any, gm: torch.fx.GraphModule) -> bool:
    """Return whether a backend's result just runs the captured graph."""
    return made is gm or getattr(made, "__code__", None) is gm.forward.__code__


class ByValue:
    """Runs a graph with symbols by one graph of constants for each set of values; beyond the limit, and for numbers
    read from tensors, operator by operator.
    """

    def __init__(self, gm: torch.fx.GraphModule, backend: Backend, compile_one: Compile) -> None:
        self.gm, self.backend, self.compile_one = gm, backend, compile_one
        self.places = places(gm, sizes_of(gm), floats=True)
        self.made: dict[str, Run] = {}
        self.full = False

    def values(self, args: Sequence[Any]) -> list[Any]:
        """Return the values of the graph's symbols in this call."""
        return [place.read(args) for place in self.places.values()]

    def serve(self, args: Sequence[Any], run: Run) -> None:
        """Use `run` for calls with these values, unless the graph also reads numbers from tensors."""
        if not reads_values(self.gm):
            self.made[repr(self.values(args))] = run

    def __call__(self, *args: Any) -> Any:
        values = self.values(args)
        return (self.made.get(repr(values)) or self.make(values, args))(*args)

    def make(self, values: list[Any], args: Sequence[Any]) -> Run:
        """Compile the graph with these values as constants and return the result."""
        if len(self.made) >= config.cache_size_limit:
            self.tell()
            return self.gm.forward
        known = dict(zip(self.places, values, strict=True))
        fixed = at_sizes(self.gm, known)
        specialize_examples(fixed, known)
        kept = without_numbers(fixed)
        run = None if has_numbers(fixed) else self.compile_one(fixed, [args[i] for i in kept])
        made: Run = (lambda *given: run(*(given[i] for i in kept))) if run is not None else self.gm.forward
        self.made[repr(values)] = made
        return made

    def tell(self) -> None:
        """Warn, once, that the limit of graphs is reached."""
        if self.full:
            return
        self.full = True
        text = (
            f"backend {backend_name(self.backend)!r} does not keep sizes and numbers as symbols, and has made "
            f"{len(self.made)} graphs of one for as many values, which is torchdynamo.config.cache_size_limit; with "
            "further values it runs eagerly. A backend that traces with fake tensors keeps symbols."
        )
        warn_user(explained(text, "backend needs constants"), FallbackWarning)


class FirstCallTrial:
    """A backend's result that has not run yet: its first call shows whether it runs the graph or traces first.

    If that call fails in another way than the program would, each set of values gets a graph of its own.
    """

    def __init__(self, run: Run, by_value: ByValue) -> None:
        self.run, self.by_value, self.tried = run, by_value, False
        self.repeatable = effects_of(by_value.gm).repeatable

    def __call__(self, *args: Any) -> Any:
        return self.run(*args) if self.tried else self.first(args)

    def first(self, args: Sequence[Any]) -> Any:
        """Make the first call and return its result. Raises the graph's exception; RuntimeError if tracing fails."""
        trial = Trial()
        try:
            result = trial.call(self.run, args)
        except Exception as error:
            own = not trial.traced and raised_inside(error, self.by_value.gm.forward.__code__)
            if own or not (self.repeatable and self.by_value.places):
                if own or not trial.traced:
                    raise
                raise RuntimeError(f"tracing the graph failed: {type(error).__name__}: {error}") from error
            result = self.by_value(*args)
            self.run = self.by_value
        else:
            if trial.traced:
                self.by_value.serve(args, self.run)
                self.run = self.by_value
        self.tried = True
        return result
