"""Numbers read from tensors while a graph is captured.

Some are known: those of a tensor made of constants, and those of small tensors that the program keeps (a flag in a
buffer, a padding computed in `__init__`), as long as they stay what they are, which is guarded. One that is found to
change is never taken for known again; nor is what a caller passes, which is there to change: but in a whole graph that
is better than none, for the integers (lengths, a grid) that decide how a program goes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from torchdynamo.capture.vm.persistence import lasts
from torchdynamo.core.source import Source
from torchdynamo.core.value import Known, Object, TensorNode, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

MOST_ELEMENTS = 16
READ = "tolist"
TENSORS = (torch.Tensor, torch.nn.Parameter)


def evaluate(vm: Machine, tensor: TensorNode) -> torch.Tensor | None:
    """Return what the tensor is in every run; None if that is not known."""
    read: dict[torch.fx.Node, tuple[Source, torch.Tensor]] = {}
    inputs = {value.node: value for value in vm.inputs}

    def at_entry(node: torch.fx.Node) -> torch.Tensor | None:
        value = inputs.get(node)
        if value is None or value.source is None or not is_kept(vm, value):
            return None
        read[node] = Source("method", value.source, READ), vm.input_objects[node]
        return read[node][1]

    real = vm.builder.evaluate(tensor.node, at_entry)
    if real is not None:
        for source, known in read.values():
            guard_numbers(vm, source, known.tolist())
    return real


def is_kept(vm: Machine, value: TensorNode) -> bool:
    """Return whether a tensor is small, passed by no caller, not written to by the frame, and unchanged so far."""
    assert value.source is not None
    real = vm.input_objects[value.node]
    if type(real) not in TENSORS or real.device.type != "cpu" or real.layout is not torch.strided:
        return False
    if real.dtype.is_complex or real.requires_grad or real.numel() > MOST_ELEMENTS:
        return False
    asked = Source("method", value.source, READ)
    changes = any(asked in path(source) for source in vm.builder.numbers.varying)
    passed = vm.builder.numbers.passed and not real.is_floating_point()
    return not changes and (passed or lasts(vm.roots, value.source, vm.roots.closure))


def is_reading(source: Source) -> bool:
    """Return whether a source is a number read from a tensor."""
    return any(step.how == "method" and step.arg == READ for step in path(source))


def path(source: Source | None) -> list[Source]:
    """Return the steps that lead to a source, the last first."""
    found = []
    while source is not None:
        found.append(source)
        source = source.base
    return found


def guard_numbers(vm: Machine, source: Source, numbers: Any) -> None:
    """Guard numbers, or lists of them, whose lengths the tensor's guard knows."""
    if isinstance(numbers, list):
        for index, part in enumerate(numbers):
            guard_numbers(vm, Source("item", source, index), part)
    else:
        vm.guard(source, "EQUALS_MATCH", numbers)


def as_numbers(vm: Machine, value: Value) -> Value:
    """Return an argument with numbers for the tensors without dimensions in it, where they are known."""
    if value.__class__ is TensorNode and value.fake.dim() == 0:
        real = evaluate(vm, value)
        return value if real is None else Known(real.item())
    if value.__class__ is Object and value.pytype in (list, tuple):
        items = list(vm.iterate(value))
        known = [as_numbers(vm, item) for item in items]
        return value if known == items else vm.new(value.pytype, known)
    return value
