"""Tell under which name of which module a class, function or module is found, and of which package a module is."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import torch

from torchdynamo._native import type_name
from torchdynamo.cache.store.values import NotStorable
from torchdynamo.core.naming import OWN, class_name

OF_THE_ENVIRONMENT = frozenset({"torch", "torchdynamo", "builtins", *sys.stdlib_module_names})
"""Packages that are the same wherever the key of the environment is: keys.py."""
HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE


def place_in_modules(obj: Any) -> tuple[str, str] | None:
    """Return (module, qualified name) under which a class, function or module is found; None if it is not."""
    cls = type(obj)
    if obj is sys.modules:
        return "sys", "modules"
    if issubclass(cls, types.ModuleType):
        name = OF_MODULE.__get__(obj).get("__name__")
        return (name, "") if type(name) is str and sys.modules.get(name) is obj else None
    names = _names_of(obj)
    return next((name for name in names if object_at(*name) is obj), None)


def _names_of(obj: Any) -> Iterator[tuple[str, str]]:
    module: Any
    name: Any
    if issubclass(type(obj), type):
        made_in_c = not of_type(obj, "__flags__") & HEAP
        module = module_of_c(obj) if made_in_c else OWN.__get__(obj).get("__module__")
        name = class_name(obj)
    elif type(obj) in NAMED:
        module, name = getattr(obj, "__module__", None), obj.__qualname__
        owner = getattr(obj, "__self__", None)
        if type(owner) is types.ModuleType:
            module = owner.__name__
    else:
        return
    # a function of torch's C may have a qualified name with its owner's, and one that was made has its maker's
    for each in dict.fromkeys((name, name if issubclass(type(obj), type) else obj.__name__)):
        for home in (module, "builtins", "torch", "torch.nn.functional"):
            if type(home) is str and type(each) is str:
                yield home, each
    yield from (("types", each) for each, found in vars(types).items() if found is obj)  # of functions, cells
    if type(obj) is types.BuiltinFunctionType:  # a static method of a class of torch's in C++
        yield "torch._C", obj.__qualname__
    if obj is type(torch._C.DispatchKey):  # as of all classes of torch's in C++; no module has it
        yield "torch._C", "DispatchKey.__class__"


NAMED = (types.FunctionType, types.BuiltinFunctionType)
"""Types of functions that are looked for by their names."""


def object_at(module: str, name: str) -> Any:
    """Return what an imported module has under a qualified name; None if there is nothing. Runs no code of a user."""
    found: Any = sys.modules.get(module)
    for part in name.split(".") if name else ():
        if part == "__class__":
            found = type(found)
        elif issubclass(type(found), type):
            found = next(
                (OWN.__get__(base)[part] for base in of_type(found, "__mro__") if part in OWN.__get__(base)), None
            )
            found = found.__func__ if type(found) is staticmethod else found
        else:
            found = getattr(found, "__dict__", {}).get(part) if type(found) is types.ModuleType else None
    return found


def is_of_environment(module: Any) -> bool:
    """Return whether a module belongs to a package that the key of the environment identifies."""
    return type(module) is str and module.partition(".")[0] in OF_THE_ENVIRONMENT


def version_of(module: Any) -> str:
    """Return the version of the package that a module written in C belongs to. Raises NotStorable if it has none."""
    if is_of_environment(module):
        return ""
    package = sys.modules.get(str(module).partition(".")[0])
    version = getattr(package, "__version__", None)
    if type(version) is not str:
        raise NotStorable(f"{module} is written in C and has no version")
    return version


def of_type(cls: type, name: str) -> Any:
    """Return an attribute that C gives to all classes, without asking the metaclass of this one."""
    return type.__dict__[name].__get__(cls)


def module_of_c(cls: type) -> str:
    name = type_name(cls) if "." in type_name(cls) else str(type.__dict__["__module__"].__get__(cls))
    return name.rpartition(".")[0] or name


_MODULE: Any = types.ModuleType
OF_MODULE: Any = _MODULE.__dict__["__dict__"]
"""Gives the names of a module, also of one whose class answers for it."""
