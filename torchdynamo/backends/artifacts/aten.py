"""Write graphs of ATen operators that run operator by operator as data, and run them.

A node's function is named by what it is: an operator, the binding in C that PyTorch generated for one, arithmetic on
numbers, or one of two functions of ours. The tensors that a graph has as constants are its last inputs.
"""

from __future__ import annotations

import builtins
import json
import math
import operator
import types
from typing import Any

import torch
import torch.fx

from torchdynamo.backends.aot import bernoulli_in_memory_order, uncaptured
from torchdynamo.backends.artifacts.aot.noting import unwrapped
from torchdynamo.backends.artifacts.artifact import (
    BadArtifact,
    CannotStore,
    ReadBlob,
    Run,
    Value,
    add_blob,
    field,
    read_verified,
)
from torchdynamo.backends.artifacts.operators import binding_of, of_torch
from torchdynamo.backends.artifacts.values import decode_tensor, encode_tensor
from torchdynamo.backends.bindings import BINDINGS, bare
from torchdynamo.backends.ensemble.graph_data import graph_of, nodes_of
from torchdynamo.backends.in_place import count_writes_under_modes
from torchdynamo.errors import RecordError
from torchdynamo.graph import torch_compat
from torchdynamo.graph.modules import graph_module
from torchdynamo.hook.install import Compiled

PLACES: dict[str, Any] = {"functions": torch._C._VariableFunctions, "methods": torch._C.TensorBase, "nn": torch._C._nn}
"""Where bindings are in C, which nobody replaces as `torch.add` can be."""
ARITHMETIC: dict[str, Any] = {
    "operator": {
        name: getattr(operator, name)
        for name in "abs add and_ eq floordiv ge getitem gt index invert le lshift lt mod mul ne neg not_ or_ pos pow "
        "rshift sub truediv truth xor".split()
    },
    "math": {name: value for name, value in vars(math).items() if type(value) is types.BuiltinFunctionType},
    "builtins": {name: getattr(builtins, name) for name in "abs bool float int len max min pow round sum".split()},
}
"""Functions of numbers and sequences, which reach nothing else."""
OURS = {each.__name__: each for each in (bernoulli_in_memory_order, count_writes_under_modes)}


def module_of(run: Any) -> torch.fx.GraphModule:
    """Return the graph that AOTAutograd calls. Raises CannotStore for what another compiler has made."""
    function = unwrapped(run, Compiled, "code").fn
    module = getattr(function, "__self__", None)
    if not isinstance(module, torch.fx.GraphModule):
        raise CannotStore(f"AOTAutograd calls code of a {type(function).__name__}")
    return module


def encode_graph(run: Any, blobs: dict[str, bytes]) -> Value:
    """Return the graph that AOTAutograd calls as data. Raises CannotStore for a node that is none."""
    module = module_of(run)
    graph, constants = constants_as_inputs(module)
    try:
        nodes = nodes_of(graph, name_of)
    except RecordError as error:
        raise CannotStore(str(error)) from None
    return {
        "nodes": add_blob(blobs, json.dumps(nodes).encode()),
        "constants": [encode_tensor(operator.attrgetter(name)(module), blobs) for name in constants],
    }


def constants_as_inputs(module: torch.fx.GraphModule) -> tuple[torch.fx.Graph, list[str]]:
    """Return a copy of a graph whose constants are its last inputs, and where the module has them."""
    graph = torch.fx.Graph()
    made: dict[torch.fx.Node, torch.fx.Node] = {}
    given = module.graph.find_nodes(op="placeholder")
    constants = module.graph.find_nodes(op="get_attr")
    for node in given:
        made[node] = graph.node_copy(node)
    for node in constants:
        made[node] = graph.placeholder(node.name)
    for node in module.graph.nodes:
        if node not in made:
            made[node] = graph.node_copy(node, made.__getitem__)
    return graph, [str(node.target) for node in constants]


def name_of(function: Any) -> str:
    """Return the name of a node's function. Raises RecordError if it has none."""
    found = getattr(function, "operator", None)
    name = str(getattr(function, "__name__", ""))
    if isinstance(found, torch._ops.OpOverload):
        name = f"operator.{found}"
    elif isinstance(function, BINDINGS):
        place = next((each for each, where in PLACES.items() if getattr(where, name, None) is function), "")
        place = place or next((each for each, where in ARITHMETIC.items() if where.get(name) is function), "")
        name = f"{place}.{name}"
    else:
        name = f"ours.{name}"
    try:
        if named(name) is function:
            return name
    except BadArtifact:
        pass
    raise RecordError(f"{function!r} has no name")


def named(name: str) -> Any:
    """Return the function of a name. Raises BadArtifact if there is none here."""
    place, _, rest = name.partition(".")
    found: Any = None
    if place == "ours":
        found = OURS.get(rest)
    elif place in PLACES:
        found = binding_of(PLACES[place], rest)
    elif place == "operator" and "." in rest:
        operator_of_torch = of_torch(["ops", *rest.split(".")])
        found = bare(operator_of_torch) if isinstance(operator_of_torch, torch._ops.OpOverload) else None
    elif place in ARITHMETIC:
        found = ARITHMETIC[place].get(rest)
    if found is None:
        raise BadArtifact(f"there is no function {name} here")
    return found


def decode_graph(data: dict[str, Value], read_blob: ReadBlob) -> Run:
    """Return what runs a graph that `encode_graph` has written. Raises BadArtifact for other data."""
    _, content = read_verified(field(data, "nodes", str), read_blob)
    constants = [decode_tensor(each, read_blob) for each in field(data, "constants", list)]
    try:
        graph = graph_of(json.loads(content), named)
    except (RecordError, RecursionError, RuntimeError, ValueError, TypeError) as error:
        raise BadArtifact(f"a graph cannot be read: {error}") from None
    run: Run = uncaptured(torch_compat.take_inputs_in_a_list(graph_module(torch.nn.Module(), graph)))
    if not constants:
        return run

    def with_constants(args: list[Any]) -> Any:
        args.extend(constants)
        return run(args)

    return with_constants
