"""Turn operators that functionalization made out-of-place back into in-place ones.

AOTAutograd's graphs write to inputs by their last nodes only: `x.mul_(2).add_(1)` becomes a product, a sum, and a
`copy_` of the sum to `x`. An optimizer's step is little else. Where nobody reads an operand's memory any more, an
operator with an in-place form takes that form, and copies of memory to itself are erased. The values are equal and come
from the same kernels: only tensors of the same sizes, strides and dtype take each other's place.

If the graph fails, inputs must be unchanged, so that it can run again in eager. So inputs are written to only after the
last node that can fail; elementwise operators, numbers and views cannot.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import torch
import torch.fx
from torch._ops import OpOverload
from torch.autograd.graph import increment_version

aten = torch.ops.aten
MAKERS = frozenset({aten.empty_like.default, aten.zeros_like.default, aten.full_like.default})
# Further operators whose errors depend on sizes only, never on contents.
FAIL_BY_SIZE_ONLY = frozenset(
    "addmm arange avg_pool1d avg_pool2d _adaptive_avg_pool2d baddbmm bmm cat clone constant_pad_nd convolution empty "
    "full _log_softmax max_pool2d_with_indices mean mm _native_batch_norm_legit_functional native_batch_norm "
    "native_group_norm native_layer_norm ones rand randn scalar_tensor _softmax sum zeros".split()
)
NUMBERS = frozenset({aten._local_scalar_dense.default, operator.getitem, math.sqrt, pow})


def write_in_place(graph: torch.fx.Graph) -> None:
    """Make operators of a graph write to memory that is not read any more."""
    writes = Writes(graph)
    for node in list(graph.nodes):
        op = node.target
        if not isinstance(op, OpOverload) or op.namespace != "aten" or not node.args:
            continue
        twin = in_place_form(op)
        if twin is None:
            continue
        if isinstance(node.args[0], torch.fx.Node):
            if writes.may_write(node, node.args[0], node):
                writes.write(node, twin)
        elif is_foreach(op) and isinstance(node.args[0], (list, tuple)):
            writes.write_each(node, twin)
    writes.drop_copies()


@functools.cache
def in_place_form(op: OpOverload) -> OpOverload | None:
    """Return the overload that takes the same arguments and writes its result to the first; None if missing."""
    packet = getattr(aten, f"{op._opname}_", None)
    form = getattr(packet, op._overloadname, None)
    if form is None or op._schema.is_mutable or is_view(op):
        return None
    own, other = op._schema.arguments, form._schema.arguments
    if len(own) != len(other) or any(
        (a.name, a.kwarg_only) != (b.name, b.kwarg_only) for a, b in zip(own, other, strict=True)
    ):
        return None
    written = [each.name for each in other if each.alias_info is not None and each.alias_info.is_write]
    return form if written == [other[0].name] else None


def is_view(op: OpOverload) -> bool:
    """Return whether results of an operator may share memory with its arguments."""
    return any(each.alias_info is not None for each in op._schema.returns)


def is_foreach(op: Any) -> bool:
    """Return whether this is an elementwise operator on lists of tensors."""
    return isinstance(op, OpOverload) and op._opname.startswith("_foreach_")


def is_elementwise(op: Any) -> bool:
    """Return whether an operator is pointwise and returns fresh memory."""
    return isinstance(op, OpOverload) and torch.Tag.pointwise in op.tags and not is_view(op)


def fails_by_size_only(op: OpOverload) -> bool:
    """Return whether no contents of tensors can make an operator fail."""
    return op.namespace == "aten" and op._opname in FAIL_BY_SIZE_ONLY


def cannot_fail(node: torch.fx.Node) -> bool:
    """Return whether a node cannot raise, whatever its tensors contain."""
    op = node.target
    if node.op in ("placeholder", "output") or op in NUMBERS or getattr(op, "__module__", None) == "_operator":
        return True
    return isinstance(op, OpOverload) and (
        op is aten.copy_.default
        or op in MAKERS
        or is_elementwise(op)
        or is_foreach(op)
        or is_view(op)
        or fails_by_size_only(op)
    )


class Writes:
    """Tracks which nodes of a graph share memory, and until when that memory is read."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self.graph = graph
        nodes = list(graph.nodes)
        self.order = {node: at for at, node in enumerate(nodes)}
        self.safe = max((at for at, node in enumerate(nodes) if not cannot_fail(node)), default=-1)
        self.copies = {
            node.args[0]: node
            for node in nodes
            if node.target is aten.copy_.default and node.args[0].op == "placeholder" and not node.users
        }
        self.homes: dict[torch.fx.Node, set[torch.fx.Node]] = {}  # node -> nodes whose memory it may be in
        self.living: dict[torch.fx.Node, list[torch.fx.Node]] = {}  # node -> nodes that may be in its memory
        self.whole: dict[torch.fx.Node, torch.fx.Node] = {}  # node -> the node whose memory it fills exactly
        self.writes_of_lists: dict[torch.fx.Node, list[torch.fx.Node]] = {}  # foreach node -> inputs it overwrites
        for node in nodes:
            self.settle(node)

    def settle(self, node: torch.fx.Node) -> None:
        """Record the nodes whose memory a node's result may be in."""
        homes = {node} if has_own_memory(node) else {home for each in node.all_input_nodes for home in self.homes[each]}
        self.homes[node] = homes
        for home in homes:
            self.living.setdefault(home, []).append(node)
        if node in self.copies or (homes == {node} and is_fresh(node)):
            self.whole[node] = node

    def may_write(self, node: torch.fx.Node, over: torch.fx.Node, result: torch.fx.Node) -> bool:
        """Return whether a node may write `result` over the memory of its operand `over`."""
        home = self.whole.get(over)
        if (
            home is None
            or not have_equal_layout(over, result)
            or (home in self.copies and self.order[node] <= self.safe)
        ):
            return False
        if sum(home in self.homes[each] for each in operands(node)) != 1:
            return False
        last = self.copies.get(home)
        return all(
            self.order[user] <= self.order[node]
            for each in self.living[home]
            for user in each.users
            if user is not last or user.args[1] is each
        )

    def write(self, node: torch.fx.Node, form: OpOverload) -> None:
        """Make a node write over its first operand; its result and views of that are in the operand's memory from now
        on.
        """
        home = self.whole[node] = self.whole[node.args[0]]  # type: ignore[index]
        node.target = form
        for each in self.living.pop(node):
            self.homes[each] = self.homes[each] - {node} | {home}
            self.living[home].append(each)

    def write_each(self, node: torch.fx.Node, form: OpOverload) -> None:
        """Make a foreach node write over each tensor of its first operand, a list, if that is allowed for all."""
        over: Any = node.args[0]
        results = {user.args[1]: user for user in node.users}
        if any(user.target is not operator.getitem for user in node.users) or len(results) != len(node.users):
            return
        if len(results) != len(over) or not all(
            self.may_write(node, each, results[at]) for at, each in enumerate(over)
        ):
            return
        node.target = form
        self.writes_of_lists[node] = [each for each in over if self.whole[each] in self.copies]
        for at, each in enumerate(over):
            results[at].replace_all_uses_with(each)
            self.graph.erase_node(results[at])

    def drop_copies(self) -> None:
        """Erase copies of memory to itself, which would be counted as writes."""
        for home, copy in self.copies.items():
            if self.whole.get(copy.args[1]) is home:
                self.graph.erase_node(copy)
        for node, inputs in self.writes_of_lists.items():
            if inputs:
                with self.graph.inserting_after(node):
                    self.graph.call_function(count_writes_under_modes, (inputs,))


