"""Compare two worlds, eager and compiled: everything that a program can see of objects, as text and numbers.

A picture is taken of the objects of one world, and holds none of them; equal pictures are worlds that nobody can tell
apart. Objects get numbers in the order in which they are met, and storages too, so that what is one object, or shares
memory, in one world does so in the other.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

PLAIN = (bool, int, float, complex, str, bytes, type(None), range, slice, type(...), types.CodeType)
PLAIN += (torch.dtype, torch.device, torch.layout, torch.memory_format)
SHOWN = 100  # elements of a tensor
NAMED = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType)


class Picture:
    """What can be seen of the objects given to `of`: numbers go on from call to call."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.storages: dict[int, int] = {}
        self.kept: list[Any] = []  # so that no id is given twice

    def of(self, obj: Any) -> Any:
        """Return what is seen of an object and of all that it leads to. Equal constants are one and the same."""
        if is_constant(obj):
            return (type(obj).__name__, repr(obj))
        if type(obj) in NAMED or type in type(obj).__mro__:
            return (type(obj).__name__, obj.__name__, getattr(obj, "__code__", None))
        known = self.numbers.get(id(obj))
        if known is not None:
            return f"#{known}"
        self.kept.append(obj)
        number = self.numbers[id(obj)] = len(self.numbers)
        return (f"#{number}", type(obj).__qualname__, *self.inside(obj))

    def inside(self, obj: Any) -> Iterator[Any]:
        """Walk through the parts of an object."""
        kind = next((cls for cls in type(obj).__mro__ if cls in PARTS), None)
        if kind is not None:
            yield from PARTS[kind](self, obj)
        elif hasattr(obj, "__len__") and hasattr(obj, "__iter__"):
            yield [self.of(item) for item in obj]
        yield [(name, self.of(value)) for name, value in attributes(obj).items()]

    def tensor(self, obj: torch.Tensor) -> Iterator[Any]:
        """Walk through a tensor: contents to the bit, and all that operators and autograd go by."""
        yield (obj.dtype, obj.device, obj.layout, obj.requires_grad, is_leaf(obj))
        if obj.layout is not torch.strided or obj.is_nested:
            yield str(obj)
            return
        storage = self.storages.setdefault(obj.untyped_storage()._cdata, len(self.storages))
        yield (tuple(obj.shape), obj.storage_offset(), f"storage {storage}", obj.is_conj(), obj.is_neg())
        yield from self.exact(obj)
        yield None if obj.is_meta else bits(obj)
        if is_leaf(obj) is True:
            yield self.of(obj.grad)

    def exact(self, obj: torch.Tensor) -> Iterator[Any]:
        """Walk through what AOTAutograd's graphs may make otherwise, as `docs/limits.md` says."""
        yield (obj.stride(), obj.is_inference())


# What is inside of an object of a class, or of one that inherits from it. By the order of its bases, with no call of
# `isinstance`, which a program may have replaced.
PARTS: dict[type, Callable[[Picture, Any], Iterable[Any]]] = {
    torch.Tensor: Picture.tensor,
    torch.Generator: lambda see, obj: [bits(obj.get_state())],
    types.MethodType: lambda see, obj: [see.of(obj.__func__), see.of(obj.__self__)],
    BaseException: lambda see, obj: [str(obj), see.of(list(obj.args))],
    dict: lambda see, obj: [[(see.of(key), see.of(value)) for key, value in obj.items()]],
    set: lambda see, obj: [sorted(repr(see.of(item)) for item in obj)],
    frozenset: lambda see, obj: [sorted(repr(see.of(item)) for item in obj)],
}


def is_constant(obj: Any) -> bool:
    """Return whether a program sees an object's type and value alone."""
    return type(obj) in PLAIN or (type(obj) is tuple and all(map(is_constant, obj)))


def attributes(obj: Any) -> dict[str, Any]:
    """Return what is in the slots and in the dictionary of an object, without the notes of compilers on tensors."""
    slots = [name for base in type(obj).__mro__ for name in getattr(base, "__slots__", ()) if name != "__dict__"]
    own = {name: getattr(obj, name) for name in slots if type(slots) is list and hasattr(obj, name)}
    own |= getattr(obj, "__dict__", {})
    return {name: value for name, value in own.items() if not name.startswith("_dynamo_")}


def is_leaf(tensor: torch.Tensor) -> bool | str:
    """Return whether autograd has not computed a tensor. A view that autograd has given up on does not say."""
    try:
        return tensor.is_leaf
    except RuntimeError:
        return "given up"


def bits(tensor: torch.Tensor) -> bytes | list[str]:
    """Return the elements of a tensor: numbers that show what they are, as bytes where they are many or may be NaN."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    if any(getattr(plain, "names", ())):  # in torch before 2.13; few operators take them
        plain = plain.rename(None)
    values: list[Any] = plain.flatten().tolist()
    if len(values) <= SHOWN and all(value == value for value in values):
        return [repr(value) for value in values]
    flat = plain.contiguous().flatten().clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8).numpy(force=True).tobytes()


def assert_alike(expected: Any, actual: Any, where: str = "", taking: type[Picture] = Picture) -> None:
    """Fail where the objects of two worlds differ, and say where that is first."""
    wanted, found = taking().of(expected), taking().of(actual)
    assert wanted == found, difference(wanted, found, where)


def difference(wanted: Any, found: Any, where: str = "") -> str:
    """Return the first place where two pictures differ, with what is there in each."""
    if type(wanted) is type(found) in (list, tuple) and len(wanted) == len(found):
        at = next(at for at, (one, other) in enumerate(zip(wanted, found, strict=True)) if one != other)
        return difference(wanted[at], found[at], f"{where}[{at}]")
    return f"at {where or 'the top'}: {wanted!r} against {found!r}"[:2000]
