"""Describe nodes so that nodes with equal descriptions compute the same of different inputs."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
import torch.fx

from torchdynamo.graph import torch_compat
from torchdynamo.graph.shape_env import is_symbolic

Node = torch.fx.Node
NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)
INPUT = "input"  # stands for a node among the arguments of a row


class Descriptions:
    """Describes the nodes and values of one graph; equal descriptions of values are one object."""

    def __init__(self) -> None:
        self._of: dict[int, Hashable] = {}  # by the id of an example, which its node keeps alive
        self._known: dict[Hashable, Hashable] = {}

    def of(self, node: Node) -> Hashable:
        """Return the description of a node's value: metadata for a tensor, the expression for a symbol."""
        example = node.meta.get("example_value")
        found = self._of.get(id(example))
        if found is None:
            made = described(example)
            found = self._of[id(example)] = self._known.setdefault(made, made)
        return found

    def row(self, node: Node, named: Any) -> Hashable:
        """Return the operation of a node: target, constants, value. `named(node)` stands for each input."""
        given = structure((node.args, node.kwargs), named)
        return node.op, target_of(node), given, self.of(node)

    def label(self, node: Node) -> Hashable:
        """Return the row of a node in which an input is described, and not identified."""
        return self.row(node, self.of)


def target_of(node: Node) -> Hashable:
    """Return the target of a node; a callable that cannot be hashed, by its id."""
    try:
        hash(node.target)
    except TypeError:
        return id(node.target)
    return node.target


def structure(value: Any, named: Any) -> Hashable:
    """Return arguments as nested tuples in which constants are told apart by type, and floats by their bits."""
    if isinstance(value, Node):
        return INPUT, named(value)
    if isinstance(value, (tuple, list)):
        return type(value).__name__, *[structure(item, named) for item in value]
    if isinstance(value, dict):
        return "dict", *[(structure(key, named), structure(item, named)) for key, item in value.items()]
    if isinstance(value, slice):
        return "slice", *[structure(item, named) for item in (value.start, value.stop, value.step)]
    return type(value).__name__, repr(value)


def described(value: Any) -> Hashable:
    """Return all of a value that code generated for it may depend on."""
    if isinstance(value, torch.Tensor):
        return tensor_described(value)
    if isinstance(value, NUMBERS):
        return type(value).__name__, str(value)
    if isinstance(value, (tuple, list)):
        return type(value).__name__, *[described(item) for item in value]
    return type(value).__name__, repr(value)


def tensor_described(tensor: torch.Tensor) -> Hashable:
    """Return the metadata of a tensor; symbolic sizes by their expressions."""
    facts: tuple[Any, ...] = (type(tensor).__name__, tensor.dtype, tensor.device, tensor.requires_grad, tensor.layout)
    if tensor.layout is not torch.strided:
        return facts, id(tensor)  # equal to itself only
    numbers = (tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
    sizes: Any = str(numbers) if is_symbolic(numbers) else numbers
    return facts, sizes, tensor.is_conj(), tensor.is_neg(), tensor.is_inference(), torch_compat.is_layered(tensor)


def interned(labels: Sequence[Hashable]) -> list[int]:
    """Return the labels as small integers, equal where they are."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(label, len(numbers)) for label in labels]
