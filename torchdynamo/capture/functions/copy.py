"""copy.copy and copy.deepcopy are followed as they are written. Here is how objects made in C are taken apart."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import collections
import copyreg
import enum
import types

import torch

from torchdynamo.capture.torch import histories
from torchdynamo.capture.types import exceptions
from torchdynamo.capture.vm import c_fields
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.lookup import guarded_lookup
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import find_slot, function, is_open, models, polyfill
from torchdynamo.capture.vm.namespaces import has_dict
from torchdynamo.capture.vm.scalar_subclasses import SCALARS, plain_value
from torchdynamo.capture.vm.wrap import CONSTANTS
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Source
from torchdynamo.core.value import NONE, Known, Object, TensorNode, Value

OWN_COPY = Known("")  # a text says: it is its own copy


@models(object, "__reduce_ex__")
def reduce_ex(vm: Machine, self: Value, protocol: Value) -> Value:
    """Return the parts of an object for copying: constructor, its arguments, state, items of a list, of a dict."""
    cls = self.pytype
    if self.__class__ is Known and (cls in CONSTANTS or cls is frozenset or issubclass(cls, enum.Enum)):
        return OWN_COPY
    told = find_slot(cls, "__reduce__")
    if self.__class__ is not Object or vm.concretely(protocol) < 2:
        raise Break("unsupported method", name="__reduce_ex__", type=cls.__name__)
    if told[0] == "model" or type(guarded_lookup(vm, cls, "__reduce__")) is types.FunctionType:
        return vm.special(self, "__reduce__")
    bases = {base for base in cls.__mro__ if not is_open(base)}
    if told[1][0] is not object or not bases <= {*SCALARS, object, list, dict, tuple}:
        raise Break("unsupported method", name="__reduce_ex__", type=cls.__name__)
    items = vm.iterator(self) if issubclass(cls, list) else NONE
    pairs = vm.iterator(vm.call_method(self, "items")) if issubclass(cls, dict) else NONE
    made = vm.make_tuple([Known(cls), *vm.iterate(new_arguments(vm, self))])
    return vm.make_tuple([Known(copyreg.__newobj__), made, state(vm, self), items, pairs])  # type: ignore[attr-defined]


def new_arguments(vm: Machine, self: Object) -> Value:
    """Return the arguments with which a copy calls `__new__`."""
    cls = self.pytype
    if guarded_lookup(vm, cls, "__getnewargs_ex__") is not MISSING:
        raise Break("unsupported method", name="__reduce_ex__", type=cls.__name__)
    if type(guarded_lookup(vm, cls, "__getnewargs__")) is types.FunctionType:
        return vm.special(self, "__getnewargs__")
    plain = plain_value(vm, self)
    if plain is not None:
        return vm.make_tuple([plain])
    return vm.make_tuple([vm.make_tuple(list(vm.iterate(self)))]) if issubclass(cls, tuple) else Known(())


def state(vm: Machine, self: Object) -> Value:
    """Return the state of an object: its `__dict__`, or None; with slots, a pair of that and a dict of those."""
    if type(guarded_lookup(vm, self.pytype, "__getstate__")) is types.FunctionType:
        return vm.special(self, "__getstate__")
    own_slots, kept = slots(self.pytype), self.pytype.__dict__.get("__slotnames__")
    if kept is not None and not (type(kept) is list and [*map(type, kept)] == [str] * len(kept) and kept == own_slots):
        raise Break("unsupported method", name="__reduce_ex__", type=self.pytype.__name__)  # of the class's own making
    own: Value = vm.instance_dict(self) if has_dict(vm.entity(self)) else NONE
    if own is not NONE and not vm.truth(own):
        own = NONE
    held: list[tuple[Value, Value]] = []
    for name in own_slots:
        value = vm.has_attribute(self, name)
        if value is not None:
            held.append((Known(name), value))
    return vm.make_tuple([own, vm.make_dict(held)]) if held else own


def slots(cls: type) -> list[str]:
    """Return the names of all slots of a class and its bases."""
    found: list[str] = []
    for base in cls.__mro__:
        given = base.__dict__.get("__slots__", ())
        for name in (given,) if isinstance(given, str) else given:
            private = name.startswith("__") and not name.endswith("__")
            found.append(f"_{base.__name__.lstrip('_')}{name}" if private else name)
    return [name for name in found if name not in ("__dict__", "__weakref__")]


def require_exact(vm: Machine, self: Object, cls: type) -> None:
    """Raise Break unless the object is of exactly this class."""
    if self.pytype is not cls:
        raise Break("unsupported method", name="__reduce_ex__", type=self.pytype.__name__)


@models(set, "__reduce__")
def reduce_set(vm: Machine, self: Object) -> Value:
    require_exact(vm, self, set)
    return vm.make_tuple([Known(set), vm.make_tuple([vm.new(list, list(vm.iterate(self)))]), NONE])


@models(collections.OrderedDict, "__reduce__")
@models(collections.defaultdict, "__reduce__")
def reduce_dict(vm: Machine, self: Object) -> Value:
    require_exact(vm, self, collections.defaultdict if issubclass(self.pytype, collections.defaultdict) else ORDERED)
    plain = self.pytype is collections.defaultdict
    given = [c_fields.read(vm, self, collections.defaultdict, "default_factory")] if plain else []
    items = vm.iterator(vm.call_method(self, "items"))
    held = state(vm, self) if issubclass(self.pytype, ORDERED) else NONE
    return vm.make_tuple([Known(self.pytype), vm.make_tuple(given), held, NONE, items])


ORDERED = collections.OrderedDict


@models(collections.deque, "__reduce__")
def reduce_deque(vm: Machine, self: Object) -> Value:
    require_exact(vm, self, collections.deque)
    most = vm.getattr(self, "maxlen")
    given = [] if most is NONE or vm.identical(most, NONE) else [Known(()), most]
    return vm.make_tuple([Known(collections.deque), vm.make_tuple(given), NONE, vm.iterator(self)])


@models(BaseException, "__reduce__")
def reduce_exception(vm: Machine, self: Object) -> Value:
    found = guarded_lookup(vm, self.pytype, "__reduce__")
    if found is not BaseException.__dict__["__reduce__"]:  # OSError, ImportError
        raise Break("unsupported method", name="__reduce__", type=self.pytype.__name__)
    own: Value = vm.instance_dict(self)
    args = vm.make_tuple(exceptions.args_of(vm, self))
    return vm.make_tuple([Known(self.pytype), args, *([own] if vm.truth(own) else [])])


@models(BaseException, "__setstate__")
def set_exception_state(vm: Machine, self: Object, given: Value) -> Value:
    for key, value in vm.dict_items(given):
        vm.setattr(self, vm.known(key, "name"), value)
    return NONE


# -- tensors ----------------------------------------------------------------------------------------------------------
LEAVES_ONLY = (
    "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.  "
    "If you were attempting to deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage, "
    "see https://github.com/pytorch/pytorch/pull/103001"
)


@function(torch.Tensor.__reduce_ex__)
def reduce_tensor(vm: Machine, self: Value, proto: Value) -> Value:
    """Return the parts of a tensor for copy.copy, which shares the memory and has no history."""
    if self.__class__ is not TensorNode or self.pytype is not torch.Tensor or self.fake.requires_grad:
        raise Break("unsupported method", name="__reduce_ex__", type=self.pytype.__name__)
    histories.refuse_unknown(vm, self, "__reduce_ex__")
    real = vm.input_objects.get(self.node)
    if vm.effects.wrote_in(self.fake) or getattr(real, "__dict__", None):
        raise Break("unsupported method", name="__reduce_ex__", type="Tensor")
    if real is not None and self.source is not None:
        vm.guard(Source("dict", self.source), "DICT_KEYS", ())
    return vm.make_tuple([Known(shallow_copy), vm.make_tuple([self])])


def shallow_copy(tensor):
    return tensor.data


@polyfill(torch.Tensor.__deepcopy__)
def deepcopy(self, memo):
    """Copy the memory of a tensor under the same shape, once for each memo."""
    if not self.is_leaf:
        raise RuntimeError(LEAVES_ONLY)
    if id(self) in memo:
        return memo[id(self)]
    check_copy(self, memo)
    with torch.no_grad():
        made = self.clone()
        if self.requires_grad:
            made.requires_grad_()
        if self.grad is not None:
            made.grad = self.grad.__deepcopy__(memo)
    memo[id(self)] = made
    return made


def check_copy(tensor, memo):
    """Check that a clone is a deep copy of the tensor; modelled by `memory`."""


@function(check_copy)
def check_clone(vm: Machine, tensor: Value, memo: Value) -> Value:
    """Raise Break unless a clone is a deep copy: the tensor has its memory for itself, and fills it without gaps."""
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
