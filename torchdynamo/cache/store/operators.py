"""Tell custom operators written in Python apart, so that another process knows whether it has the same ones.

A stored graph calls them by name. It rests on their schemas, and on the metadata that their fakes have given for
results: all is hashed that a fake can read, and one that may read more is not known. Kernels and rules for gradients
run when the graph does, whatever they are by then; their own code is hashed all the same.
"""

from __future__ import annotations

import builtins
import dis
import hashlib
import types
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx

from torchdynamo.backends.cache_key import OPERATORS, functions, owner
from torchdynamo.cache.store.hashes import hash_of
from torchdynamo.cache.store.sites import contents, within
from torchdynamo.cache.store.values import NotStorable, encode
from torchdynamo.graph.custom_operators import python_operator
from torchdynamo.guards.constants import is_constant

PURE = frozenset({"torch", "math", "operator", "typing", "collections", "itertools", "functools", "builtins"})
"""Packages that the key of the environment identifies, and whose functions give a fake nothing of the process."""
OF_MODULES = (types.ModuleType, type, types.FunctionType, types.BuiltinFunctionType)
"""Types of objects that are what their module says; other objects have contents of their own."""
PLAIN_BUILTINS = frozenset(
    "abs all any bool dict enumerate float int isinstance len list max min pow range reversed".split()
)
PLAIN_BUILTINS |= frozenset("round set sorted str sum tuple zip".split())
"""Builtins whose results rest on their arguments only."""
CALLED_ONLY = frozenset("Autograd ADInplaceOrView BackendSelect CompositeExplicitAutograd CPU CUDA Meta".split())
"""Keys of what runs when an operator is called, and not where its fake does."""


def is_custom(function: Any) -> bool:
    """Return whether a function is an operator that is not torch's own."""
    return isinstance(function, OPERATORS) and owner(function) != "torch"


def custom_operators(gm: torch.fx.GraphModule) -> dict[str, str]:
    """Return the custom operators that a graph calls: name -> digest. Raises NotStorable for one that is not known."""
    computed: set[torch.fx.Node] = set()  # from inputs of the graph
    for node in gm.graph.nodes:
        if node.op == "placeholder" or not computed.isdisjoint(node.all_input_nodes):
            computed.add(node)
        elif is_custom(node.target):
            raise NotStorable(f"{node.target} is called with constants, so it may have been called already")
    return {str(each): digest_of(each) for each in filter(is_custom, functions(gm))}


def digest_of(operator: Any) -> str:
    """Return a digest of a custom operator. Raises NotStorable for one that no digest tells apart."""
    known = python_operator(operator)
    if known is None:
        raise NotStorable(f"{operator} is a custom operator: nothing says which kernel it has")
    if not known.is_plain or known.keys - CALLED_ONLY:
        raise NotStorable(f"{operator} is a custom operator with rules of its own for modes or for metadata")
    fake = "" if known.fake is None else _behavior(known.fake, set())
    kernels = sorted(_code_of(each) for each in known.functions)
    return hashlib.blake2b("\0".join([known.schema, fake, *kernels]).encode(), digest_size=16).hexdigest()


def _code_of(function: Any) -> str:
    """Return a hash of the code of a function. Raises NotStorable for what is none."""
    if type(function) is not types.FunctionType:
        raise NotStorable(f"a custom operator is made of a {type(function).__name__}")
    return hash_of(function.__code__)


def _behavior(function: Any, seen: set[int]) -> str:
    """Return a text of all that a function can do: its code, and what its names stand for.

    Raises NotStorable where it reads something that can change without a trace.
    """
    texts = [_code_of(function)]
    seen.add(id(function))
    if function.__dict__:
        raise NotStorable(f"{function.__qualname__}, which a custom operator's fake calls, has attributes")
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items())
    texts += [_meaning(each, seen) for each in defaults]
    if any(each.opname == "IMPORT_NAME" for each in _instructions(function.__code__)):
        raise NotStorable(f"{function.__qualname__}, a custom operator's fake, imports modules")
    cells = [value for cell in function.__closure__ or () for value in contents(cell)]
    texts += [_meaning(each, seen) for each in cells]
    names = {name for each in within(function.__code__, []) for name in each[1].co_names}
    if "ops" in names:
        raise NotStorable(f"{function.__qualname__}, a custom operator's fake, calls other operators")
    scope = function.__globals__
    asked = {name for name in names if name not in scope and name in vars(builtins)} - PLAIN_BUILTINS
    if asked:
        raise NotStorable(f"{function.__qualname__}, a custom operator's fake, calls {min(asked)}")
    texts += [f"{name} {_meaning(scope[name], seen)}" for name in sorted(names) if name in scope]
    return " ".join(texts)


def _instructions(code: types.CodeType) -> Iterator[dis.Instruction]:
    for _, each in within(code, []):
        yield from dis.get_instructions(each)


def _meaning(value: Any, seen: set[int]) -> str:
    """Return what a name stands for as text. Raises NotStorable."""
    if is_constant(value):
        return encode(value, _no_value).hex()
    home = value.__name__ if type(value) is types.ModuleType else getattr(value, "__module__", None)
    if type(value) in OF_MODULES and type(home) is str and home.partition(".")[0] in PURE:
        return f"{home} {getattr(value, '__qualname__', '')}"
    if type(value) is types.FunctionType:
        return "again" if id(value) in seen else _behavior(value, seen)
    raise NotStorable(f"a custom operator's fake reads a {type(value).__name__}")


def _no_value(obj: Any) -> tuple[bytes, int]:
    raise NotStorable(f"a custom operator's fake reads a {type(obj).__name__}")
