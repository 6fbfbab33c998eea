"""Wrapper subclasses of Tensor: those with a `__torch_dispatch__` that say, by `__tensor_flatten__`, what is inside.

A graph holds such a tensor as one value. Its fake tensor is an instance of the same class, around fake tensors;
operators on it run the class's `__torch_dispatch__`. AOTAutograd takes it apart; what a graph writes to are the tensors
inside.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from torchdynamo.core.serials import Serials
from torchdynamo.graph import torch_compat

PLAIN: tuple[type, ...] = (torch.Tensor, torch.nn.Parameter)
CONSTANTS = frozenset(
    {
        *(bool, int, float, complex, str, bytes, type(None), type(...)),
        *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size),
    }
)
BY_IDENTITY = (type, torch.Tensor, types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.ModuleType)
DEEPEST = 16
MOST_FIXED = 4096


def is_wrapper(value: Any) -> bool:
    """Return whether a value is a tensor of a wrapper subclass."""
    return isinstance(value, torch.Tensor) and type(value) not in PLAIN and is_traceable_wrapper_subclass(value)


def dispatches(cls: type) -> bool:
    """Return whether a class of tensors has a `__torch_dispatch__` of its own."""
    return getattr(cls, "__torch_dispatch__", None) is not torch.Tensor.__torch_dispatch__


def parts(wrapper: Any) -> list[tuple[str, Any]]:
    """Return the names of what is inside a wrapper, with the tensors, and objects that are none, under them."""
    return [(name, getattr(wrapper, name)) for name in wrapper.__tensor_flatten__()[0]]


@functools.cache
def getter(name: str) -> Callable[[Any], Any]:
    """Return the function that reads an attribute, as a step of a source."""

    def read(obj: Any) -> Any:
        return getattr(obj, name)

    read.__name__ = name
    return read


GETTERS = getter("").__code__
"""The code of all of these."""


def leaves(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the tensors that have the numbers: those inside of a wrapper, down to the last; else the tensor itself."""
    if not is_wrapper(tensor):
        yield tensor
        return
    for _, part in parts(tensor):
        if isinstance(part, torch.Tensor):
            yield from leaves(part)


