"""Operators of torch that are given functions: torch.cond, while_loop, scan, map, and those that only call one."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.fx
from torch._higher_order_ops.map import map_impl
from torch._higher_order_ops.scan import scan_op
from torch._higher_order_ops.while_loop import while_loop_op
from torch._higher_order_ops.wrap import wrap, wrap_with_autocast, wrap_with_set_grad_enabled
from torch.utils import _pytree as pytree

from torchdynamo.capture.speculate.bodies import follow_body, like_result, result_tensors
from torchdynamo.capture.torch import symbols
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import function, polyfill
from torchdynamo.core.signals import Break
from torchdynamo.core.value import NO_ITEMS, Known, Symbol, TensorNode, Value


@function(torch.cond)
def cond(vm: Machine, pred: Value, true_fn: Value, false_fn: Value, operands: Value = NO_ITEMS) -> Value:
    """Capture both functions, and choose by a tensor of one truth value; a constant condition chooses at once."""
    given = list(vm.iterate(operands))
    if pred.__class__ is Symbol and not symbols.unknown(vm, pred):
        pred = Known(symbols.truth(vm, pred))
    if pred.__class__ is Known:
        return vm.call(true_fn if pred.obj else false_fn, given, {})
    if not isinstance(pred, (TensorNode, Symbol)) or torch._C._are_functorch_transforms_active():
        raise Break("unsupported argument", what="a truth value", type=pred.pytype.__name__)
    sides, shapes = [], []
    for fn in (true_fn, false_fn):
        nodes, result = inline_body(vm, fn, given)
        sides.append((nodes, [each.node for each in result_tensors(vm, result)]))
        shapes.append(result)
    if len(sides[0][1]) != len(sides[1][1]):
        raise Break("unsupported operator", name="cond", what="its sides return different numbers of tensors")
    node, examples = vm.builder.choose(pred.node, sides, vm.position())
    vm.ops += 1
    made: list[Value] = []
    for index in range(len(examples)):
        item, example = vm.builder.getitem(node, index)
        made.append(TensorNode(item, example, torch.Tensor))
    return like_result(vm, shapes[0], iter(made))


def inline_body(
    vm: Machine, fn: Value, given: Sequence[Value], where: str = "in one side of torch.cond"
) -> tuple[list[torch.fx.Node], Value]:
    """Inline a function that may do nothing but compute. Returns the nodes that it adds to the graph, and its result.

    Raises Break if it has side effects; `where` says in the message what it belongs to.
    """
    return follow_body(vm, lambda: vm.call(fn, list(given), {}), where)


# -- operators that repeat --------------------------------------------------------------------------------------------


@function(while_loop_op)
def while_loop(vm: Machine, condition: Value, turn: Value, carried: Value, more: Value = NO_ITEMS) -> Value:
    """Capture condition and body once, as a node that repeats them. The body returns what it is given next."""
    given = [each for each in vm.iterate(carried) if isinstance(each, TensorNode)]
    if len(given) != len(list(vm.iterate(carried))) or list(vm.iterate(more)) or not given:
        raise Break("unsupported argument", what="carried value", type="while_loop")
    if torch._C._are_functorch_transforms_active() or any(map(may_need_gradients, given)):
        raise Break("unsupported operator", name="while_loop", what="it is followed without gradients only")
    standing = [vm.emit("call_method", "clone", [each], {}) for each in given]
    asked = inline_body(vm, condition, standing)
    done = inline_body(vm, turn, standing)
    parts = [(nodes, [each.node for each in result_tensors(vm, result)]) for nodes, result in (asked, done)]
    made = list(result_tensors(vm, done[1]))
    if len(parts[0][1]) != 1 or len(made) != len(given) or not all(map(have_one_layout, made, given, standing)):
        raise Break("unsupported operator", name="while_loop", what="what a turn returns is not like what it is given")
    nodes = [each.node for each in standing if isinstance(each, TensorNode)]
    node, examples = vm.builder.repeat([each.node for each in given], nodes, parts, vm.position())
    vm.ops += 1
    items = (vm.builder.getitem(node, index) for index in range(len(examples)))
    return vm.make_tuple([TensorNode(item, example, torch.Tensor) for item, example in items])


def may_need_gradients(value: TensorNode) -> bool:
    """Return whether autograd records what is done with a tensor."""
    return bool(value.fake.requires_grad)


def have_one_layout(made: TensorNode, given: TensorNode, standing: Value) -> bool:
    """Return whether tensors are of one dtype, shape and layout."""
    told = {(each.fake.dtype, each.fake.shape, each.fake.stride()) for each in (made, given, standing)}  # type: ignore[union-attr]
    return len(told) == 1 and not made.fake.requires_grad


@polyfill(scan_op)
def scan(combine_fn, init, xs, additional_inputs=()):
    """Call `combine_fn` with each slice of `xs` in turn; return the final carry and the stacked results."""
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
    """Call `f` with each slice of `xs` along the first dimension, and stack the results."""
    rows = []
    for at in range(xs[0].shape[0]):
        row, spec = pytree.tree_flatten(f(*[x.select(0, at) for x in xs], *pos_args))
        rows.append(row)
    return pytree.tree_unflatten([torch.stack(column) for column in zip(*rows)], spec)


# -- operators that call a function ------------------------------------------------------------------------------------


@polyfill(wrap)
def wrap_(func, *args, **kwargs):
    return func(*args, **kwargs)


@polyfill(wrap_with_set_grad_enabled)
def with_set_grad_enabled(enable_grad, wrapped_func, *args, **kwargs):
    """Call a function in a grad mode. One that raises leaves that mode on."""
    prev = torch.is_grad_enabled()
    torch.set_grad_enabled(enable_grad)
    result = wrapped_func(*args, **kwargs)
    torch.set_grad_enabled(prev)
    return result


@polyfill(wrap_with_autocast)
def with_autocast(device_type, dtype, enabled, cache_enabled, wrapped_func, *args, **kwargs):
    with torch.autocast(device_type, dtype, enabled, cache_enabled):
        return wrapped_func(*args, **kwargs)
