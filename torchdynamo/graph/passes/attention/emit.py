"""Write attention as `scaled_dot_product_attention`, for tensors of four dimensions, which its kernels want."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F

from torchdynamo.graph.passes.attention.calls import example, read
from torchdynamo.graph.passes.attention.capped import capped_attention
from torchdynamo.graph.passes.attention.form import Attention, Miss
from torchdynamo.graph.passes.attention.kernels import masked_gradients
from torchdynamo.graph.passes.attention.lower import Arguments
from torchdynamo.graph.passes.attention.products import same, sizes
from torchdynamo.graph.passes.attention.rows import Heads, masks_of
from torchdynamo.graph.passes.attention.writer import NodeWriter

Node = torch.fx.Node
VECTOR = 64
"""Numbers in the largest vector of a CPU, at most."""
ANY_LAYOUT = frozenset({"transpose", "permute"})
VIEWS = frozenset({"transpose", "permute", "reshape", "expand", "getitem", "same", "cast", "attribute"})
OWN_LAYOUT = frozenset({torch.reshape, torch.flatten, F.linear, "reshape", "flatten", "contiguous"})
"""Operations whose results lie in memory in one way, however their inputs lie."""


def emit(found: Attention, arguments: Arguments, graph: torch.fx.Graph, overwritten: Collection[str]) -> None:
    """Replace attention. Raises Miss, and leaves nodes that nobody uses. overwritten: nodes in memory written to."""
    write = NodeWriter(graph, found.result)
    dtype = example(found.result).dtype
    exact = example(found.scores).dtype != dtype
    at, inner = sizes(found.scores)[:-2], sizes(found.weights)[:-2]
    (query, keys, _), value = found.first, found.second.right
    rows = write.arranged(query._replace(node=write.of_dtype(query.node, dtype, exact=exact)))
    if arguments.absorbs and example(found.result).dtype == torch.float16:
        raise Miss("what is added may leave no key of a row, and float16 has no room to tell such keys apart")
    for each in arguments.factors:
        if not same(each.lead, at):
            raise Miss("the scores are scaled in another shape than they are made in", each.by)
        rows = write.call(torch.div if each.divides else torch.mul, rows, each.by)
    columns = write.arranged(keys._replace(node=write.of_dtype(keys.node, dtype, exact=exact)))
    heads = [
        write.in_four(write.of_dtype(rows, dtype, exact=False), at, found.lead),
        write.in_four(columns, at, found.lead),
        write.in_four(write.of_dtype(write.arranged(value), dtype, exact=False), inner, found.lead),
    ]
    lead = tuple(broadcast_size(sizes(each)[dim] for each in heads) for dim in (0, 1))
    q, k, v = (rows_together(write, write.broadcast(each, lead)) for each in heads)
    mask, repairs = masks_of(found, arguments, write, dtype)
    train = example(found.result).requires_grad
    learned = train and any(example(each.tensor).requires_grad for each in arguments.biases)
    of = Heads(q, k, v, arguments.scale * write.scale)
    if arguments.inner is not None:
        added = mask is not None and example(mask).dtype != torch.bool
        check_flexible(of, found.dropout, causal=arguments.causal, learned=learned, train=train, added=added)
        before = arguments.inner * write.scale
        result = write.call(capped_attention, *of[:3], mask, arguments.causal, before, arguments.scale)
        result = write.call(torch.add, result, nan_rows(write, q, capped=True))
    else:
        check_kernel(q, v, found.dropout, learned=learned, train=train)
        fused = masked_gradients if train and mask is not None else F.scaled_dot_product_attention
        result = write.call(
            fused, *of[:3], attn_mask=mask, dropout_p=found.dropout, is_causal=arguments.causal, scale=of.scale
        )
        if example(q).device.type == "cpu" and not known_to_be_many(example(k).shape[-2]):
            result = write.call(torch.add, result, nan_rows(write, q, capped=False))
    for repair, some in repairs:
        result = repair(write, result, some, of)
    result = as_written(found, write, result, inner, overwritten)
    result.meta["example_value"] = example(found.result)
    found.result.replace_all_uses_with(result)


def known_to_be_many(keys: Any) -> bool:
    """Return whether keys are so many that the kernel of a CPU compares scores by vectors, which keeps NaN."""
    return type(keys) is int and keys >= VECTOR


def nan_rows(write: NodeWriter, query: Node, *, capped: bool) -> Node:
    """Return NaN for queries with NaN in them, and unless scores are capped, infinities; zero for others.

    With few keys, the kernel of a CPU takes a row for masked all of whose scores are NaN; `flex_attention`, with any.
    """
    alone = write.call(torch.Tensor.detach, query)
    if capped:  # the cap of an infinite score is finite
        alone = write.call(torch.clamp, alone, -1.0, 1.0)
    return write.call(torch.sum, write.call(torch.mul, alone, 0.0), -1, True)


def broadcast_size(found: Iterable[Any]) -> Any:
    """Return the size that sizes of 1 and one other broadcast to."""
    return next((each for each in found if type(each) is not int or each != 1), 1)


def rows_together(write: NodeWriter, node: Node) -> Node:
    """Return a tensor whose last dimension is contiguous, as kernels want it."""
    return node if str(example(node).stride(-1)) == "1" else write.call(torch.Tensor.contiguous, node)


def check_kernel(q: Node, v: Node, dropout: float, *, learned: bool, train: bool) -> None:
    """Raise Miss where there is no fused kernel, of either operator, which would do what is written already.

    learned: a bias has a gradient. train: anything has.
    """
    query, values = example(q), example(v)
    kind, size = query.device.type, query.shape[-1]
    if query.dtype not in KERNELS.get(kind, ()):
        raise Miss(f"there is no fused kernel for {query.dtype} on {kind}", q)
    if any(type(each) is int and each == 0 for each in (*query.shape, *values.shape)):
        raise Miss("there is nothing to compute", q)
    if kind != "cpu" and train and torch.are_deterministic_algorithms_enabled():
        raise Miss("the gradients of fused kernels depend on timing, and are to be deterministic", q)
    if size != values.shape[-1]:
        raise Miss("queries and values differ in the size of heads", q)
    if kind == "cpu" and dropout:
        raise Miss("there is no fused kernel with dropout on a CPU", q)
    if kind == "cpu" and learned:
        raise Miss("there is no fused kernel on a CPU that gives a bias its gradient", q)
    if kind != "cpu" and (size > 256 or size % (4 if query.dtype == torch.float32 else 8)):
        raise Miss(f"there is no fused kernel for heads of size {size} on {kind}", q)


def check_flexible(heads: Heads, dropout: float, *, causal: bool, learned: bool, train: bool, added: bool) -> None:
    """Raise Miss where `flex_attention` has no kernel that computes what is written, or one that gains nothing."""
    q, k, v = heads[:3]
    shapes = [example(each).shape for each in (q, k, v)]
    kind, keys = example(q).device.type, shapes[1][-2]
    if kind not in FEWEST_KEYS:
        raise Miss(f"scores are capped, which no kernel on {kind} does that keeps NaN", q)
    if not all(type(each) is int for shape in shapes for each in shape):
        raise Miss("scores are capped, and sizes vary", q)
    if dropout or learned or min(shape[-1] for shape in shapes) < FLEXIBLE:
        raise Miss("scores are capped, with a dropout, a learned bias, or small heads", q)
    if train and added:
        raise Miss("scores are capped, and in training something is added to them", q)
    if keys < FEWEST_KEYS[kind]:
        raise Miss(f"scores are capped, which is no faster for {keys} keys on {kind}", k)
    if causal and keys != shapes[0][-2]:
        raise Miss("scores are capped, and queries and keys differ in number", q)
    check_kernel(q, v, dropout, learned=learned, train=train)


FLEXIBLE = 16
"""Size of heads that `flex_attention` takes, at least."""
FEWEST_KEYS = {"cuda": 128}
"""Keys for which `flex_attention` is used, at least, by device. Its kernel for a CPU hides NaN in queries and keys."""
KERNELS = {
    "cpu": (torch.float32, torch.float64, torch.bfloat16, torch.float16),
    "cuda": (torch.float32, torch.bfloat16, torch.float16),
}


def as_written(
    found: Attention, write: NodeWriter, result: Node, inner: tuple[Any, ...], overwritten: Collection[str]
) -> Node:
    """Give the operator's result the shape of what it replaces, and its layout where that can be seen."""
    wanted, out = example(found.result), found.second.out
    lead = wanted.shape[:-2] if out is None else [wanted.shape[out.index(dim)] for dim in range(wanted.dim() - 2)]
    if not same(tuple(lead), inner):
        raise Miss("there are more batches of values than of weights", found.result)
    if same(sizes(result)[:2], (1, 1, *inner)[-2:]) and len(inner) < 3:
        for _ in range(2 - len(inner)):
            result = write.call(torch.squeeze, result, 0)
    else:
        if not all(type(each) is int for each in inner):
            raise Miss("sizes vary that are reshaped", found.result)
        result = write.call(torch.reshape, result, (*inner, *(write.size(result, dim) for dim in (-2, -1))))
    if out is not None:
        result = write.call(torch.permute, result, out)
    own = wanted.requires_grad and leaves(found.result)
    if not own and is_hidden(found.result, overwritten):
        return result
    strides = wanted.stride()
    if not all(type(each) is int for each in strides):
        if out is not None:
            raise Miss("a layout that depends on sizes that vary", found.result)
        return write.packed(result, own=own)
    order = sorted(range(wanted.dim()), key=lambda dim: -strides[dim])
    if order == list(range(wanted.dim())):
        return write.packed(result, own=own)
    result = write.packed(write.call(torch.permute, result, order), own=own)
    return write.call(torch.permute, result, [order.index(dim) for dim in range(wanted.dim())])


def leaves(node: Node) -> bool:
    """Return whether a tensor may leave the graph, itself or as a view: no backward may need what callers write to."""
    return any(user.op == "output" or (name_of(user) in VIEWS and leaves(user)) for user in node.users)


def is_hidden(node: Node, overwritten: Collection[str]) -> bool:
    """Return whether nobody sees how a tensor lies in memory, except by addresses."""
    return all(
        is_hidden(user, overwritten)
        if name_of(user) in ANY_LAYOUT
        else user.target in OWN_LAYOUT and user.name not in overwritten
        for user in node.users
    )


def name_of(node: Node) -> str:
    """Return the name of a node's call; "" if it has none."""
    call = read(node)
    return "" if call is None else call.name
