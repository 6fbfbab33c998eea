"""Find the families of a graph: equal blocks that one body can serve."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import NamedTuple

import torch
import torch.fx
from torch.utils._pytree import tree_leaves

from torchdynamo.graph import torch_compat
from torchdynamo.graph.regions.blocks import (
    Block,
    CannotOutline,
    block_of,
    check_memory,
    check_values,
    equal_blocks,
    hides_others,
)
from torchdynamo.graph.regions.borders import Traffic, bytes_of
from torchdynamo.graph.regions.labels import Descriptions, interned
from torchdynamo.graph.regions.search import Repetition, repetitions

Node = torch.fx.Node
LEAST_BLOCKS = 3
LEAST_OPERATORS = 8
MOST_FAMILIES = 8  # kinds of blocks of one graph
MOST_BORDERS = 8  # places tried for the border of one kind of blocks
MODES = torch_compat.MODE_CHANGES | torch_compat.OPENERS | torch_compat.CLOSERS


class Limits(NamedTuple):
    """The least number of blocks of a family, and the largest share of its traffic that a border may add."""

    least_blocks: int = LEAST_BLOCKS
    most_lost: float = 1.0


class Family(NamedTuple):
    """Equal blocks of a graph."""

    blocks: list[Block]
    results: list[int]  # positions of the nodes that leave any of the blocks
    lost: float  # share of a block's traffic that its border adds

    def __str__(self) -> str:
        return f"{len(self.blocks)} blocks of {len(self.blocks[0].nodes)} operators"


def families(graph: torch.fx.Graph, written: Collection[str], limits: Limits) -> list[Family]:
    """Return the families of a graph, those that cover most first. Raises CannotOutline if there are none.

    written: names of the nodes whose memory is written to.
    """
    search = Search(graph, written, limits)
    found: list[Family] = []
    try:
        while len(found) < MOST_FAMILIES:
            found.append(search.best())
            search.leave_out(found[-1])
    except CannotOutline:
        if not found:
            raise
    return found


class Search:
    """Looks for families in the nodes of a graph."""

    def __init__(self, graph: torch.fx.Graph, written: Collection[str], limits: Limits) -> None:
        self.nodes: list[Node] = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
        self.written = written
        self.limits = limits
        self.known = Descriptions()
        self.traffic = Traffic(list(graph.nodes))
        self.labels = interned(list(labels_of(self.nodes, self.known)))

    def leave_out(self, family: Family) -> None:
        """Give the nodes of a family labels of their own, so that no further family has them."""
        taken = {node for block in family.blocks for node in block.nodes}
        for at, node in enumerate(self.nodes):
            if node in taken:
                self.labels[at] = -1 - at

    def best(self) -> Family:
        """Return the family that covers most. Raises CannotOutline, for the likeliest one, if there is none."""
        why: CannotOutline | None = None
        for repetition in repetitions(self.labels, LEAST_OPERATORS, self.limits.least_blocks):
            try:
                return self.family_of(repetition)
            except CannotOutline as refused:
                why = why or refused
        raise why or CannotOutline("no block of operators is repeated often enough")

    def family_of(self, repetition: Repetition) -> Family:
        """Return a family with the least traffic and the most blocks. Raises CannotOutline if there is none."""
        best, why = None, CannotOutline("no border is possible")
        for start, count in self.borders(repetition):
            try:
                family = self.family_at(start, count, repetition)
            except CannotOutline as refused:
                why = refused
                continue
            if best is None or (family.lost, -len(family.blocks)) < (best.lost, -len(best.blocks)):
                best = family
            if not best.lost and len(best.blocks) == repetition.times:
                break
        if best is None:
            raise why
        return best

    def borders(self, repetition: Repetition) -> list[tuple[int, int]]:
        """Return where the first block may begin, and how many there are then: the best border first.

        It adds the least traffic, leaves the most blocks, and is crossed by the fewest values, in this order.
        """
        first, last, length, period, count = repetition
        starts = [(start, count) for start in range(first, last + 1)]
        if length == period and count > self.limits.least_blocks:
            starts += [(start, count - 1) for start in range(last + 1, first + period)]
        ranked: dict[Hashable, tuple[int, int]] = {}
        for start, blocks in starts:
            nodes = self.nodes[start : start + length]
            inside = set(nodes)
            leaving = [node for node in nodes if any(user not in inside for user in node.users)]
            rank = (self.traffic.lost_bytes(leaving, inside), -blocks, len(leaving), tuple(map(str, leaving)))
            ranked.setdefault(rank, (start, blocks))
        return [ranked[rank] for rank in sorted(ranked)[:MOST_BORDERS]]  # type: ignore[type-var]

    def family_at(self, start: int, count: int, repetition: Repetition) -> Family:
        """Return the equal blocks that begin here. Raises CannotOutline if they are too few, or cannot be called."""
        begins = range(start, start + count * repetition.period, repetition.period)
        blocks = [block_of(self.nodes[begin : begin + repetition.length]) for begin in begins]
        blocks = equal_blocks(blocks, self.known)
        if len(blocks) < self.limits.least_blocks:
            raise CannotOutline(f"of {count} blocks that look alike, only {len(blocks)} are equal")
        results = sorted({at for block in blocks for at in block.results})
        if not results:
            raise CannotOutline("nothing leaves a block")
        for block in blocks:
            check_values(block, results)
            check_memory(block, results, self.written)
        first = blocks[0]
        lost = self.traffic.lost_bytes([first.nodes[at] for at in results], set(first.nodes))
        share = lost / max(1, sum(map(bytes_of, {*first.nodes, *first.slots})))
        if share > self.limits.most_lost:
            raise CannotOutline(f"the border of a block would add {share:.0%} to what it reads and writes")
        return Family(blocks, results, share)


def labels_of(nodes: Sequence[Node], known: Descriptions) -> Iterator[Hashable]:
    """Yield the label of each node; equal ones may be in equal blocks. A label includes how often modes were set."""
    switched = 0
    for at, node in enumerate(nodes):
        switched += node.target in MODES
        yield at if is_barred(node) else (switched, known.label(node))


def is_barred(node: Node) -> bool:
    """Return whether a node can be in no block: it sets a mode, has a body, or has a value that is not known."""
    if node.op == "get_attr" or "example_value" not in node.meta or node.target in MODES:
        return True
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        return True
    values = [each.meta.get("example_value") for each in (node, *node.all_input_nodes)]
    return any(isinstance(each, torch.Generator) or hides_others(each) for each in tree_leaves(values))
