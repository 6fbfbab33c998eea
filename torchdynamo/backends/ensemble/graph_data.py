"""Write a graph as data, and make a graph from such data: nodes, names of operators, and arguments as JSON has them.

    {"op": "call_function", "target": "torch.tanh", "args": [{"node": 0}], "kwargs": {}}

A number, a string, None and a list stand for themselves. Everything else is an object with one key that says what it
is: {"node": index}, {"tuple": [...]}, {"torch": "float32"}, {"device": "cpu"}, {"slice": [1, null, 2]}.
"""

from __future__ import annotations

import keyword
import math
from collections.abc import Callable, Mapping, Sequence
from types import EllipsisType, NoneType
from typing import Any

import torch
import torch.fx
from torch.fx.immutable_collections import immutable_dict, immutable_list

from torchdynamo.backends.ensemble import operator_names
from torchdynamo.errors import RecordError

_TORCH_NAMES = (torch.dtype, torch.layout, torch.memory_format)


def nodes_of(
    graph: torch.fx.Graph, name_of: Callable[[Any], str] = operator_names.name_of_function
) -> list[dict[str, Any]]:
    """Return the nodes of a graph as data. Raises RecordError, which says at which node, for what is not data.

    name_of: returns the name of a function, or raises RecordError; by default of one that may be recorded.
    """
    encoder = GraphEncoder({node: index for index, node in enumerate(graph.nodes)}, name_of)
    return [_at(str(node), _node_data, node, encoder) for node in graph.nodes]


def _node_data(node: torch.fx.Node, encoder: GraphEncoder) -> dict[str, Any]:
    if node.op == "placeholder":
        return {"op": node.op}
    rest = {"args": [encoder(each) for each in node.args], "kwargs": {k: encoder(v) for k, v in node.kwargs.items()}}
    return {"op": node.op, "target": _TARGETS[_known(node.op, _TARGETS)](node, encoder), **rest}


def _function_target(node: torch.fx.Node, encoder: GraphEncoder) -> str:
    if node.target is getattr:
        operator_names.check_attribute(node.args[1])
    return encoder.name_of(node.target)


_TARGETS: dict[str, Callable[[torch.fx.Node, GraphEncoder], str]] = {
    "call_function": _function_target,
    "call_method": lambda node, encoder: operator_names.check_method(str(node.target)),
    "output": lambda node, encoder: "output",
}


def graph_of(
    nodes: Sequence[Mapping[str, Any]], named: Callable[[str], Any] = operator_names.function_named
) -> torch.fx.Graph:
    """Return the graph that data stands for. Raises RecordError, which says at which node, for what it may not hold.

    named: returns the function of a name, or raises RecordError; by default one that may be recorded.
    """
    graph = torch.fx.Graph()
    made: list[torch.fx.Node] = []
    for index, data in enumerate(nodes):
        made.append(_at(f"node {index}", _add_node, graph, data, GraphDecoder(made, named)))
    if not made or made[-1].op != "output" or any(node.op == "output" for node in made[:-1]):
        raise RecordError("the last node of a graph, and no other, is its output")
    graph.lint()
    return graph


def _add_node(graph: torch.fx.Graph, data: Mapping[str, Any], decoder: GraphDecoder) -> torch.fx.Node:
    try:
        return _ADDED[_known(data["op"], _ADDED)](graph, data, decoder)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise RecordError(f"this is no node: {data!r:.200} ({type(error).__name__}: {error})") from error


def _known(op: Any, table: Mapping[str, Any]) -> str:
    if op not in table:
        raise RecordError(f"a node of kind {op!r} cannot be recorded")
    return str(op)


def _input(graph: torch.fx.Graph, data: Mapping[str, Any], decoder: GraphDecoder) -> torch.fx.Node:
    return graph.placeholder(f"input_{len(decoder.made)}")


def _call(graph: torch.fx.Graph, data: Mapping[str, Any], decoder: GraphDecoder) -> torch.fx.Node:
    args = tuple(decoder(each) for each in data["args"])
    kwargs = {_identifier(name): decoder(each) for name, each in data["kwargs"].items()}
    if data["op"] == "call_method":
        return graph.call_method(operator_names.check_method(data["target"]), args, kwargs)
    function = decoder.named(data["target"])
    if function is getattr:
        operator_names.check_attribute(args[1])
    return graph.call_function(function, args, kwargs)


def _output(graph: torch.fx.Graph, data: Mapping[str, Any], decoder: GraphDecoder) -> torch.fx.Node:
    return graph.output(*(decoder(each) for each in data["args"]))


