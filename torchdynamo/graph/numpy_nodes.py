"""Nodes of a graph that call NumPy when the graph runs."""

from __future__ import annotations

import importlib
import importlib.util
import operator
from typing import Any

np: Any = importlib.import_module("numpy") if importlib.util.find_spec("numpy") else None  # torch does without


def of_numpy(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return an operation of graphs: a function of NumPy's by its name, `sin`, `linalg.inv`, `ndarray.sum`."""
    return operator.attrgetter(name)(np)(*args, **kwargs)
