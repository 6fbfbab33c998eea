"""Name objects for people, without calling their `repr` or attributes, which may run the user's code."""

from __future__ import annotations

import enum
import sys
import types
from typing import Any

LEAVES = (bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented), range, types.ModuleType)
WITH_NAMES = (
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType),
    *(types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType),
)
BRACKETS: dict[type, str] = {tuple: "()", list: "[]", set: "{}", frozenset: "{}"}
TRUSTED = ("torch", "torchdynamo", "numpy")  # packages whose `repr` has no side effects
QUALNAME = type.__dict__["__qualname__"]
OWN: Any = type.__dict__["__dict__"]
FLAGS: Any = type.__dict__["__flags__"]
WEAKREFS: Any = type.__dict__["__weakrefoffset__"]


def class_name(cls: type) -> str:
    """Return the name that the class statement gave a class, regardless of its metaclass."""
    name: str = QUALNAME.__get__(cls)
    return name


def is_found(cls: type) -> bool:
    """Return whether looking a class up by its name, in its module or enclosing class, finds it."""
    found: Any = sys.modules.get(str(OWN.__get__(cls).get("__module__")))
    for name in class_name(cls).split("."):
        if found is None:
            return False
        found = (OWN.__get__(found) if isinstance(found, type) else found.__dict__).get(name)
        if not isinstance(found, type):
            return False
    return found is cls


def is_mortal(obj: Any) -> bool:
    """Return whether an object is a class that can be freed, such as one made in a function, or an instance of one."""
    cls = obj if issubclass(type(obj), type) else type(obj)
    if id(cls) in _lasting or not WEAKREFS.__get__(type(obj)):
        return False
    if FLAGS.__get__(cls) & (1 << 9) and not is_found(cls):  # Py_TPFLAGS_HEAPTYPE
        return True
    _lasting[id(cls)] = cls
    return False


_lasting: dict[int, type] = {}  # id -> class that was found by its name, and is never freed


def has_name(obj: Any) -> bool:
    """Return whether an object has a name of its own."""
    return issubclass(type(obj), type) or type(obj) in WITH_NAMES


def text_of(obj: Any) -> str:
    """Return `repr(obj)`, or a description where Python refuses it for a number with thousands of digits."""
    try:
        return repr(obj)
    except ValueError:
        return f"<a long {type(obj).__name__}>"


def called(obj: Any) -> str:
    """Return the name of an object, or a short text for it."""
    cls = type(obj)
    if issubclass(cls, type):
        return class_name(obj)
    if cls in WITH_NAMES:
        return str(obj.__qualname__)
    if cls in LEAVES:
        return text_of(obj)
    brackets = BRACKETS.get(cls)
    if brackets is not None:
        inside = ", ".join(map(called, obj))
        comma = "," if cls is tuple and len(obj) == 1 else ""
        return f"{brackets[0]}{inside}{comma}{brackets[1]}"
    if cls is dict:
        return "{" + ", ".join(f"{called(key)}: {called(item)}" for key, item in obj.items()) + "}"
    if issubclass(cls, enum.Enum):
        return f"{class_name(cls)}.{obj.__dict__.get('_name_')}"
    if cls is slice:
        return f"slice({called(obj.start)}, {called(obj.stop)}, {called(obj.step)})"
    module = cls.__dict__.get("__module__", cls.__module__ if type(cls) is type else "")
    if isinstance(module, str) and module.partition(".")[0] in TRUSTED:
        return str(getattr(obj, "__qualname__", None) or repr(obj))
    return f"<{class_name(cls)}>"
