"""Keys of dicts and items of sets: what stands for one, and which may stand in a path."""

from __future__ import annotations

import collections
import enum
import types
from typing import Any

from torchdynamo.capture.types import identity
from torchdynamo.capture.types.weakrefs import is_reference, real_key
from torchdynamo.capture.vm.keys import IDENTITY_HASHES, Keyed, Ref, hashed_by_code
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import MODELS, is_asked_by_c
from torchdynamo.capture.vm.wrap import CONSTANTS, told_apart
from torchdynamo.core.signals import Break, Raised
from torchdynamo.core.source import Pinned, Source
from torchdynamo.core.value import ABSENT, Known, Object, Symbol, TensorNode, Value

BY_IDENTITY = (
    *(types.FunctionType, types.ModuleType, types.BuiltinFunctionType),
    *(types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType),
)

PLAIN_EQUALITY: Any = object.__eq__


def entry_key(vm: Machine, key: Any) -> tuple[Any, Value | None]:
    """Return what stands for a key that existed, and the key as a value, None if it cannot stand in a path."""
    if is_reference(key):
        hkey = real_key(key)
        if hkey is not None:
            return hkey, vm.heap.by_id.get(id(key)) or vm.heap.adopt(key, Source("pinned", None, Pinned(key)))
    elif sourceable(key):
        if identity.may_be_id(key):
            identity.note_address_key(vm)
        return key, Known(key)
    return Ref(id(key)), None


def ordered_keys(real: Any) -> tuple[Any, ...]:
    """Return a dict's keys in order: an OrderedDict keeps an order of its own."""
    if not isinstance(real, collections.OrderedDict):
        return tuple(dict.keys(real))
    try:
        keys = tuple(collections.OrderedDict.keys(real))
    except KeyError:
        keys = ()
    if len(keys) != dict.__len__(real):  # dict's own methods have changed it past its order
        raise Break("unsupported type", type=type(real).__name__)
    return keys


def sourceable(key: Any) -> bool:
    """Return whether a key may stand in a path: constants may, and what is its own identity."""
    if type(key) is tuple:
        return all(sourceable(item) for item in key)
    if issubclass(type(key), type):
        return told_apart(key)
    if isinstance(key, enum.Enum):
        return not is_asked_by_c(type(key))
    if type(key) is types.MethodWrapperType:  # `torch.Tensor.shape.__get__`: equal to each other by what it is of
        return type(key.__self__) is types.GetSetDescriptorType
    return type(key) in CONSTANTS or issubclass(type(key), BY_IDENTITY) or is_reference(key)


def as_key(key: Value, hkey: Any) -> Any:
    """Return the constant that a key is, ABSENT if it is none.

    Numbers, ids among them, have been settled when they were hashed, and so has what is in a tuple, if nothing stands
    for it.
    """
    settled = key.__class__ is Symbol or type(hkey) in (int, tuple)
    return hkey if settled else getattr(key, "obj", ABSENT)


def source_of_key(vm: Machine, key: Value) -> Source | None:
    """Return where a key that only identity tells apart (a tensor, a module) was at entry; None for other keys."""
    if isinstance(key, TensorNode):
        return key.source
    if key.__class__ is Object and key.pytype.__hash__ in IDENTITY_HASHES and key.pytype.__eq__ is PLAIN_EQUALITY:
        return vm.entity(key).source
    return None


def by_code(hkey: Any) -> bool:
    """Return whether hashing the key runs code of the user's, which may show."""
    if hkey.__class__ is tuple:
        return any(by_code(part) for part in hkey)
    return hkey.__class__ is Keyed and hashed_by_code(hkey.vm, hkey.value)


def known_key(found: list[Any]) -> Value:
    key: Value | None = found[0]
    if key is None:
        raise Break("unsupported key", type="object")
    return key


def key_error(vm: Machine, key: Value) -> Raised:
    """Return the KeyError of a missing key, which holds the key itself."""
    return Raised(MODELS[BaseException, "__new__"](vm, Known(KeyError), key))
