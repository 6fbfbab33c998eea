"""Call NumPy from a graph, and tell where a graph does."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import operator
from types import FunctionType
from typing import Any

import torch.fx

from torchdynamo.core.call_sites import CallLine, code_at, namespace

np: Any = importlib.import_module("numpy") if importlib.util.find_spec("numpy") else None  # torch does without


def of_numpy(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], place: tuple[Any, ...] = ()) -> Any:
    """Call a NumPy function or method by its name, as in `sin`, `linalg.inv`, `ndarray.sum`: a target of graph nodes.

    `operator.add` is Python's operator.

    place: a CallLine, to which NumPy's warnings are attributed; the traceback of an error leaves it out.
    """
    fn = called(name)
    if not place:
        return fn(*args, **kwargs)
    line = CallLine(*place)
    call = FunctionType(code_at(*line[:3]), namespace(line.module))
    try:
        return call(fn, args, kwargs)
    except Exception as error:
        trace = error.__traceback__
        for _ in range(2):
            trace = trace.tb_next if trace is not None else None
        raise error.with_traceback(trace)  # noqa: B904, it keeps its own cause and context


@functools.lru_cache(4096)
def called(name: str) -> Any:
    """Return the function of a name, which stays what it was when the first graph called it."""
    return getattr(operator, name[9:]) if name.startswith("operator.") else operator.attrgetter(name)(np)


def is_array(example: object) -> bool:
    """Return whether a value is an array or a number of NumPy's, or a list or tuple with some."""
    if isinstance(example, (list, tuple)):
        return any(map(is_array, example))
    return np is not None and isinstance(example, (np.ndarray, np.generic))


def lines_of(gm: torch.fx.GraphModule) -> list[str]:
    """Return a line for each call of NumPy in a graph: the function, and where the program calls it."""
    calls = [node.args for node in gm.graph.nodes if node.target is of_numpy and len(node.args) > 3]
    placed = [(name, CallLine(*place)) for name, _, _, place in calls]
    return [f"numpy.{name}, {place.filename}:{place.line}" for name, place in placed]


def shrink_examples(graph: torch.fx.Graph) -> None:
    """Replace arrays that nodes were tried on by ones that take no memory; a graph may live long."""
    for node in graph.nodes:
        if is_array(node.meta.get("example_value")):
            node.meta["example_value"] = small(node.meta["example_value"])


def small(example: Any) -> Any:
    """Return an array of the same type and shape in the memory of one element; of a list or tuple, a list of such."""
    if isinstance(example, (list, tuple)):
        return [small(each) for each in example]
    return np.broadcast_to(np.zeros((), example.dtype), example.shape) if isinstance(example, np.ndarray) else example
