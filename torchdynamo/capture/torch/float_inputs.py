"""Floats that change from call to call, like a learning rate: numbers of the graph, where a constant would recompile.

A graph takes tensors, so such a float travels in one, of no dimensions and as precise as Python's floats, and the graph
begins by reading it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from torchdynamo.capture.vm.state import input_name
from torchdynamo.core.source import Source
from torchdynamo.core.value import Symbol, TensorNode

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


def is_scheduled(vm: Machine, source: Source) -> bool:
    """Return whether a float is a learning rate that a scheduler changes, which keeps the first one beside it."""
    numbers = vm.builder.numbers
    if source.how != "key" or source.arg != "lr" or source.base is None or numbers.never or not numbers.schedules:
        return False
    found = "initial_lr" in source.base.load(vm.roots)
    numbers.scheduled |= found
    return found


def boxed(number: float) -> torch.Tensor:
    """Return the tensor that carries a float into a graph."""
    return torch.tensor(number, dtype=torch.float64, device="cpu")


def enter_float(vm: Machine, number: float, source: Source) -> Symbol:
    """Make a float of the entry state an input of the graph, guarded only to be a float."""
    vm.guard(source, "TYPE_MATCH", float)
    with torch._C._DisableFuncTorch(), torch.inference_mode(False):
        box = boxed(number)
    node, fake = vm.builder.input(input_name(source), box, source, False)
    node.meta["source"] = node.meta["source"].boxing()
    vm.input_objects[node] = box
    vm.boxes.append(TensorNode(node, fake, torch.Tensor, source))
    read = vm.builder.note(torch.Tensor.item, (node,), {}, vm.builder.numbers.fresh(float), vm.position())
    return Symbol(read, read.meta["example_value"], float, source)


def in_boxes(args: Sequence[Any], positions: tuple[int, ...]) -> tuple[Any, ...]:
    """Put the floats at these positions into tensors."""
    given = list(args)
    for position in positions:
        given[position] = boxed(given[position])
    return tuple(given)


def from_boxes(run: Any, positions: tuple[int, ...]) -> Any:
    """Return a function that takes tensors at these positions and calls `run` with the floats in them."""
    return lambda *args: run(*in_boxes(args, positions))
