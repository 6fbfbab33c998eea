"""SDPAParams: what a kernel of attention is chosen by. Its fields are read-only: they are what it was made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.backends.cuda import SDPAParams

from torchdynamo.capture.vm.emitted_calls import push_call
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Emitter, enters, models, rebuilds
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Source
from torchdynamo.core.value import NONE, Known, Object, TensorNode, Value

FIELDS = tuple(name for name, member in vars(SDPAParams).items() if isinstance(member, property))
TENSORS = 4  # of which the last may be None


@models(SDPAParams, "__new__")
def new(vm: Machine, cls: Known, *args: Value) -> Value:
    if cls.obj is not SDPAParams:
        raise Break("unsupported type", type=cls.obj.__name__)
    return vm.new(SDPAParams)


@models(SDPAParams, "__init__")
def init(vm: Machine, self: Object, *args: Value) -> Value:
    """Keep the fields, of exactly the types that are declared. Others are left to C, which converts or refuses them."""
    numbers = [each.pytype for each in args[TENSORS:]]
    tensors = [each.__class__ is TensorNode for each in args[:TENSORS]]
    masked = tensors == [True] * TENSORS or (tensors == [True] * (TENSORS - 1) + [False] and is_none(args[TENSORS - 1]))
    if not masked or numbers != [float, bool, bool]:
        raise Break("unknown call", name="SDPAParams")
    vm.entity(self).items = list(args)
    return NONE


def is_none(value: Value) -> bool:
    return value.pytype is type(None)


@enters(SDPAParams)
def enter(vm: Machine, obj: Any, source: Source) -> Value:
    vm.guard(source, "TYPE_MATCH", type(obj))
    return vm.heap.adopt(obj, source)


def field(at: int, name: str) -> Callable[[Machine, Object], Value]:
    def row(vm: Machine, self: Object) -> Value:
        entity = vm.entity(self)
        if entity.items is not None:
            value: Value = entity.items[at]
            return value
        assert entity.source is not None
        return vm.wrap(getattr(entity.real, name), Source("attr", entity.source, name))

    return row


for _at, _name in enumerate(FIELDS):
    models(SDPAParams, f".{_name}")(field(_at, _name))


@rebuilds(SDPAParams)
def rebuild(emit: Emitter, entity: Entity) -> None:
    push_call(emit, SDPAParams, *entity.items)
