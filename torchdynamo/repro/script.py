"""Write a case as a Python file that runs alone: the graph as code, its inputs' metadata, seeds, and the backend."""

from __future__ import annotations

import math
import pprint
import textwrap
from collections.abc import Callable, Sequence
from types import EllipsisType, NoneType
from typing import Any

import torch
import torch.fx
from torch.fx.immutable_collections import immutable_dict, immutable_list

from torchdynamo.backends.ensemble.graph_data import graph_of
from torchdynamo.backends.ensemble.operator_names import name_of_function
from torchdynamo.repro.case import Case

WIDTH = 120
_PUBLIC = {"builtins.": "", "_operator.": "operator."}
_TEXT = '''"""Run a graph of {operators} by a backend.

Exit status: 1 if the backend fails, 0 if it does not, 2 if it cannot run here.
`--here` runs it in this process rather than in one of its own: for a debugger.
"""

import math
import operator
import sys

import torch

from torchdynamo.repro import main


def make_graph():
    graph = torch.fx.Graph()
{graph}
    return graph


BACKEND, SETTINGS, ACCURACY = {backend}, {settings}, {accuracy}
# What the inputs are like: integers are in CONTENTS (compressed, in base64), floats are drawn by a seed.
META = {meta}
CONTENTS = {contents}

if __name__ == "__main__":
    sys.exit(main(make_graph(), META, CONTENTS, BACKEND, SETTINGS, ACCURACY))
'''


def script_of(case: Case) -> str:
    """Return a case as the text of a Python file. Raises RecordError for what is no graph."""
    graph = graph_of(case.nodes)
    lines = [_line(node) for node in graph.nodes]
    operators = count_of(case)
    return _TEXT.format(
        operators=f"{operators} operator{'s' if operators != 1 else ''}",
        graph=textwrap.indent("\n".join(lines), "    "),
        backend=repr(case.backend),
        settings=pprint.pformat(dict(case.settings), width=WIDTH),
        accuracy=bool(case.accuracy),
        meta=pprint.pformat(case.meta, width=WIDTH, sort_dicts=False),
        contents=_wrapped(case.contents),
    )


def count_of(case: Case) -> int:
    """Return the number of operators of a case's graph."""
    return sum(node["op"].startswith("call_") for node in case.nodes)


def _line(node: torch.fx.Node) -> str:
    """Return the statement that adds a node to a graph."""
    if node.op == "placeholder":
        return f"{node.name} = graph.placeholder({node.name!r})"
    if node.op == "output":
        return f"graph.output({literal(node.args[0])})"
    target = repr(node.target) if isinstance(node.target, str) else _function(node.target)
    kwargs = f", {literal(node.kwargs)}" if node.kwargs else ""
    return f"{node.name} = graph.{node.op}({target}, {literal(tuple(node.args))}{kwargs})"


def _function(function: Any) -> str:
    name = name_of_function(function)
    for prefix, public in _PUBLIC.items():
        if name.startswith(prefix):
            return public + name.removeprefix(prefix)
    return name


def literal(value: Any) -> str:
    """Return an argument of a node as Python code. Raises KeyError for one that recorded graphs do not have."""
    return _LITERALS[type(value)](value)


def _items(values: Sequence[Any]) -> str:
    return ", ".join(literal(each) for each in values)


def _tuple(values: tuple[Any, ...]) -> str:
    return f"({_items(values)}{',' if len(values) == 1 else ''})"


def _dict(value: dict[Any, Any]) -> str:
    return f"{{{', '.join(f'{literal(key)}: {literal(each)}' for key, each in value.items())}}}"


def _float(value: float) -> str:
    return repr(value) if math.isfinite(value) else f"float({str(value)!r})"


_LITERALS: dict[type, Callable[[Any], str]] = {
    **dict.fromkeys((bool, int, str, NoneType), repr),
    **dict.fromkeys((torch.dtype, torch.layout, torch.memory_format), str),
    **dict.fromkeys((list, immutable_list), lambda value: f"[{_items(value)}]"),
    **dict.fromkeys((dict, immutable_dict), _dict),
    EllipsisType: lambda value: "...",
    float: _float,
    complex: lambda value: f"complex({_float(value.real)}, {_float(value.imag)})",
    torch.device: lambda value: f"torch.device({str(value)!r})",
    torch.Size: lambda value: f"torch.Size([{_items(value)}])",
    torch.fx.Node: lambda value: value.name,
    tuple: _tuple,
    slice: lambda value: f"slice({_items((value.start, value.stop, value.step))})",
}


def _wrapped(text: str) -> str:
    """Return a long text as string literals of a line each."""
    lines = "\n".join(f'    "{line}"' for line in textwrap.wrap(text, WIDTH - 6))
    return f"(\n{lines}\n)"
