"""Choose for each set of sizes by itself: a graph with symbols becomes a bounded number of graphs without."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch.fx

from torchdynamo import config
from torchdynamo.backends.ensemble.choice import Choice
from torchdynamo.backends.ensemble.member import Member, Run
from torchdynamo.backends.ensemble.settings import Settings
from torchdynamo.backends.replaceable import Replaceable
from torchdynamo.graph.concretize import at_sizes, places, specialize_examples, without_numbers
from torchdynamo.graph.numbers import has_numbers
from torchdynamo.graph.sizes import sizes_of


class Slot:
    """Holds what serves one set of sizes."""

    __slots__ = ("__weakref__", "choice", "fn", "kept")

    def __init__(self, choice: Choice, kept: Sequence[int]) -> None:
        self.choice = choice
        self.fn: Run = choice
        self.kept = kept  # positions of the inputs that the graph without symbols takes


class BySize(Replaceable):
    """Runs a graph with symbols by a choice for each set of sizes, beyond the limit by one among what takes symbols."""

    def __init__(self, gm: torch.fx.GraphModule, members: Sequence[Member], settings: Settings) -> None:
        super().__init__()
        self.gm, self.members, self.settings = gm, members, settings
        self.places = places(gm, sizes_of(gm))
        self.made: dict[tuple[Any, ...], Slot] = {}
        self.rest: Choice | None = None
        self.last = threading.local()  # the choice that each thread has called last

    def __call__(self, *args: Any) -> Any:
        key = self.key(args)
        slot = self.made.get(key)
        if slot is None:
            slot = self.slot(key, args)
        if slot is None:
            return self.others(args)
        self.last.choice = slot.choice
        return slot.fn(*[args[position] for position in slot.kept])

    def key(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """Return the values of the graph's symbols in a call."""
        return tuple(place.read(args) for place in self.places.values())

    def start(self, example_inputs: Sequence[Any]) -> None:
        """Begin with the sizes of the call that the graph is compiled for."""
        self.slot(self.key(example_inputs), example_inputs)

    def failed(self, error: BaseException) -> None:
        choice: Choice | None = getattr(self.last, "choice", None)
        if choice is not None:
            choice.failed(error)

    def slot(self, key: tuple[Any, ...], args: Sequence[Any]) -> Slot | None:
        """Return what serves these sizes, made now if the limit allows; else None."""
        if len(self.made) >= config.cache_size_limit:
            return None
        known = dict(zip(self.places, key, strict=True))
        fixed = at_sizes(self.gm, known)
        specialize_examples(fixed, known)
        kept = without_numbers(fixed)
        if has_numbers(fixed):
            return None
        choice = Choice(fixed, self.members, self.settings, self.gm)
        slot = self.made[key] = Slot(choice, kept)
        choice.held_by(slot)
        choice.start([args[position] for position in kept])
        return slot

    def others(self, args: Sequence[Any]) -> Any:
        """Run at sizes that have no graph of their own, by a member that takes symbols."""
        if self.rest is None:
            self.rest = Choice(self.gm, self.members, self.settings)
            self.rest.start(args)
        self.last.choice = self.rest
        return self.rest(*args)
