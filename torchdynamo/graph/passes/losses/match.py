"""Find the cross entropy of a linear layer in a graph, and compute both in chunks of rows."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor

from torchdynamo.graph.node_places import place_of
from torchdynamo.graph.passes.attention.calls import NamedCall, example, is_last, read
from torchdynamo.graph.passes.attention.form import Miss
from torchdynamo.graph.passes.attention.in_place import is_write
from torchdynamo.graph.passes.attention.writer import NodeWriter
from torchdynamo.graph.passes.found import Found
from torchdynamo.graph.passes.losses.chunked import chunked_loss
from torchdynamo.graph.passes.losses.plan import LossPlan
from torchdynamo.graph.torch_compat import CLOSERS, OPENERS, is_layered

Node = torch.fx.Node
MODES = frozenset({torch._C._set_grad_enabled}) | OPENERS | CLOSERS
"""Functions that change whether gradients are asked for, between the layer and its loss."""


class Layer(NamedTuple):
    """A linear layer: its product, what it is of, weight and bias."""

    node: Node
    rows: Node
    weight: Node
    is_transposed: bool  # the weight is given as [size, classes]
    bias: Node | None


def rewrite_losses(graph: torch.fx.Graph, plan: LossPlan) -> list[Found]:
    """Compute losses in chunks, in place; return what became of each."""
    found = []
    for node in list(graph.nodes):
        call = read(node)
        if call is None or call.name not in ("cross_entropy", "nll_loss"):
            continue
        try:
            how = replaced(graph, node, call, plan)
        except Miss as miss:
            found.append(Found("loss", place_of(miss.node or node) or place_of(node), str(miss), missed=True))
            continue
        found.append(Found("loss", place_of(node), how))
    return found


def replaced(graph: torch.fx.Graph, node: Node, call: NamedCall, plan: LossPlan) -> str:
    """Replace a loss, and say how. Raises Miss."""
    is_mean, ignored, smoothing = arguments_of(call)
    logits, user = call["input"], node
    if call.name == "nll_loss":
        logits, user = logarithms_of(call, node)
    target = call["target"]
    check_examples(node, logits, target)
    way: list[Callable[[NodeWriter, Node], Node]] = []
    layer = climbed(logits, user, way)
    check_between(layer.node, node)
    count, dtype = len(example(target)), example(layer.node).dtype
    if dtype == torch.float16:
        raise Miss("float16 has too little range for gradients that are not yet divided", layer.node)
    size = example(layer.weight).numel() * dtype.itemsize
    device = example(logits).device.type
    chunk = plan.rows_at_once(count, example(logits).shape[-1] * dtype.itemsize, size, device)
    if chunk >= count:
        raise Miss("its logits are small")
    write = NodeWriter(graph, node)
    rows = layer.rows
    for step in way:
        rows = step(write, rows)
    rows = write.call(torch.reshape, rows, (count, example(rows).shape[-1]))
    weight = write.call(torch.transpose, layer.weight, 0, 1) if layer.is_transposed else layer.weight
    train = example(node).requires_grad
    wanted = [train and each is not None and example(each).requires_grad for each in (*layer[1:3], layer.bias)]
    made = write.call(
        chunked_loss, *(rows, weight, layer.bias, target, dtype, chunk, ignored, smoothing, is_mean, wanted)
    )
    if example(made).dtype != example(node).dtype:
        made = write.call(torch.Tensor.to, made, example(node).dtype)
    made.meta["example_value"] = example(node)
    node.replace_all_uses_with(made)
    erase(graph, node)
    return f"cross entropy with its linear layer, {-(-count // chunk)} chunks of {chunk} rows"


def arguments_of(call: NamedCall) -> tuple[bool, int, float]:
    """Return whether the loss is a mean, the label that is ignored, and label smoothing. Raises Miss."""
    reduction = "mean" if call["reduction"] is None else call["reduction"]
    if call["size_average"] is not None or call["reduce"] is not None or reduction not in ("mean", "sum"):
        raise Miss("each row has a loss of its own, whose gradient is not known before the backward")
    if call["weight"] is not None:
        raise Miss("classes have weights")
    ignored = -100 if call["ignore_index"] is None else call["ignore_index"]
    smoothing = 0.0 if call["label_smoothing"] is None else call["label_smoothing"]
    if type(ignored) is not int or type(smoothing) not in (int, float) or not 0 <= smoothing <= 1:
        raise Miss("an argument of the loss is no constant")
    return reduction == "mean", ignored, float(smoothing)


def logarithms_of(call: NamedCall, node: Node) -> tuple[Node, Node]:
    """Return what a negative log likelihood has the logarithms of, and the node that reads it. Raises Miss."""
    inner = read(call["input"])
    if inner is None or inner.name != "log_softmax" or not is_last(inner["dim"], example(call["input"]).dim()):
        raise Miss("it is not of a log-softmax over the last dimension", node)
    if len(call["input"].users) != 1:
        raise Miss("the logarithms of the probabilities are used a second time, or returned", call["input"])
    return inner["input"], call["input"]


def check_examples(node: Node, logits: Node, target: Any) -> None:
    """Raise Miss for a loss of another kind, sizes that vary, and tensors that are none."""
    values = (example(node), example(logits), example(target))
    if is_layered(values[0]) or not all(isinstance(each, FakeTensor) for each in values):
        raise Miss("it is inside of a torch.func transform, or of a subclass of Tensor", node)
    if values[1].dim() != 2 or values[2].dim() != 1 or values[2].is_floating_point():
        raise Miss("it is not of rows of logits against one class each", node)
    if not all(type(each) is int for each in (*values[1].shape, *values[2].shape)):
        raise Miss("the number of rows varies", node)


def climbed(node: Any, user: Node, way: list[Callable[[NodeWriter, Node], Node]]) -> Layer:
    """Follow logits up to their linear layer; put in front of `way` what is done to their rows. Raises Miss."""
    call = read(node)
    if call is None or not isinstance(node, Node):
        raise Miss("the logits do not come from a linear layer", node if isinstance(node, Node) else user)
    if node.users.keys() != {user}:
        raise Miss("the logits are used a second time, or returned", node)
    layer = layer_of(call, node)
    if layer is not None:
        return layer
    before, size = call["input"], example(node).shape[-1]
    if not isinstance(before, Node) or call.name not in ("reshape", "same", "cast", "getitem"):
        raise Miss(f"`{call.name}` is applied to the logits", node)
    if example(before).shape[-1] != size or not example(before).is_floating_point():
        raise Miss("the logits are reshaped across classes", node)
    if call.name == "getitem":
        index = of_rows(call["index"], example(before).dim(), node)
        way.insert(0, lambda write, rows: write.call(operator.getitem, rows, index))
    elif call.name == "reshape":
        lead = tuple(example(node).shape[:-1])
        way.insert(0, lambda write, rows: write.call(torch.reshape, rows, (*lead, example(rows).shape[-1])))
    elif call.name == "cast" and example(node).dtype.itemsize < example(before).dtype.itemsize:
        raise Miss("the logits are rounded", node)
    return climbed(before, node, way)


def layer_of(call: NamedCall, node: Node) -> Layer | None:
    """Return the linear layer that a call is; None if it is none."""
    if call.name == "linear":
        weight, layer = call["weight"], Layer(node, call["input"], call["weight"], False, call["bias"])
    elif call.name == "matmul":
        weight, layer = call["other"], Layer(node, call["input"], call["other"], True, None)
    else:
        return None
    return layer if isinstance(weight, Node) and example(weight).dim() == 2 and example(layer.rows).dim() > 1 else None


def of_rows(index: Any, rank: int, node: Node) -> Any:
    """Return an index that leaves the last dimension alone. Raises Miss for another one."""
    items = index if isinstance(index, tuple) else (index,)
    plain = all(each is Ellipsis or type(each) in (slice, int) for each in items)
    parts = [part for each in items if isinstance(each, slice) for part in (each.start, each.stop, each.step)]
    if not plain or not all(part is None or type(part) is int for part in parts):
        raise Miss("the logits are indexed by a tensor", node)
    at = items.index(Ellipsis) if Ellipsis in items else len(items)
    given = (*items[:at], *items[at + 1 :])
    each_dimension = (*given[:at], *[slice(None)] * (rank - len(given)), *given[at:])
    if each_dimension[-1] != slice(None):
        raise Miss("classes are left out", node)
    return index


def check_between(first: Node, last: Node) -> None:
    """Raise Miss if something happens between the layer and its loss that the layer, moved there, could notice."""
    node = first.next
    while node is not last:
        if node.target in MODES:
            raise Miss("grad mode changes between the layer and its loss", node)
        if is_write(node):
            raise Miss("memory is written to between the layer and its loss", node)
        node = node.next


def erase(graph: torch.fx.Graph, node: Node) -> None:
    """Erase a loss, and what nobody uses of the way to it."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if not each.users and each.op.startswith("call_") and not is_write(each):
            inputs = each.all_input_nodes
            graph.erase_node(each)
            waiting += inputs
