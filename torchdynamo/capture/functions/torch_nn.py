"""torch.nn: one_hot, softmax without a dimension, flex_attention."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
from torch._higher_order_ops.flex_attention import flex_attention as FLEX

from torchdynamo.capture.functions.torch_higher_order import inline_body
from torchdynamo.capture.functions.warnings import warn
from torchdynamo.capture.torch.arguments import to_node
from torchdynamo.capture.vm import interop
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import function, polyfill
from torchdynamo.core.policy import OWN
from torchdynamo.core.signals import Break
from torchdynamo.core.value import NONE, Known, TensorNode, Value


@function(torch.nn.functional.one_hot)
def one_hot(vm: Machine, tensor: Value, num_classes: Value | None = None) -> Value:
    """Encode indices. Without a number of classes, the largest index is read as an unbacked symbol, and checked."""
    if num_classes is not None and not (num_classes.__class__ is Known and num_classes.obj == -1):
        return vm.emit("call_function", torch.nn.functional.one_hot, [tensor, num_classes], {})
    least, largest = (vm.call_method(vm.call_method(tensor, name), "item") for name in ("min", "max"))
    vm.call(Known(torch._check), [vm.compare(">=", least, Known(0))], {})
    vm.call(Known(torch._check), [vm.compare(">=", largest, Known(0))], {})  # which does not follow, to torch
    device = vm.getattr(tensor, "device")
    classes = vm.emit("call_function", OWN.arange, [vm.binary("+", largest, Known(1))], {"device": device})
    ones = vm.binary("==", vm.call_method(tensor, "unsqueeze", Known(-1)), classes)
    return vm.call_method(ones, "to", Known(torch.int64))


# -- softmax without a dimension --------------------------------------------------------------------------------------
DEPRECATED = "Implicit dimension choice for {} has been deprecated. Change the call to include dim=X as an argument."
OWN_FRAMES = 2  # of torch, which its own warning counts: the function, and the one that it asks for the dimension


def softmax(vm: Machine, fn: Callable[..., Any], args: Sequence[Value], given: dict[str, Value]) -> Value:
    """Emit a call. Where no dimension is given, the program is warned as torch does, and the graph has the dimension.

    given: arguments by name.
    """
    named = dict(zip(("input", "dim", "_stacklevel", "dtype"), args, strict=False)) | given
    tensor, dim = named.get("input"), named.get("dim", NONE)
    if not isinstance(tensor, TensorNode) or not (dim.__class__ is Known and dim.obj is None):
        return vm.emit("call_function", fn, list(args), given)
    level = vm.known(named.pop("_stacklevel", Known(3)), "stacklevel") - OWN_FRAMES
    warn(vm, Known(DEPRECATED.format(fn.__name__)), stacklevel=Known(level))
    dims = tensor.fake.dim()
    rest = {name: named[name] for name in ("dtype",) if name in named}
    return vm.emit("call_function", fn, [tensor], {"dim": Known(0 if dims in (0, 1, 3) else 1), **rest})


def model_softmax(fn: Callable[..., Any]) -> None:
    """Register the model of a function; none for a function that the program has put in its place."""
    if fn.__module__ == torch.nn.functional.__name__:
        function(fn)(lambda vm, /, *args, **kwargs: softmax(vm, fn, args, kwargs))


model_softmax(torch.nn.functional.softmax)
model_softmax(torch.nn.functional.log_softmax)
model_softmax(torch.nn.functional.softmin)


# -- flex_attention ---------------------------------------------------------------------------------------------------
PLACE = (torch.int32,) * 4  # of a score: batch, head, query, key
Part = tuple[list[torch.fx.Node], list[torch.fx.Node], torch.fx.Node]


@polyfill(FLEX)
def flex_attention(*args):
    """Call the operator while tensors that are indices stay tensors: there will be as many as there are scores."""
    with interop.indices_stay_tensors():
        return attend(*args)


def attend(*args):
    """Call the operator; modelled by `follow`."""
    return FLEX(*args)


@function(attend)
def capture_attention(
    vm: Machine,
    query: Value,
    key: Value,
    value: Value,
    score_mod: Value,
    block_mask: Value,
    scale: Value,
    kernel_options: Value,
    *buffers: Value,
) -> Value:
    """Capture attention whose scores go through functions of the program's, as one node."""
    tensors = [each for each in (query, key, value) if isinstance(each, TensorNode)]
    if len(tensors) != 3 or any(map(list, map(vm.iterate, buffers))) or torch._C._are_functorch_transforms_active():
        raise Break("unsupported operator", name="flex_attention", what="with buffers, or inside of torch.func")
    *blocks, mask_mod = vm.iterate(block_mask)
    like = tensors[0].fake
    score = inline_score(vm, score_mod, [like.dtype, *PLACE], like.device)
    mask = inline_score(vm, mask_mod, PLACE, like.device)
    layout, settings = [to_node(vm, each) for each in blocks], [to_node(vm, scale), to_node(vm, kernel_options)]
    nodes = [each.node for each in tensors]
    node, examples = vm.builder.attend(nodes, score, mask, layout, settings, vm.position())
    vm.ops += 1
    items = (vm.builder.getitem(node, index) for index in range(len(examples)))
    return vm.make_tuple([TensorNode(item, example, torch.Tensor) for item, example in items])


def inline_score(vm: Machine, fn: Value, dtypes: Sequence[torch.dtype], device: torch.device) -> Part:
    """Inline a function of scores. Returns the nodes of its arguments, those that it adds, and that of its result."""
    kwargs = {"device": Known(device)}
    standing = [vm.emit("call_function", OWN.empty, [Known(())], {**kwargs, "dtype": Known(each)}) for each in dtypes]
    nodes, result = inline_body(vm, fn, standing, "in a function of scores")
    if not isinstance(result, TensorNode):
        raise Break("unsupported argument", what="a score", type=result.pytype.__name__)
    return [each.node for each in standing if isinstance(each, TensorNode)], nodes, result.node
