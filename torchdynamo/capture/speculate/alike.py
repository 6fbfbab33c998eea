"""Find tensors that are computed alike: by the same operators of the same inputs, so that `torch.equal` holds.

Only nan says otherwise, and writes in between: the capture rests on the answer, and the graph checks it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from torchdynamo.capture.speculate import assertions
from torchdynamo.core.policy import OWN
from torchdynamo.core.value import FALSE, TRUE, TensorNode, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

Node = torch.fx.Node
MOST_NODES = 200  # looked at for one comparison


def equality(vm: Machine, a: TensorNode, b: TensorNode) -> Value | None:
    """Return what `torch.equal` gives, where sizes tell, or where it is to be expected and checked; else None."""
    if a.fake.dtype != b.fake.dtype or a.fake.device != b.fake.device or not is_plain(a) or not is_plain(b):
        return None
    fixed = all(type(size) is int for size in (*a.fake.shape, *b.fake.shape))
    if fixed and a.fake.shape != b.fake.shape:
        return FALSE
    if not fixed or not vm.may_begin_again or not computed_alike(a.node, b.node):
        return None
    answer = vm.call_method(vm.emit("call_function", OWN.eq, [a, b], {}), "all")
    return TRUE if assertions.expect(vm, answer, True) else None


def is_plain(value: TensorNode) -> bool:
    """Return whether a tensor is one of numbers in memory, of torch's own class."""
    return value.pytype in (torch.Tensor, torch.nn.Parameter) and value.fake.layout is torch.strided


def computed_alike(a: Node, b: Node) -> bool:
    """Return whether two nodes apply the same operators to the same inputs."""
    left = MOST_NODES

    def alike(x: Any, y: Any) -> bool:
        nonlocal left
        if x is y:
            return True
        if type(x) is not type(y):
            return False
        if isinstance(x, (tuple, list)):
            return len(x) == len(y) and all(map(alike, x, y))
        if isinstance(x, dict):
            return x.keys() == y.keys() and all(alike(x[key], y[key]) for key in x)
        if isinstance(x, slice):
            return alike((x.start, x.stop, x.step), (y.start, y.stop, y.step))
        if not isinstance(x, Node):
            return bool(x == y)
        left -= 1
        same = x.op == y.op and x.target == y.target and x.op.startswith("call_")
        return same and left > 0 and alike(x.args, y.args) and alike(x.kwargs, y.kwargs)

    return alike(a, b)
