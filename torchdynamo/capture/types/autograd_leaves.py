"""Capture operations on autograd's leaves: making parameters, asking for gradients, replacing a tensor's memory.

Each is a node, and happens when the graph runs. A backend that replays traces of operators cannot say such things, so
the graph says of itself that it does them (`graph.mutation.makes_leaves`).
"""

from __future__ import annotations

import torch
import torch.autograd

from torchdynamo._native import type_name
from torchdynamo.capture.functions.torch_checkpoint import note_backward
from torchdynamo.capture.torch import histories
from torchdynamo.capture.torch.overrides import of_class
from torchdynamo.capture.torch.tensor_subclasses import overrides, read
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import function, models
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Source
from torchdynamo.core.value import FALSE, NONE, TRUE, Known, Object, TensorNode, Value, is_none
from torchdynamo.graph.recording import storage_of
from torchdynamo.graph.torch_compat import GRADIENTS

BASE = torch._C.TensorBase


@models(BASE, "requires_grad_")
def require_grad(vm: Machine, self: Value, requires_grad: Value = TRUE) -> Value:
    """Model `requires_grad_`: what changes nothing needs no node."""
    if self.__class__ is not TensorNode:
        raise Break("unsupported method", name="requires_grad_", type=self.pytype.__name__)
    if not torch._C._functorch.is_functorch_wrapped_tensor(self.fake):
        histories.refuse_unknown(vm, self, "requires_grad")
        if self.fake.requires_grad is vm.concretely(requires_grad):
            return self
        is_leaf(vm, self)
        vm.note_change(self)
    return vm.emit("call_method", "requires_grad_", [self, requires_grad], {})


@models(BASE, "detach_")
def detach(vm: Machine, self: Value) -> Value:
    """Return a detached tensor, which is a leaf like any result that autograd does not follow."""
    if self.__class__ is not TensorNode:
        raise Break("unsupported method", name="detach_", type=self.pytype.__name__)
    is_leaf(vm, self)
    vm.note_change(self)
    return vm.emit("call_method", "detach_", [self], {})


@models(BASE, ".requires_grad")
def requires_grad(vm: Machine, self: TensorNode) -> Value:
    """Return whether autograd follows a tensor, which the guards of inputs compare."""
    histories.refuse_unknown(vm, self, "requires_grad")
    return Known(self.fake.requires_grad)


@models(BASE, ".is_leaf")
def is_leaf(vm: Machine, self: TensorNode) -> Value:
    """Return whether a tensor is a leaf of autograd, guarded if it is an input."""
    vm.refuse_copies(self)
    histories.refuse_unknown(vm, self, "is_leaf")
    real = vm.input_objects.get(self.node)
    if real is not None and self.source is not None:
        vm.guard(Source("attr", self.source, "is_leaf"), "EQUALS_MATCH", read(real, "is_leaf"))
    return Known(self.fake.is_leaf)


@models(BASE, ".grad_fn")
def grad_fn(vm: Machine, self: TensorNode) -> Value:
    """Return None for a leaf; for a result, an object of which only the class is known.

    A fake tensor's node of autograd's history is not the real one, so whatever else is asked of it ends the graph.
    """
    if vm.known(is_leaf(vm, self), "is_leaf"):
        return NONE
    rewritten = self.fake._is_view() and vm.builder.record.wrote_to(storage_of(self.fake))
    if self.source is not None or rewritten:  # autograd makes a view's history anew, and a fake tensor's otherwise
        raise Break("unsupported attribute", name="grad_fn", type="Tensor")
    history = self.fake.grad_fn
    known = vm.heap.by_id.get(id(history))
    if known is None:
        known = vm.heap.by_id[id(history)] = vm.new(type(history), payload=history)
    return known


