"""torch.Tensor: metadata is read off the fake tensor, operators go into the graph, values are out of reach."""

from __future__ import annotations

from typing import Any

import torch

from torchdynamo._native import type_name
from torchdynamo.capture.speculate import tensor_constants
from torchdynamo.capture.torch import number_conditions, overrides, symbols, tensor_methods, wrappers
from torchdynamo.capture.torch.tensor_subclasses import read
from torchdynamo.capture.vm import attribute_writes, lookup, model, namespaces
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import models
from torchdynamo.capture.vm.wrap import CONSTANTS, lift, wrap
from torchdynamo.core import policy
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Source
from torchdynamo.core.value import ABSENT, NONE, Known, TensorNode, Value, boolean

BASE = torch._C.TensorBase
# Methods that only read metadata, which the fake tensor has.
METADATA = [
    "size",
    "dim",
    "ndimension",
    "numel",
    "nelement",
    "stride",
    "is_contiguous",
    "element_size",
    "get_device",
    "is_floating_point",
    "is_complex",
    "is_signed",
    "is_inference",
    "is_neg",
    "is_conj",
    "is_same_size",
    "has_names",
    "dim_order",
]
PLACE = ["storage_offset"]
VALUES = [
    "item",
    "tolist",
    "__bool__",
    "__int__",
    "__float__",
    "__complex__",
    "__index__",
    "__array__",
    "__contains__",
]
OUTSIDE = [
    "backward",
    "data_ptr",
    "storage",
    "untyped_storage",
    "resize_",
    "set_",
    "share_memory_",
    "apply_",
    "map_",
    "map2_",
    "_use_count",
    "is_pinned",
    "is_set_to",
    "_is_view",
    "__repr__",
    "__str__",
    "__format__",
    "__deepcopy__",
    "is_shared",
    "__dlpack__",
    "record_stream",
]
# Attributes that follow from what a tensor's own guard compares: others are guarded when they are read.
FOLLOWING = {
    *("dtype", "device", "layout", "shape", "ndim", "itemsize", "nbytes", "is_nested", "is_quantized"),
    *("is_cpu", "is_cuda", "is_ipu", "is_maia", "is_meta", "is_mkldnn", "is_mps", "is_mtia", "is_sparse"),
    *("is_sparse_csr", "is_vulkan", "is_xla", "is_xpu"),
}
STATE = {
    "_backward_hooks",
    "_version",
    "_base",
    "_cdata",
    "name",
    "volatile",
    "_grad_fn",
    "retains_grad",
}


@models(torch.Tensor, "__getattr__")
def tensor_getattr(vm: Machine, obj: TensorNode, name: str) -> Value:
    """Return a method, a piece of metadata, a view like `.T`, or what the user stored on the tensor."""
    if vm.watching:
        inside = wrappers.attribute(vm, obj, name) if wrappers.wraps(obj) else None
        answer = overrides.attribute(vm, obj, name) if inside is None else inside
        if answer is not None:
            return answer
    found = lookup.guarded_lookup(vm, obj.pytype, name)
    if type(found) in lookup.PLAIN_METHODS:
        return vm.bound_method(obj, tensor_methods.put_on(vm, obj, name) or Known(found), name)
    if type(found) is property and tensor_methods.is_foreign(found.fget):
        return vm.call(lookup.getter_of(vm, obj.pytype, name, found), [obj], {})
    written = vm.effects.written(obj.fake, name)
    if written is not None and written is not ABSENT:
        return written
    row = model.MODELS.get((BASE, "." + name))
    if row is not None:
        return row(vm, obj)
    if found is MISSING or name in STATE or name in ("grad", "__dict__"):
        vm.refuse_copies(obj)
    if found is MISSING:
        value = namespaces.read_tensor(vm, obj, name)
        if value is not None:
            return value
        raise vm.error(AttributeError, f"{type_name(obj.pytype)!r} object has no attribute {name!r}")
    if name == "__class__":
        return Known(obj.pytype)
    if name == "grad":
        real = vm.input_objects.get(obj.node)
        if real is not None and obj.source is not None:
            return wrap(vm, read(real, "grad"), Source("attr", obj.source, "grad"))
    if name == "_backward_hooks" and not any(each.tensor.node is obj.node for each in vm.hooks):
        real = vm.input_objects.get(obj.node)
        if real is None or obj.source is None:
            return NONE
        return wrap(vm, read(real, name), Source("attr", obj.source, name))
    if name in STATE or name == "__dict__":
        raise Break("unsupported attribute", name=name, type="Tensor")
    if name == "shape":
        return vm.call_method(obj, "size")
    if name == "nbytes":
        return vm.binary("*", vm.call_method(obj, "numel"), Known(obj.fake.itemsize))
    value = getattr(obj.fake, name)
    if isinstance(value, torch.Tensor):
        return vm.emit("call_function", getattr, [obj, Known(name)], {})
    if type(value) in CONSTANTS:
        if name in FOLLOWING or obj.source is None:
            return Known(value)
        if read(vm.input_objects[obj.node], name) == value:
            vm.guard(Source("attr", obj.source, name), "EQUALS_MATCH", value)
            return Known(value)
    raise Break("unsupported attribute", name=name, type="Tensor")