def count_writes_under_modes(written: list[torch.Tensor]) -> None:
    """Increment the version counters of tensors that a foreach operator wrote to under a dispatch mode, where the
    operator does not do so itself.

    AOTAutograd activates such a mode in a graph's first call, to check custom operators.
    """
    if torch._C._len_torch_dispatch_stack():
        increment_version(written)


def operands(node: torch.fx.Node) -> list[torch.fx.Node]:
    """Return the nodes among a node's arguments, repeated as often as they occur."""
    found: list[torch.fx.Node] = []
    torch.fx.node.map_arg((node.args, node.kwargs), found.append)
    return found


def has_own_memory(node: torch.fx.Node) -> bool:
    """Return whether a node's results share no memory with its arguments, according to its schema."""
    op = node.target
    return node.op == "placeholder" or (isinstance(op, OpOverload) and op.namespace == "aten" and not is_view(op))


def is_fresh(node: torch.fx.Node) -> bool:
    """Return whether a node's result is in memory that was allocated for it alone."""
    return node.target in MAKERS or is_elementwise(node.target)


def have_equal_layout(one: torch.fx.Node, other: torch.fx.Node) -> bool:
    """Return whether two nodes' tensors have equal fixed sizes, strides, dtype and device."""
    a, b = one.meta.get("val"), other.meta.get("val")
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor) or a.layout is not torch.strided:
        return False
    numbers = (*a.shape, *b.shape, *a.stride(), *b.stride())
    return (
        b.layout is torch.strided
        and all(type(each) is int for each in numbers)
        and (a.dtype, a.device, a.shape, a.stride()) == (b.dtype, b.device, b.shape, b.stride())
        and (a.is_conj(), a.is_neg()) == (b.is_conj(), b.is_neg())
    )
