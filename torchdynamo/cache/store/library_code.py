"""Hash what a Python function of a library does, so that another process can tell whether it does the same.

Programs may put functions of their own into a library's modules. Whatever a function's names lead to, in its module and
in other modules of the library, is part of what it does.
"""

from __future__ import annotations

import builtins
import hashlib
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from torchdynamo._native import type_name
from torchdynamo.cache.store.hashes import hash_of
from torchdynamo.cache.store.sites import contents, within
from torchdynamo.guards.constants import is_constant


def digest_of_behavior(function: FunctionType) -> str:
    """Return a hash of the code of a function, and of the code in its library that it may run."""
    library = function.__module__.partition(".")[0]
    texts, waiting, seen = [], [function], {id(function)}
    while waiting:
        each = waiting.pop()
        texts.append(hash_of(each.__code__))
        for name, value in _reached(each, library):
            texts.append(f"{name} {_described(value)}")
            inner = getattr(value, "_implementation", value)  # of a function that other arrays may take over
            if type(inner) is FunctionType and id(inner) not in seen:
                seen.add(id(inner))
                if _is_of(library, inner.__module__):
                    waiting.append(inner)
    return hashlib.blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _reached(function: FunctionType, library: str) -> Iterator[tuple[str, Any]]:
    """Yield what the names in a function's code stand for: globals, builtins, and members of the library's modules."""
    names = sorted({name for _, each in within(function.__code__, []) for name in each.co_names})
    scopes, seen = [vars(builtins), function.__globals__], set()
    while scopes:
        scope = scopes.pop()
        for name in names:
            value = scope.get(name)
            if name in scope:
                yield name, value
            if type(value) is ModuleType and _is_of(library, value.__name__) and id(value) not in seen:
                seen.add(id(value))
                scopes.append(vars(value))
    for cell in function.__closure__ or ():
        yield from (("", value) for value in contents(cell))
    yield from (("", value) for value in function.__defaults__ or ())
    yield from (function.__kwdefaults__ or {}).items()


def _is_of(library: str, module: object) -> bool:
    return type(module) is str and module.partition(".")[0] == library


def _described(value: Any) -> str:
    """Return a text of an object: its value, or its code, or what it says that it is."""
    if is_constant(value):
        return f"{type(value).__name__} {value!r}"
    inner = getattr(value, "_implementation", value)
    names = [str(getattr(value, name, "")) for name in ("__module__", "__qualname__", "__name__")]
    owner = getattr(getattr(value, "__self__", None), "__name__", "")
    code = hash_of(inner.__code__) if type(inner) is FunctionType else ""
    return " ".join([type_name(type(value)), *names, str(owner), code])
