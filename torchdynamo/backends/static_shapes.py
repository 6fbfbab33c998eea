"""Serve backends that take no symbols: one graph with symbolic sizes becomes a bounded number of static ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.fx

from torchdynamo import config
from torchdynamo.backends.padding import Buckets, Padding, PaddingPlan
from torchdynamo.backends.registry import Backend, backend_name
from torchdynamo.backends.run import compile_graph
from torchdynamo.core.reasons import explained
from torchdynamo.errors import FallbackWarning
from torchdynamo.graph.concretize import at_sizes, places, serving, without_numbers
from torchdynamo.graph.numbers import has_numbers
from torchdynamo.graph.sizes import Sizes, sizes_of
from torchdynamo.hook.user_warnings import warn_user

Run = Callable[..., Any]


def at_fixed_sizes(backend: Backend, buckets: Buckets) -> Backend:
    """Wrap a backend so that it only gets graphs without symbols."""

    def fixing(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Run | None:
        sizes = sizes_of(gm)
        if sizes is None:
            return None if has_numbers(gm) and takes_no_symbols(backend) else backend(gm, example_inputs)
        varied = Varied(gm, sizes, backend, buckets)
        varied.prepared(example_inputs)
        return varied

    fixing.__name__ = backend_name(backend)
    fixing.func = backend  # type: ignore[attr-defined]  # as a functools.partial has it
    for mark in ("leaves_inputs_alone", "fixed_sizes", "tries_graphs"):
        setattr(fixing, mark, getattr(backend, mark, False))
    return fixing


def takes_no_symbols(backend: Backend) -> bool:
    return bool(getattr(backend, "fixed_sizes", False))


class Varied:
    """Runs a graph with symbolic sizes by one static graph per set of sizes; beyond the limit it runs in eager."""

    def __init__(self, gm: torch.fx.GraphModule, sizes: Sizes | None, backend: Backend, buckets: Buckets) -> None:
        self.gm = gm
        self.backend = backend
        self.places = places(gm, sizes)
        self.padding = Padding.of(gm, sizes, self.places, buckets) if sizes is not None else None
        self.made: dict[tuple[Any, ...], Run] = {}
        self.full = False

    def key(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """Return the values of the graph's symbols in this call."""
        return tuple(place.read(args) for place in self.places.values())

    def __call__(self, *args: Any) -> Any:
        key, plan = self.planned(args)
        if plan is None:
            return self.static(key, args)(*args)
        given = plan.inputs(args)
        return plan.cut(self.static(plan.padded, given)(*given))

    def planned(self, args: Sequence[Any]) -> tuple[tuple[Any, ...], PaddingPlan | None]:
        """Return the values of the graph's symbols in a call, and how its inputs are padded, if they are."""
        key = self.key(args)
        return key, None if self.padding is None else self.padding.plan(key, args)

    def prepared(self, args: Sequence[Any]) -> None:
        """Compile the static graph that these inputs need."""
        key, plan = self.planned(args)
        if plan is None:
            self.static(key, args)
        else:
            self.static(plan.padded, plan.inputs(args))

    def static(self, key: tuple[Any, ...], args: Sequence[Any]) -> Run:
        """Return the graph compiled at these sizes, compiling it if the limit allows, else the captured graph."""
        found = self.made.get(key)
        if found is None and len(self.made) < config.cache_size_limit:
            found = self.made[key] = self.make(key, args)
        elif found is None and not self.full:
            self.full = True
            text = (
                f"backend {backend_name(self.backend)!r} takes no symbols, and has made {len(self.made)} graphs of one "
                "for as many sizes, which is torchdynamo.config.cache_size_limit; at further sizes it runs eagerly. "
                'Few sizes, padded up to: torchdynamo.compile(..., options={"buckets": {"x": {0: (64, 128)}}}).'
            )
            warn_user(explained(text, "backend needs constants"), FallbackWarning)
        return found or self.gm.forward

    def make(self, key: tuple[Any, ...], args: Sequence[Any]) -> Run:
        fixed = at_sizes(self.gm, dict(zip(self.places, key, strict=True)))
        kept = without_numbers(fixed)
        if has_numbers(fixed) and takes_no_symbols(self.backend):  # read from tensors
            return self.gm.forward
        serving(self.gm)[key] = fixed
        run = compile_graph(fixed, [args[i] for i in kept], self.backend, f"a graph at {key}")
        return lambda *given: run(*(given[i] for i in kept))
