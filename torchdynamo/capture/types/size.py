"""torch.Size: a tuple of sizes, which what is made of it stays."""

from __future__ import annotations

import torch

from torchdynamo.capture.torch.symbols import is_number, is_symbol
from torchdynamo.capture.types import sequence
from torchdynamo.capture.vm.iteration import collect
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import models
from torchdynamo.core.value import Known, Value


def make(vm: Machine, items: list[Value]) -> Value:
    """Make a torch.Size of these numbers."""
    if all(item.__class__ is Known for item in items):
        return Known(torch.Size([item.obj for item in items]))  # type: ignore[union-attr]
    return vm.new(torch.Size, items)


@models(torch.Size, "__new__")
def new(vm: Machine, cls: Known, items: Value | None = None) -> Value:
    sizes = [] if items is None else collect(vm, items, tuple)
    if any(map(is_symbol, sizes)) and all(is_number(size) and size.pytype is int for size in sizes):
        return make(vm, sizes)
    return vm.run_pure(torch.Size, [vm.make_tuple(sizes)], {})


@models(torch.Size, "__getitem__")
def getitem(vm: Machine, self: Value, key: Value) -> Value:
    if key.pytype is not slice:
        return sequence.getitem(vm, self, key)
    return make(vm, sequence.items_of(vm, self)[vm.concretely(key)])


@models(torch.Size, "__add__")
def concatenate(vm: Machine, self: Value, other: Value) -> Value:
    if not issubclass(other.pytype, tuple):
        return Known(NotImplemented)
    return make(vm, [*vm.iterate(self), *vm.iterate(other)])


@models(torch.Size, "__radd__")
def concatenate_after(vm: Machine, self: Value, other: Value) -> Value:
    return concatenate(vm, other, self)


@models(torch.Size, "__mul__", "__rmul__")
def repeat(vm: Machine, self: Value, count: Value) -> Value:
    if not is_number(count):
        return Known(NotImplemented)
    return make(vm, list(vm.iterate(self)) * vm.known(count, "count"))


@models(torch.Size, "numel")
def numel(vm: Machine, self: Value) -> Value:
    total: Value = Known(1)
    for item in vm.iterate(self):
        total = vm.binary("*", total, item)
    return total