def is_fake(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a fake tensor, or a wrapper of nothing but fake tensors."""
    return all(type(each) is torch_compat.fake_tensor_type() for each in leaves(tensor))


# -- contexts ---------------------------------------------------------------------------------------------------------
_serials = Serials()
_by_identity: dict[int, tuple[Any, int]] = {}  # id -> weak reference, and number
_by_value: dict[type, dict[Any, int]] = {}  # class -> value, and number
_fixed: dict[tuple[int, int], tuple[Any, Any]] = {}  # id and depth -> object that cannot change, and its constant


def context_of(wrapper: Any) -> tuple[Any, ...]:
    """Return the class and the context of a wrapper, and of those inside, as constants that are equal if these are.

    Objects become numbers: one for each identity, or for each value if they are hashable by value; others are taken
    apart. Two contexts that differ never give the same.
    """
    names, context = wrapper.__tensor_flatten__()
    told = tuple(told_of(part) for part in (getattr(wrapper, name) for name in names))
    if type(context) is tuple:  # made for this call, of what is there for longer
        return tuple(names), told, ("tuple", *(frozen(item, DEEPEST - 1) for item in context))
    return tuple(names), told, frozen(context, DEEPEST)


def told_of(part: Any) -> Any:
    """Return the context of a part of a wrapper; None for a plain tensor."""
    if type(part) in PLAIN:
        return None
    if not isinstance(part, torch.Tensor):
        return frozen(part, DEEPEST)
    return context_of(part) if is_wrapper(part) else None


def frozen(value: Any, depth: int) -> Any:
    """Return a value as a constant: see `context_of`. That of placements and meshes, met in each call, is made once."""
    kind = type(value)
    if kind in CONSTANTS:
        return value
    known = _fixed.get((id(value), depth))
    if known is not None and known[0] is value:
        return known[1]
    numbers = _by_value.get(kind) if depth > 0 else None
    if numbers is not None and is_value(value) and (number := numbers.get(value)) is not None:
        return numbered(kind), number
    constant = taken_apart(value, depth)
    if is_fixed(value):
        if len(_fixed) >= MOST_FIXED:
            _fixed.clear()
        _fixed[id(value), depth] = value, constant
    return constant


def is_fixed(value: Any) -> bool:
    """Return whether an object cannot change: a constant, a placement, a mesh and its like, or a tuple of such."""
    kind = type(value)
    if issubclass(kind, tuple):
        return kind in CONSTANTS or all(is_fixed(item) for item in tuple.__iter__(value))
    if kind in CONSTANTS:
        return True
    written = getattr(kind, "__dataclass_params__", None)
    changes = written is not None and not written.frozen
    return (
        kind.__module__.startswith(("torch.distributed.", "torch._C._distributed")) and not changes and is_value(value)
    )


def taken_apart(value: Any, depth: int) -> Any:
    """Return what is no constant as one: see `context_of`."""
    kind = type(value)
    if depth > 0:
        if kind is tuple:
            return kind.__name__, *(frozen(item, depth - 1) for item in value)
        if isinstance(value, dict):
            items = ((frozen(key, depth - 1), frozen(item, depth - 1)) for key, item in dict.items(value))
            return numbered(kind), attributes(value, depth), *items
        if isinstance(value, list):
            items = (frozen(item, depth - 1) for item in list.__iter__(value))
            return numbered(kind), attributes(value, depth), *items
        if kind in (set, frozenset):
            return kind.__name__, *sorted((frozen(item, depth - 1) for item in value), key=repr)
        if isinstance(value, tuple):
            return numbered(kind), *(frozen(item, depth - 1) for item in tuple.__iter__(value))
        if isinstance(value, torch.SymInt):
            return "symint", str(value)
        if is_value(value):
            return numbered(kind), _by_value.setdefault(kind, {}).setdefault(value, _serials.take())
        if not isinstance(value, BY_IDENTITY) and (own := attributes(value, depth)):
            return numbered(kind), *own
    return "object", numbered(value)


def attributes(value: Any, depth: int) -> tuple[Any, ...]:
    """Return the attributes of an object as constants, those in its dict and those in slots."""
    own = getattr(value, "__dict__", None)
    found = dict(own) if type(own) is dict else {}
    for cls in type(value).__mro__:
        slots = (name for name, each in vars(cls).items() if type(each) is types.MemberDescriptorType)
        found.update((name, getattr(value, name)) for name in slots if hasattr(value, name))
    return tuple((name, frozen(item, depth - 1)) for name, item in found.items())


def told(value: Any) -> Any:
    """Return a value as a constant: see `context_of`."""
    return frozen(value, DEEPEST)


def is_value(obj: Any) -> bool:
    """Return whether an object is known by its value: it says what it equals, and has a hash, so it does not change."""
    if not is_value_class(type(obj)):
        return False
    try:
        hash(obj)
    except TypeError:  # it holds something that changes
        return False
    return True


def is_value_class(cls: type) -> bool:
    """Return whether a class says what its instances equal, and that they do not change."""
    same: Any = cls.__eq__
    return same is not object.__eq__ and cls.__hash__ is not None and not issubclass(cls, torch.Tensor)


def numbered(obj: Any) -> int:
    """Return the number of an object, which no other object has had or will have."""
    known = _by_identity.get(id(obj))
    if known is not None and known[0]() is obj:
        return known[1]
    number, place = _serials.take(), id(obj)
    try:
        held: Any = weakref.ref(obj, lambda _: _by_identity.pop(place, None))
    except TypeError:  # held for good, so that its address stays its own
        held = lambda: obj  # noqa: E731
    _by_identity[place] = held, number
    return number


def is_told_by_attributes(wrapper: Any) -> bool:
    """Return whether a wrapper of torch's holds only tensors and constants: guards on these tell its context.

    Other classes may take it from elsewhere: from an attribute of the class, a slot, a global.
    """
    if type(wrapper).__module__.partition(".")[0] != "torch":
        return False
    own = getattr(wrapper, "__dict__", {})
    return all(name in own for name, _ in parts(wrapper)) and all(
        type(value) in CONSTANTS or isinstance(value, torch.Tensor) for value in own.values()
    )
