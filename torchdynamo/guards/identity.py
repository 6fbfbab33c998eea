"""Decide how a guard keeps an object: itself if it owns nothing of the user's, else a weak reference if possible.

A guard that held a model, or a function whose closure holds one, would keep it alive as long as the code that the guard
belongs to.
"""

from __future__ import annotations

import enum
import gc
import types
import weakref
from typing import Any

from torchdynamo.core.naming import called, class_name, has_name, is_mortal
from torchdynamo.guards.constants import is_constant

OWN_NOTHING: tuple[type, ...] = (
    type,
    types.ModuleType,
    types.CodeType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    enum.Enum,
    types.UnionType,
    types.GenericAlias,
)
TRACKED = 1 << 14  # Py_TPFLAGS_HAVE_GC: may refer to other objects


class Weak:
    """A weak reference to an object, with a name for it once it is gone."""

    __slots__ = ("name", "ref", "text")

    def __init__(self, obj: Any) -> None:
        self.ref = weakref.ref(obj)
        self.name = called(obj) if has_name(obj) else hex(id(obj))
        self.text = f"{class_name(type(obj))} {self.name}"

    def __repr__(self) -> str:
        return self.text


def owns_nothing(obj: Any, depth: int = 3) -> bool:
    """Return whether holding an object keeps nothing of the user's alive: a class, a C function, a finfo, ..."""
    if issubclass(type(obj), OWN_NOTHING) or is_constant(obj):
        return True
    if type(obj) is types.BuiltinFunctionType:
        return obj.__self__ is None or owns_nothing(obj.__self__, depth - 1)
    if not type(obj).__flags__ & TRACKED:
        return not weakrefable(obj)
    refers = [other for other in gc.get_referents(obj) if other is not type(obj)]
    return depth > 0 and not weakrefable(obj) and all(owns_nothing(other, depth - 1) for other in refers)


def weakrefable(obj: Any) -> bool:
    """Return whether an object supports weak references."""
    return bool(type(obj).__weakrefoffset__)


def held(obj: Any) -> Any:
    """Return what a guard keeps of an object: the object, or a `Weak`."""
    if is_constant(obj):
        return obj
    return obj if not is_mortal(obj) and (owns_nothing(obj) or not weakrefable(obj)) else Weak(obj)


def is_same(kept: Any, value: Any) -> bool:
    """Return whether a value is the object that was kept."""
    return value is (kept.ref() if type(kept) is Weak and value is not None else kept)


def lower_kept(kept: Any) -> tuple[str, Any]:
    """Return the native check of a kept object, and its payload."""
    return ("is_weak", kept.ref) if type(kept) is Weak else ("is", kept)
