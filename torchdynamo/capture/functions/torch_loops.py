"""Higher-order operators that repeat: `while_loop` is one operator of the graph, `scan` and `map` are their turns."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch._higher_order_ops.map import map_impl
from torch._higher_order_ops.scan import scan_op
from torch._higher_order_ops.while_loop import while_loop_op
from torch.utils import _pytree as pytree

from torchdynamo.capture.functions.torch_cond import leaves, side
from torchdynamo.capture.vm.model import function, polyfill
from torchdynamo.core.signals import Break
from torchdynamo.core.value import Known, TensorNode, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

NOTHING = Known(())


@function(while_loop_op)
def while_loop(vm: Machine, condition: Value, turn: Value, carried: Value, more: Value = NOTHING) -> Value:
    """As long as the condition holds, what the body returns is what it is given next."""
    given = [each for each in vm.iterate(carried) if isinstance(each, TensorNode)]
    if len(given) != len(list(vm.iterate(carried))) or list(vm.iterate(more)) or not given:
        raise Break("unsupported argument", what="carried value", type="while_loop")
    if torch._C._are_functorch_transforms_active() or any(map(may_need_gradients, given)):
        raise Break("unsupported operator", name="while_loop", what="it is followed without gradients only")
    standing = [vm.emit("call_method", "clone", [each], {}) for each in given]
    asked = side(vm, condition, standing)
    done = side(vm, turn, standing)
    parts = [(nodes, [each.node for each in leaves(vm, result)]) for nodes, result in (asked, done)]
    made = list(leaves(vm, done[1]))
    if len(parts[0][1]) != 1 or len(made) != len(given) or not all(map(alike, made, given, standing)):
        raise Break("unsupported operator", name="while_loop", what="what a turn returns is not like what it is given")
    nodes = [each.node for each in standing if isinstance(each, TensorNode)]
    node, examples = vm.builder.repeat([each.node for each in given], nodes, parts, vm.position())
    vm.ops += 1
    items = (vm.builder.getitem(node, index) for index in range(len(examples)))
    return vm.make_tuple([TensorNode(item, example, torch.Tensor) for item, example in items])


def may_need_gradients(value: TensorNode) -> bool:
    return bool(value.fake.requires_grad)


def alike(made: TensorNode, given: TensorNode, standing: Value) -> bool:
    """Whether tensors are of the same type, shape and layout."""
    told = {(each.fake.dtype, each.fake.shape, each.fake.stride()) for each in (made, given, standing)}  # type: ignore[union-attr]
    return len(told) == 1 and not made.fake.requires_grad


@polyfill(scan_op)
def scan(combine_fn, init, xs, additional_inputs=()):
    """Turn by turn; results are new tensors."""
    carried, rows = init, []
    for at in range(xs[0].shape[0]):
        carry, out = combine_fn(*carried, *[x.select(0, at) for x in xs], *additional_inputs)
        carried, shape = pytree.tree_flatten(carry)
        row, spec = pytree.tree_flatten(out)
        rows.append(row)
    stacked = [torch.stack(column) for column in zip(*rows)]
    return pytree.tree_unflatten([each.clone() for each in carried], shape), pytree.tree_unflatten(stacked, spec)


@polyfill(map_impl)
def map_(f, xs, pos_args):
    """Each along the first dimension, and what comes of them together again."""
    rows = []
    for at in range(xs[0].shape[0]):
        row, spec = pytree.tree_flatten(f(*[x.select(0, at) for x in xs], *pos_args))
        rows.append(row)
    return pytree.tree_unflatten([torch.stack(column) for column in zip(*rows)], spec)
