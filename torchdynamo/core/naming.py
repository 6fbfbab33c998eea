"""What an object is called. Its `repr` and its attributes may be code of the user's, which is not run for that."""

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
TRUSTED = ("torch", "torchdynamo", "numpy")  # whose objects say what they are and do nothing else
QUALNAME = type.__dict__["__qualname__"]
OWN: Any = type.__dict__["__dict__"]


def class_name(cls: type) -> str:
    """Return the name of a class as its class statement had it, whatever a metaclass says."""
    name: str = QUALNAME.__get__(cls)
    return name


def is_found(cls: type) -> bool:
    """Return whether the class lies where its name says: in a module, or in a class that does."""
    found: Any = sys.modules.get(str(OWN.__get__(cls).get("__module__")))
    for name in class_name(cls).split("."):
        if found is None:
            return False
        found = (OWN.__get__(found) if isinstance(found, type) else found.__dict__).get(name)
        if not isinstance(found, type):
            return False
    return found is cls


def is_mortal(obj: Any) -> bool:
    """Return a class that goes when nobody has it any more, as one that was made in a function does; or an instance of
    one.
    """
    cls = obj if issubclass(type(obj), type) else type(obj)
    if id(cls) in _lasting or not type(obj).__weakrefoffset__:
        return False
    if cls.__flags__ & (1 << 9) and not is_found(cls):  # Py_TPFLAGS_HEAPTYPE
        return True
    _lasting[id(cls)] = cls
    return False


_lasting: dict[int, type] = {}  # by id: what is found by its name stays


def has_name(obj: Any) -> bool:
    """Return whether it is something that has a name of its own."""
    return issubclass(type(obj), type) or type(obj) in WITH_NAMES


def text_of(obj: Any) -> str:
    """`repr(obj)`, which Python refuses for numbers of thousands of digits."""
    try:
        return repr(obj)
    except ValueError:
        return f"<a long {type(obj).__name__}>"


def called(obj: Any) -> str:
    """Return a name or a text for people."""
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
