"""Models to measure, with random weights: one file for each package, which adds its rows to the table.

A row has a name, a function that makes the model, and one that makes its inputs for a batch size. A package that is not
installed costs its models a line in the report.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Inputs = Callable[[int], tuple[Any, ...]]


class BenchModel(NamedTuple):
    """A model to measure."""

    name: str
    make: Callable[[], Any]
    """Returns the `torch.nn.Module`. Raises ImportError if the package is not installed."""
    inputs: Inputs
    """Takes a batch size, returns the positional arguments of a call."""


MODELS: dict[str, BenchModel] = {}


def add(name: str, make: Callable[[], Any], inputs: Inputs) -> None:
    """Add a model to the table."""
    MODELS[name] = BenchModel(name, make, inputs)