_ADDED: dict[str, Callable[..., torch.fx.Node]] = {
    "placeholder": _input,
    "call_function": _call,
    "call_method": _call,
    "output": _output,
}


def _identifier(name: str) -> str:
    if not name.isidentifier() or keyword.iskeyword(name):
        raise RecordError(f"{name!r} is no name of an argument")
    return name


def _at(place: str, step: Callable[..., Any], *args: Any) -> Any:
    """Return what a step returns; a RecordError says at which place it was."""
    try:
        return step(*args)
    except RecordError as error:
        raise RecordError(error.text, place) from error


class GraphEncoder:
    """Writes arguments of nodes as data. Raises RecordError for a value that is none."""

    def __init__(
        self,
        numbers: Mapping[torch.fx.Node, int],
        name_of: Callable[[Any], str] = operator_names.name_of_function,
    ) -> None:
        """Make the encoder. numbers: the place of each node in its graph. name_of: returns the name of a function."""
        self.numbers = numbers
        self.name_of = name_of

    def __call__(self, value: Any) -> Any:
        encode = _ENCODERS.get(type(value))
        if encode is None:
            raise RecordError(f"an argument is {value!r:.100}, of type {type(value).__name__}, which is no data")
        return encode(self, value)

    def all(self, values: Sequence[Any]) -> list[Any]:
        return [self(each) for each in values]


def _number(encoder: GraphEncoder, value: float) -> Any:
    return value if math.isfinite(value) else {"float": repr(value)}


_ENCODERS: dict[type, Callable[[GraphEncoder, Any], Any]] = {
    **{kind: lambda encoder, value: value for kind in (bool, int, str, NoneType)},
    **{kind: lambda encoder, value: {"torch": str(value).removeprefix("torch.")} for kind in _TORCH_NAMES},
    **{kind: lambda encoder, value: encoder.all(value) for kind in (list, immutable_list)},
    **{kind: lambda encoder, value: {"dict": encoder.all(list(value.items()))} for kind in (dict, immutable_dict)},
    float: _number,
    complex: lambda encoder, value: {"complex": encoder.all((value.real, value.imag))},
    torch.device: lambda encoder, value: {"device": str(value)},
    torch.Size: lambda encoder, value: {"size": encoder.all(value)},
    torch.fx.Node: lambda encoder, value: {"node": encoder.numbers[value]},
    tuple: lambda encoder, value: {"tuple": encoder.all(value)},
    slice: lambda encoder, value: {"slice": encoder.all((value.start, value.stop, value.step))},
    EllipsisType: lambda encoder, value: {"ellipsis": True},
}


class GraphDecoder:
    """Makes arguments of nodes from data. Raises RecordError, KeyError, ValueError or TypeError for what is none."""

    def __init__(
        self, made: Sequence[torch.fx.Node] = (), named: Callable[[str], Any] = operator_names.function_named
    ) -> None:
        """Make the decoder. made: the nodes so far. named: returns the function of a name."""
        self.made = made
        self.named = named

    def __call__(self, data: Any) -> Any:
        if isinstance(data, list):
            return self.all(data)
        if not isinstance(data, dict):
            return data
        ((tag, content),) = data.items()
        return _DECODERS[tag](self, content)

    def all(self, data: Sequence[Any]) -> list[Any]:
        return [self(each) for each in data]


def _earlier(decoder: GraphDecoder, index: int) -> torch.fx.Node:
    if type(index) is not int or not 0 <= index < len(decoder.made):
        raise RecordError(f"node {index!r} does not come before it")
    return decoder.made[index]


def _torch_name(decoder: GraphDecoder, name: str) -> Any:
    found = getattr(torch, name, None)
    if type(found) not in _TORCH_NAMES:
        raise RecordError(f"torch.{name} is no dtype, layout or memory format here")
    return found


_DECODERS: dict[str, Callable[[GraphDecoder, Any], Any]] = {
    "node": _earlier,
    "torch": _torch_name,
    "float": lambda decoder, text: {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[text],
    "complex": lambda decoder, parts: complex(*decoder.all(parts)),
    "device": lambda decoder, text: torch.device(text),
    "size": lambda decoder, items: torch.Size(decoder.all(items)),
    "tuple": lambda decoder, items: tuple(decoder.all(items)),
    "slice": lambda decoder, parts: slice(*decoder.all(parts)),
    "dict": lambda decoder, items: dict(decoder.all(items)),
    "ellipsis": lambda decoder, content: ...,
}
