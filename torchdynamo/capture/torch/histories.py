"""Refuse what depends on whether autograd follows a tensor, where only a later run can tell.

That is so in a captured backward: it is not told whether the gradients it is given have histories of their own, and
mostly not in which grad mode it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.fx

from torchdynamo.core.signals import Break
from torchdynamo.core.value import TensorNode
from torchdynamo.graph.recording import storage_of

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

DETACHING = ("detach", torch.detach)


def refuse_unknown(vm: Machine, tensor: TensorNode, name: str) -> None:
    """Raise Break if an answer of the tensor depends on a history that only a later run can know."""
    if is_unknown(vm, tensor):
        raise Break("unsupported attribute", name=name, type="Tensor")


def is_unknown(vm: Machine, tensor: TensorNode) -> bool:
    """Return whether a tensor may have a history in some runs and none in others."""
    if not vm.later_histories and not vm.grad_mode_unknown:
        return False
    if vm.builder.record.wrote_to(storage_of(tensor.fake)):
        return True
    seen: set[torch.fx.Node] = set()
    waiting = [tensor.node]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in vm.later_histories:
            return True
        if vm.grad_mode_unknown and node is not tensor.node and has_history(node):
            return True
        if node.target not in DETACHING:
            waiting += node.all_input_nodes
    return False


def has_history(node: torch.fx.Node) -> bool:
    example = node.meta.get("example_value")
    return isinstance(example, torch.Tensor) and example.requires_grad
