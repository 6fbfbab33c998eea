"""Describe objects by facts that can be stored: names, hashes of code, parts.

If two objects, of one or of two processes, have equal facts, guards cannot tell them apart.
"""

from __future__ import annotations

import enum
import hashlib
import sys
import types
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import torch

from torchdynamo.core.value import ABSENT


class Named(NamedTuple):
    """A module, or an object written in C: known by the name under which it is found."""

    kind: str
    module: str
    name: str


class Class(NamedTuple):
    """A class: known by its name and those of its bases."""

    kind: str
    module: str
    name: str
    bases: tuple[str, ...]


class Written(NamedTuple):
    """A function or code object: known by its name and a hash of what it does."""

    kind: str
    name: str
    hash: str


class DescriptorFact(NamedTuple):
    """A descriptor around functions: a property, a static method."""

    kind: str
    parts: tuple[Any, ...]


class Unnamed(NamedTuple):
    """An object that is known only by its identity, which ends with the process."""

    text: str


Fact: TypeAlias = Named | Class | Written | DescriptorFact | Unnamed
FACTS = (Named, Class, Written, DescriptorFact, Unnamed)


@cache
def hash_of(code: types.CodeType) -> str:
    """Return a hash of all that a code object does; file and lines do not count."""
    parts = (
        *(code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags),
        *(code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_name),
        getattr(code, "co_exceptiontable", b""),
    )
    return hashlib.sha256(repr((parts, [constant(const) for const in code.co_consts])).encode()).hexdigest()


def constant(const: Any) -> str:
    """Return a constant of a code object as text that is equal in every process."""
    if type(const) is types.CodeType:
        return hash_of(const)
    if type(const) is tuple:
        return repr([constant(item) for item in const])
    if type(const) is frozenset:
        return repr(sorted(constant(item) for item in const))
    return f"{type(const).__name__} {const!r}"


DESCRIPTORS_IN_C = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)


def fact_of(obj: Any) -> Fact:
    """Return the fact that describes an object."""
    if obj is ABSENT:
        return Named("absent", "", "")
    if isinstance(obj, type):
        bases = tuple(f"{base.__module__}.{base.__qualname__}" for base in obj.__mro__[1:])
        return Class("class", obj.__module__, obj.__qualname__, bases)
    if isinstance(obj, types.ModuleType):
        return Named("module", obj.__name__, "")
    if type(obj) is types.CodeType:
        return Written("code", obj.co_name, hash_of(obj))
    if type(obj) is types.FunctionType:
        return Written("function", f"{obj.__module__}.{obj.__qualname__}", hash_of(obj.__code__))
    if type(obj) is types.BuiltinFunctionType and isinstance(obj.__self__, type):
        return Named("builtin", obj.__self__.__module__, f"{obj.__self__.__qualname__}.{obj.__name__}")
    if type(obj) is types.BuiltinFunctionType and obj.__module__ in sys.modules:
        return Named("builtin", obj.__module__, obj.__name__)
    if isinstance(obj, DESCRIPTORS_IN_C):
        return Named("descriptor", obj.__objclass__.__module__, f"{obj.__objclass__.__qualname__}.{obj.__name__}")
    if type(obj) in (property, staticmethod, classmethod):
        inner = (obj.fget, obj.fset, obj.fdel) if type(obj) is property else (obj.__func__,)
        return DescriptorFact(type(obj).__name__, tuple(None if part is None else fact_of(part) for part in inner))
    if isinstance(obj, enum.Enum):
        return Named("member", type(obj).__module__, f"{type(obj).__qualname__}.{obj.name}")
    if type(obj) in (torch.layout, torch.memory_format):
        return Named("torch", "torch", str(obj).removeprefix("torch."))
    return Unnamed(f"{type(obj).__qualname__} {getattr(obj, '__qualname__', '')}".rstrip())


class Unresolved(LookupError):
    """Raised if there is no such object in this process."""


def object_of(fact: Fact, candidates: Iterable[Any]) -> Any:
    """Return the object that a fact describes, among the candidates or by its name. Raises Unresolved."""
    for candidate in candidates:
        if not isinstance(fact, Unnamed) and fact_of(candidate) == fact:
            return candidate
    for found in by_name(fact) if isinstance(fact, (Named, Class)) else ():
        if fact_of(found) == fact:
            return found
    raise Unresolved(fact)


def by_name(fact: Named | Class) -> Iterator[Any]:
    """Yield the objects found under a fact's name in an imported module, by its dict and by attribute access."""
    if fact.kind == "absent":
        yield ABSENT
    owner: Any = sys.modules.get(fact.module or "builtins")
    *path, last = fact.name.split(".")
    for name in path:
        owner = getattr(owner, name, None)
    if not last:
        yield owner
    elif owner is not None:
        yield from (vars(owner).get(last), getattr(owner, last, None))
