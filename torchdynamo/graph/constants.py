"""Tensors that are the same in every run: made inside the frame, of constants, and never written to.

`torch.arange(1, x.dim()).tolist()` is a list of constants. Such a tensor is computed for real when Python asks for its
values, if that is little work. An input counts as a constant where whoever asks says what it always is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch.utils._python_dispatch import TorchDispatchMode

from torchdynamo.graph.check import is_operator
from torchdynamo.graph.recording import WorldRecord, storage_of

MOST_NODES = 64
MOST_ELEMENTS = 4096


AtEntry = Callable[[torch.fx.Node], "torch.Tensor | None"]


class NotConstant(Exception):
    """The tensor depends on something besides constants."""


class Deterministic(TorchDispatchMode):
    """Lets only operators pass that give the same every time: no random numbers, no memory as it was found."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags or "empty" in func.__name__:
            raise NotConstant
        return func(*args, **(kwargs or {}))


def evaluate(node: torch.fx.Node, record: WorldRecord, at_entry: AtEntry) -> torch.Tensor | None:
    """Return the tensor, or None where it is not made of constants alone, and of inputs that `at_entry` knows."""
    if torch.is_autocast_enabled("cpu") or torch._C._functorch.peek_interpreter_stack() is not None:
        return None
    try:
        wanted = ancestors(node, record)
        known = {each: entered(each, record, at_entry) for each in wanted if each.op == "placeholder"}
        with torch.no_grad(), Deterministic():
            for each in wanted:
                if each not in known:
                    known[each] = run(each, known)
    except Exception:
        return None
    result = known[node]
    return result if isinstance(result, torch.Tensor) else None


def entered(node: torch.fx.Node, record: WorldRecord, at_entry: AtEntry) -> Any:
    """Return what an input is. Nothing that existed at entry may have been written to: it may be the same memory."""
    inputs = [each.meta["example_value"] for each in node.graph.find_nodes(op="placeholder")]
    if any(isinstance(fake, torch.Tensor) and written(fake, record) for fake in inputs):
        raise NotConstant
    real = at_entry(node)
    if real is None:
        raise NotConstant
    return real


def run(node: torch.fx.Node, known: dict[torch.fx.Node, Any]) -> Any:
    """Return one operation for real."""
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    return node.target(*args, **kwargs)  # type: ignore[operator]


def ancestors(node: torch.fx.Node, record: WorldRecord) -> list[torch.fx.Node]:
    """Return what the node is computed from, in order, itself last."""
    found: dict[torch.fx.Node, None] = {}
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if each in found:
            continue
        if len(found) == MOST_NODES or not is_constant(each, record):
            raise NotConstant
        found[each] = None
        waiting += each.all_input_nodes
    return sorted(found)


def is_constant(node: torch.fx.Node, record: WorldRecord) -> bool:
    """Return whether the node gives the same whenever its inputs are."""
    if node.op != "placeholder" and not is_operation(node):
        return False
    example = node.meta["example_value"]
    examples = example if isinstance(example, (tuple, list)) else [example]
    return all(isinstance(item, torch.Tensor) and is_small(item) and not written(item, record) for item in examples)


def is_operation(node: torch.fx.Node) -> bool:
    """Return whether the node runs an operator."""
    return node.op == "call_method" or (node.op == "call_function" and is_operator(node.target))


def is_small(fake: torch.Tensor) -> bool:
    """Return whether computing it costs next to nothing."""
    return fake.device.type == "cpu" and type(fake.numel()) is int and fake.numel() <= MOST_ELEMENTS


def written(fake: torch.Tensor, record: WorldRecord) -> bool:
    return record.wrote_to(storage_of(fake))
