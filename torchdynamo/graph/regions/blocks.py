"""Prove blocks of a graph equal: the same operations on the same metadata, wired in the same way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
import torch.fx

from torchdynamo.graph import torch_compat
from torchdynamo.graph.regions.labels import Descriptions
from torchdynamo.graph.wrappers import is_wrapper

Node = torch.fx.Node


class Block(NamedTuple):
    """Consecutive nodes of a graph; the nodes outside that they use, and the positions that are used outside."""

    nodes: list[Node]
    slots: list[Node]
    results: frozenset[int]


class CannotOutline(Exception):
    """Raised for a block that cannot be a region; the message says why."""


def block_of(nodes: list[Node]) -> Block:
    """Return these consecutive nodes as a block."""
    inside = set(nodes)
    slots = list(dict.fromkeys(each for node in nodes for each in node.all_input_nodes if each not in inside))
    results = frozenset(at for at, node in enumerate(nodes) if any(user not in inside for user in node.users))
    return Block(nodes, slots, results)


def form_of(block: Block, known: Descriptions) -> Hashable:
    """Return the form of a block: blocks of one form compute the same, and one body serves all of them.

    A form has the rows of the block, in which an input is a node by its position or a slot by its number; the values
    of the slots; which slots share memory; and, where autograd is to record the block, which nodes are results.
    """
    inner = {node: (0, at) for at, node in enumerate(block.nodes)}
    outer = {node: (1, at) for at, node in enumerate(block.slots)}
    rows = tuple(known.row(node, {**inner, **outer}.__getitem__) for node in block.nodes)
    slots, results = tuple(map(known.of, block.slots)), (block.nodes[at] for at in block.results)
    return rows, slots, shared(block.slots), block.results if require_gradients(results) else None


def equal_blocks(blocks: Sequence[Block], known: Descriptions) -> list[Block]:
    """Return the largest set of blocks of one form, in order."""
    by_form: defaultdict[Hashable, list[Block]] = defaultdict(list)
    for block in blocks:
        by_form[form_of(block, known)].append(block)
    return max(by_form.values(), key=len)


def shared(nodes: Sequence[Node]) -> tuple[int, ...]:
    """Return for each node the first one whose value lies in the same memory."""
    first: dict[int, int] = {}
    return tuple(first.setdefault(memory_of(node), at) for at, node in enumerate(nodes))


def memory_of(node: Node) -> int:
    """Return the address of the memory of a node's value; a number of its own for what has none, or hides it."""
    example = node.meta.get("example_value")
    if not isinstance(example, torch.Tensor) or example.layout is not torch.strided or hides_others(example):
        return -id(node)
    return int(example.untyped_storage()._cdata)


def hides_others(value: Any) -> bool:
    """Return whether a tensor stands for others: one of a torch.func transform, or of a wrapper subclass."""
    return torch_compat.is_layered(value) or is_wrapper(value)


def require_gradients(nodes: Iterable[Node]) -> bool:
    """Return whether one of some nodes' values requires gradients."""
    examples = (node.meta.get("example_value") for node in nodes)
    return any(isinstance(each, torch.Tensor) and each.requires_grad for each in examples)


def check_values(block: Block, results: Collection[int]) -> None:
    """Raise CannotOutline if a value that enters or leaves the block is neither a plain tensor nor a size."""
    for node in (*block.slots, *(block.nodes[at] for at in sorted(results))):
        example = node.meta.get("example_value")
        if not isinstance(example, (torch.Tensor, torch.SymInt)):
            raise CannotOutline(f"a value of type {type(example).__name__} crosses the border")
        if isinstance(example, torch.Tensor) and example.layout is not torch.strided:
            raise CannotOutline("a sparse tensor crosses the border")


def check_memory(block: Block, results: Collection[int], written: Collection[str]) -> None:
    """Raise CannotOutline if a slot lies in memory that is written to, or a result in that of a slot or result."""
    if any(node.name in written for node in block.slots):
        raise CannotOutline("memory that is written to enters a block")
    leaving = [block.nodes[at] for at in sorted(results)]
    if len(set(map(memory_of, leaving))) < len(leaving):
        raise CannotOutline("two results of a block share memory")
    if {memory_of(node) for node in leaving} & {memory_of(node) for node in block.slots}:
        raise CannotOutline("a view of an input leaves a block")
