"""Run what was built for certain constants and threads, as long as these are what they were."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchdynamo import _native
from torchdynamo.backends.ensemble.subgraph import Subgraph

Run = Callable[..., Any]


class FrozenRun:
    """Calls what a member built with constants; where a constant has changed, calls `changed` with all inputs instead.

    Identity, address and version of each constant are compared in each call. A constant that dies takes the compiled
    graph with it: nothing here keeps a model alive.
    """

    __slots__ = ("__weakref__", "changed", "facts", "moving", "references", "run")

    def __init__(self, run: Run, subgraph: Subgraph, changed: Run) -> None:
        self.run: Run | None = run
        self.changed = changed
        self.moving = tuple(subgraph.moving)
        self.facts = facts_of(subgraph.example_inputs, subgraph.static)
        myself = weakref.ref(self)

        def died(reference: Any) -> None:
            frozen = myself()
            if frozen is not None:
                frozen.run = None

        self.references = [weakref.ref(subgraph.example_inputs[position], died) for position in subgraph.static]

    def __call__(self, *args: Any) -> Any:
        run = self.run
        if run is None or not _native.tensor_facts_hold(self.facts, args):
            return self.changed(*args)
        return run(*[args[position] for position in self.moving])


class AtThreads:
    """Calls what a runtime with threads of its own built, while `torch.get_num_threads` says what it said then.

    With another number it calls `changed` instead.
    """

    __slots__ = ("changed", "run", "threads")

    def __init__(self, run: Run, changed: Run) -> None:
        self.run = run
        self.changed = changed
        self.threads = torch.get_num_threads()

    def __call__(self, *args: Any) -> Any:
        if torch.get_num_threads() != self.threads:
            return self.changed(*args)
        return self.run(*args)


def facts_of(inputs: Sequence[Any], positions: Sequence[int]) -> bytes:
    """Return identity, address and version of the tensors at these positions, for `_native.tensor_facts_hold`.

    Raises ValueError for tensors made in inference mode, which have no version.
    """
    return _native.tensor_facts(tuple(inputs), tuple(positions))


def count_bytes(subgraph: Subgraph) -> int:
    """Return how many bytes the constants of a graph take, shared memory counted once."""
    storages = {
        storage._cdata: storage.nbytes()
        for storage in (subgraph.example_inputs[position].untyped_storage() for position in subgraph.static)
    }
    return sum(storages.values())
