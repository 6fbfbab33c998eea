"""Call NumPy from a graph."""

from __future__ import annotations

import importlib
import importlib.util
import operator
from typing import Any

np: Any = importlib.import_module("numpy") if importlib.util.find_spec("numpy") else None  # torch does without


def of_numpy(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a NumPy function or method by its name, as in `sin`, `linalg.inv`, `ndarray.sum`: a
    target of graph nodes.
    """
    return operator.attrgetter(name)(np)(*args, **kwargs)
