"""Generators of random numbers that a graph takes as inputs, torch's and NumPy's, and their states."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from torchdynamo.graph.numpy_nodes import np

KINDS: tuple[type, ...] = (torch.Generator,)
if np is not None:
    KINDS = (torch.Generator, np.random.RandomState, np.random.Generator)


def is_generator(obj: object) -> bool:
    """Return whether an object is a generator of random numbers."""
    return isinstance(obj, KINDS)


class GeneratorStates:
    """The states of generators, to go back to them."""

    def __init__(self, generators: Iterable[Any]) -> None:
        self.states = [(each, state_of(each)) for each in generators]

    def restore(self) -> None:
        """Set the generators back to these states."""
        for generator, state in self.states:
            if np is not None and isinstance(generator, np.random.Generator):
                generator.bit_generator.state = state
            else:
                generator.set_state(state)


def state_of(generator: Any) -> Any:
    """Return what a generator's next numbers depend on."""
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    return generator.get_state(legacy=False)
