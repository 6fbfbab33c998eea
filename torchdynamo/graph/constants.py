"""Evaluate tensors that are equal in every run: made from constants inside of the frame and never written to.

`torch.arange(1, x.dim()).tolist()` is a list of constants. Such a tensor is computed for real when Python asks for its
values, if that is cheap. An input counts as a constant if the caller supplies its value, and with it what has a size
that depends on contents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch.utils._python_dispatch import TorchDispatchMode

from torchdynamo.graph.check import is_operator
from torchdynamo.graph.numbers import SYMBOLIC
from torchdynamo.graph.recording import WorldRecord, is_foreign

MOST_NODES = 64
MOST_ELEMENTS = 4096
SIZES = frozenset({"size", "numel"})


AtEntry = Callable[[torch.fx.Node], "torch.Tensor | None"]


class NotConstant(Exception):
    """Raised for a tensor that depends on anything but constants."""


class Deterministic(TorchDispatchMode):
    """Lets only deterministic operators of torch's own pass: no random numbers, no uninitialized memory."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if is_foreign(func) or torch.Tag.nondeterministic_seeded in func.tags or "empty" in func.__name__:
            raise NotConstant
        return func(*args, **(kwargs or {}))


def evaluate(
    node: torch.fx.Node, record: WorldRecord, at_entry: AtEntry, *, written: bool = False
) -> torch.Tensor | None:
    """Compute a node's tensor; None if it depends on anything but constants and inputs that `at_entry` knows.

    written: an input was written to, be it a tensor or an array. Any other may share its memory, so none is known.
    """
    if torch.is_autocast_enabled("cpu") or torch._C._functorch.peek_interpreter_stack() is not None:
        return None
    try:
        wanted = ancestors(node, record)
        known: dict[torch.fx.Node, Any] = {each: at_entry(each) for each in wanted if each.op == "placeholder"}
        if known and (written or any(each is None for each in known.values())):
            return None
        run_all(wanted, known)
    except NotConstant:
        return None
    result = known[node]
    return result if isinstance(result, torch.Tensor) else None


def run_all(nodes: Sequence[torch.fx.Node], known: dict[torch.fx.Node, Any]) -> None:
    """Add the results of nodes to those that are known. Raises NotConstant if they cannot be computed, or are large."""
    with torch.no_grad(), Deterministic():
        for node in nodes:
            if node in known:
                continue
            try:
                known[node] = run(node, known)
            except Exception as error:  # an operator's, for these values: the graph raises it where it runs
                raise NotConstant from error
            if size_of(known[node]) > MOST_ELEMENTS:
                raise NotConstant


def run(node: torch.fx.Node, known: dict[torch.fx.Node, Any]) -> Any:
    """Run one node for real."""
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    return node.target(*args, **kwargs)  # type: ignore[operator]


def ancestors(node: torch.fx.Node, record: WorldRecord) -> list[torch.fx.Node]:
    """Return the nodes that this one is computed from, in order, with itself last. Raises NotConstant."""
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
    """Return whether a node's result depends on nothing but its inputs, and is never written to, and is not large, so
    far as can be told.
    """
    if node.op != "placeholder" and not is_operation(node):
        return False
    example = node.meta["example_value"]
    examples = example if isinstance(example, (tuple, list)) else [example]
    if all(isinstance(item, SYMBOLIC) for item in examples):
        return is_of_numbers(node)
    tensors = all(isinstance(item, torch.Tensor) and not record.changed(item) for item in examples)
    return tensors and all(map(is_small if node.op == "placeholder" else may_be_small, examples))


def is_operation(node: torch.fx.Node) -> bool:
    """Return whether the node runs an operator of torch's or Python's: others may do whatever they like."""
    own = is_operator(node.target) and not is_foreign(node.target)
    return node.op == "call_method" or (node.op == "call_function" and own)


def is_of_numbers(node: torch.fx.Node) -> bool:
    """Return whether the node takes a tensor's size, or computes with numbers as Python's operators do."""
    if node.op == "call_method":
        return node.target in SIZES
    return node.op == "call_function" and getattr(node.target, "__module__", None) == "_operator"


def is_small(fake: torch.Tensor) -> bool:
    """Return whether reading a tensor costs next to nothing in each run: its size is no symbol, and guarded."""
    return type(fake.numel()) is int and may_be_small(fake)


def may_be_small(fake: torch.Tensor) -> bool:
    """Return whether computing a tensor may cost next to nothing: a symbolic size is seen when it has been computed."""
    count = fake.numel()
    return fake.device.type == "cpu" and (type(count) is not int or count <= MOST_ELEMENTS)


def size_of(real: Any) -> int:
    """Return how many elements a result has."""
    if isinstance(real, (tuple, list)):
        return sum(map(size_of, real))
    return real.numel() if isinstance(real, torch.Tensor) else 1