@models(torch.Tensor, "__setattr__")
def tensor_setattr(vm: Machine, obj: TensorNode, name: str, value: Value) -> None:
    """Store what the user sets on a tensor, to be replayed after the graph; ABSENT deletes."""
    if vm.watching and value is not ABSENT and overrides.write(vm, obj, name, value):
        return
    if value is ABSENT and name == "grad":
        value = NONE  # that is all that `del` does
    row = model.MODELS.get((BASE, "=" + name))
    if row is not None and value is not ABSENT:
        row(vm, obj, value)
        return
    own = wrappers.wraps(obj) and wrappers.holds(obj, name)
    if own or lookup.guarded_lookup(vm, obj.pytype, name) is not MISSING:
        raise Break("unsupported attribute write", name=name, type="Tensor")
    if value is ABSENT and not holds(vm, obj, name):
        raise attribute_writes.not_there_to_delete(vm, obj.pytype, name)
    vm.store_on(obj, name, value)


def holds(vm: Machine, obj: TensorNode, name: str) -> bool:
    """Return whether a tensor's own `__dict__` has an attribute."""
    written = vm.effects.written(obj.fake, name)
    if written is not None:
        return written is not ABSENT
    vm.refuse_copies(obj)
    return namespaces.read_tensor(vm, obj, name) is not None


def metadata(name: str) -> model.Model:
    def row(vm: Machine, self: Value, /, *args: Value, **kwargs: Value) -> Value:
        if self.__class__ is not TensorNode:
            return vm.emit("call_method", name, [self, *args], kwargs)
        real = [vm.concretely(arg) if arg.__class__ is not TensorNode else arg.fake for arg in args]
        try:
            answer = getattr(self.fake, name)(*real, **{k: vm.concretely(v) for k, v in kwargs.items()})
        except (TypeError, IndexError, RuntimeError) as error:
            if vm.builder.numbers.is_about_values(error):
                raise Break("data-dependent value", name=name) from None
            raise vm.refused(error) from None
        if symbols.has_symbols(answer):
            return symbols.measured(vm, self, name, list(args), answer)
        return lift(vm, answer)

    return row


def place(name: str) -> model.Model:
    """Return the model of a method that says where a tensor lies, which no guard compares: inputs may be views."""
    ask = metadata(name)

    def row(vm: Machine, self: Value) -> Value:
        vm.refuse_copies(self)
        for value in vm.inputs:
            if value.source is not None:
                fact = read(vm.input_objects[value.node], name)()
                vm.guard(Source("method", value.source, name), "EQUALS_MATCH", fact)
        return ask(vm, self)

    return row


def values(name: str) -> model.Model:
    """Return the model of a method that reads a tensor's values: a constant, or perhaps a number of the graph."""
    convert = NUMBERS_READ.get(name)

    def row(vm: Machine, self: Value, /, *args: Value, **kwargs: Value) -> Value:
        if convert is not None and self.__class__ is TensorNode and not args and not kwargs:
            known = (
                number_conditions.decide(vm, self) if name == "__bool__" and policy.in_optimizer(vm.frames) else None
            )
            if known is not None:
                return boolean(known)
            real = tensor_constants.evaluate(vm, self)
            if real is not None:
                return vm.run_pure(getattr(real, name), [], {})
            if name == "item" and self.fake.is_floating_point() and policy.in_optimizer(vm.frames):
                return symbols.opaque(vm, torch.Tensor.item, [self], float)  # see number_conditions.py
            if vm.builder.numbers.scalars:
                return convert(vm, vm.emit("call_method", "tolist" if name == "tolist" else "item", [self], {}))
        if name == "__bool__":
            raise Break("data-dependent branch", type="TensorVariable")
        raise Break("data-dependent value", name=name.strip("_"))

    return row


def to_index(vm: Machine, number: Value) -> Value:
    """Model `operator.index`, which takes integers only."""
    if number.pytype not in (int, bool):
        raise Break("data-dependent value", name="index")
    return symbols.to_int(vm, number)


NUMBERS_READ: dict[str, Any] = {
    "item": lambda vm, number: number,
    "tolist": lambda vm, numbers: numbers,
    "__bool__": symbols.to_bool,
    "__int__": symbols.to_int,
    "__float__": symbols.to_float,
    "__index__": to_index,
}


def outside(name: str) -> model.Model:
    def row(vm: Machine, self: Value, /, *args: Value, **kwargs: Value) -> Value:
        vm.refuse_copies(self, *args)
        raise Break("unsupported method", name=name, type="Tensor")

    return row


for _names, _make in ((METADATA, metadata), (PLACE, place), (VALUES, values), (OUTSIDE, outside)):
    for _name in _names:
        models(BASE, _name)(_make(_name))


@models(BASE, "new")
def new_like(vm: Machine, self: TensorNode, /, *args: Value, **kwargs: Value) -> Value:
    """Model `tensor.new`.

    A torch.Size means a tensor of that size; in a graph sizes are tuples, which mean contents.
    """
    if len(args) == 1 and args[0].pytype is torch.Size and not kwargs:
        return vm.call_method(self, "new_empty", args[0])
    return vm.emit("call_method", "new", [self, *args], kwargs)


@models(BASE, "__len__")
def tensor_len(vm: Machine, self: TensorNode) -> Value:
    if self.fake.dim() == 0:
        raise vm.error(TypeError, "len() of a 0-d tensor")
    return vm.call_method(self, "size", Known(0))


@models(BASE, "__iter__")
def tensor_iter(vm: Machine, self: Value) -> Value:
    return vm.iterator(self)


@models(BASE, "__hash__")
def tensor_hash(vm: Machine, self: Value) -> Value:
    raise Break("unsupported method", name="__hash__", type="Tensor")
