"""copy.copy of tensors, which shares memory, and copy.deepcopy: memory of its own for all that the memory holds."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from torchdynamo.capture.vm.model import function, polyfill
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Source
from torchdynamo.core.value import NONE, Known, TensorNode, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

LEAVES_ONLY = (
    "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.  "
    "If you were attempting to deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage, "
    "see https://github.com/pytorch/pytorch/pull/103001"
)


@function(torch.Tensor.__reduce_ex__)
def reduce_ex(vm: Machine, self: Value, proto: Value) -> Value:
    """What copy.copy makes again: the same memory, without a history."""
    if self.__class__ is not TensorNode or self.pytype is not torch.Tensor or self.fake.requires_grad:
        raise Break("unsupported method", name="__reduce_ex__", type=self.pytype.__name__)
    real = vm.input_objects.get(self.node)
    if vm.effects.wrote_in(self.fake) or getattr(real, "__dict__", None):
        raise Break("unsupported method", name="__reduce_ex__", type="Tensor")
    if real is not None and self.source is not None:
        vm.guard(Source("dict", self.source), "DICT_KEYS", ())
    return vm.make_tuple([Known(same_memory), vm.make_tuple([self])])


def same_memory(tensor):
    return tensor.data


@polyfill(torch.Tensor.__deepcopy__)
def deepcopy(self, memo):
    """A copy of its memory under the same shape; what was copied before is not copied again."""
    if not self.is_leaf:
        raise RuntimeError(LEAVES_ONLY)
    if id(self) in memo:
        return memo[id(self)]
    look_at_memory(self, memo)
    with torch.no_grad():
        made = self.clone()
        if self.requires_grad:
            made.requires_grad_()
        if self.grad is not None:
            made.grad = self.grad.__deepcopy__(memo)
    memo[id(self)] = made
    return made


def look_at_memory(tensor, memo):
    """Followed as `memory`, below."""


@function(look_at_memory)
def memory(vm: Machine, tensor: Value, memo: Value) -> Value:
    """A clone is the same where the tensor has its memory for itself, and lies in it without gaps."""
    if tensor.__class__ is not TensorNode or tensor.pytype is not torch.Tensor or vm.effects.wrote_in(tensor.fake):
        raise Break("unsupported method", name="__deepcopy__", type=tensor.pytype.__name__)
    fake = tensor.fake
    dense = torch.empty_like(fake).stride() == fake.stride() and not fake.is_conj() and not fake.is_neg()
    copied = vm.copied.setdefault(vm.as_object(memo).ref, {})
    real = vm.input_objects.get(tensor.node)
    where = (fake if real is None else real).untyped_storage()._cdata
    if not dense or fake.storage_offset() != 0 or where in copied or getattr(real, "__dict__", None):
        raise Break("unsupported method", name="__deepcopy__", type="Tensor")
    if real is not None and tensor.source is not None:
        vm.guard(Source("dict", tensor.source), "DICT_KEYS", ())
        vm.guard(Source("method", tensor.source, "storage_offset"), "EQUALS_MATCH", 0)
        for source in filter(None, copied.values()):
            vm.guard(source, "NO_OVERLAP", ((source,), (tensor.source,)))
    copied[where] = tensor.source
    return NONE