@function(BASE.__dict__["_make_subclass"].__func__)
def make_subclass(vm: Machine, cls: Value, data: Value, wanted: Value = FALSE) -> Value:
    """Return what `nn.Parameter(tensor)` makes: its Python ends in this function of C."""
    made = vm.known(cls, "class")
    if overrides(made) and data.__class__ is TensorNode and vm.known(wanted, "require_grad") is False:
        return of_class(vm, vm.emit("call_method", "detach", [data], {}), made)
    if made is not torch.nn.Parameter or data.__class__ is not TensorNode:
        raise Break("unsupported type", type=made.__name__)
    return vm.emit("call_function", torch.nn.Parameter, [data, wanted], {})


@models(BASE, "=data")
def set_data(vm: Machine, self: TensorNode, value: Value) -> None:
    """Model `tensor.data = other`: the tensor stays, and gets the other's memory and metadata."""
    if value.__class__ is not TensorNode:
        raise vm.error(TypeError, f"Variable data has to be a tensor, but got {type_name(value.pytype)}")
    if is_its_own(self, value):
        return
    vm.note_change(self)
    vm.emit("call_function", setattr, [self, Known("data"), value], {})


def is_its_own(tensor: TensorNode, data: TensorNode) -> bool:
    """Return whether a value is the tensor or its own data, as of `p.data = p.to(device)`, which changes nothing."""
    if data.fake is tensor.fake:
        return True
    if data.node.target is not getattr or data.node.args != (tensor.node, "data"):
        return False
    ours, theirs = ((t.untyped_storage()._cdata, layout_of(t)) for t in (tensor.fake, data.fake))
    return ours == theirs


def layout_of(tensor: torch.Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.stride(), tensor.storage_offset()


@models(BASE, "=requires_grad")
def set_requires_grad(vm: Machine, self: TensorNode, value: Value) -> None:
    """Model `tensor.requires_grad = flag`, which a result of operators does not take."""
    if not vm.known(is_leaf(vm, self), "is_leaf"):
        raise Break("unsupported attribute write", name="requires_grad", type="Tensor")
    require_grad(vm, self, value)


@models(BASE, "=grad")
def set_grad(vm: Machine, self: TensorNode, value: Value) -> None:
    """Store a gradient beside the graph, in which nothing looks at it.

    Ends the graph for one that torch would refuse.
    """
    if torch._C._functorch.is_functorch_wrapped_tensor(self.fake) or not (is_none(value) or fits(vm, self, value)):
        raise Break("unsupported attribute write", name="grad", type="Tensor")
    vm.store_on(self, "grad", value)


def fits(vm: Machine, tensor: TensorNode, grad: Value) -> bool:
    """Return whether a value may be the tensor's gradient."""
    if grad.__class__ is not TensorNode or grad.fake is tensor.fake or grad.fake.device != tensor.fake.device:
        return False
    wanted = vm.getattr(tensor, "grad_dtype") if vm.known(is_leaf(vm, tensor), "is_leaf") else Known(tensor.fake.dtype)
    return vm.known(wanted, "dtype") in (None, grad.fake.dtype) and grad.fake.shape == tensor.fake.shape


def listed(vm: Machine, tensors: Value) -> Value:
    """Return the tensors of an argument, whatever they come in, as the list of nodes that a graph takes."""
    if tensors.__class__ is not Object or tensors.pytype in (list, tuple):
        return tensors
    return vm.make_tuple(list(vm.iterate(tensors)))


@function(GRADIENTS)
def autograd_grad(
    vm: Machine, outputs: Value, inputs: Value, grad_outputs: Value = NONE, *args: Value, **kwargs: Value
) -> Value:
    """Model `torch.autograd.grad` where all history is the graph's: in a layer of `torch.func.grad`, or from leaves."""
    vm.refuse_copies_with_gradients()
    if vm.effects.change_backwards():
        raise Break("unknown call", name="torch.autograd.grad")
    if not torch._C._are_functorch_transforms_active():
        for tensor in vm.inputs:
            if tensor.fake.requires_grad and not vm.known(is_leaf(vm, tensor), "is_leaf"):
                raise Break("unknown call", name="torch.autograd.grad")
    note_backward(vm)
    tensors = [listed(vm, each) for each in (outputs, inputs, grad_outputs)]
    return vm.emit("call_function", GRADIENTS, [*tensors, *args], dict(kwargs))
