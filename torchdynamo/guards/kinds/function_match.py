"""A function by its code; a module, class or C function by itself.

The code alone is kept: a function owns its globals and what its closure holds.
"""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import Any

from torchdynamo.core.source import Guard, Roots
from torchdynamo.guards.identity import Weak, held, is_same, lower_kept
from torchdynamo.guards.kind import GuardDifference, GuardKind, NodeOf, short


def kept(arg: Any) -> Any:
    """Return what stands for the object: code for a function."""
    if type(arg) is FunctionType:
        return arg.__code__
    return arg if type(arg) in (Weak, CodeType) else held(arg)


def holds(value: Any, arg: Any, roots: Roots) -> bool:
    fact = kept(arg)
    if type(fact) is CodeType:
        return type(value) is FunctionType and value.__code__ is fact
    return is_same(fact, value)


def lower(guard: Guard, node_of: NodeOf) -> tuple[int, str, Any]:
    fact = kept(guard.arg)
    return node_of(guard.source), *(("code", fact) if type(fact) is CodeType else lower_kept(fact))


def why(value: Any, arg: Any, roots: Roots) -> GuardDifference:
    old, new = kept(arg), getattr(value, "__code__", value)
    return GuardDifference("", *(placed(each) if type(each) is CodeType else short(each) for each in (old, new)))


def placed(code: CodeType) -> str:
    """Say where a function is, since functions of one name differ by that."""
    return f"{code.co_name} of {code.co_filename}:{code.co_firstlineno}"


KIND = GuardKind(
    "FUNCTION_MATCH",
    holds=holds,
    lower=lower,
    why=why,
    told=lambda arg: placed(arg) if type(arg) is CodeType else short(arg),
    settle=lambda guard, roots: guard._replace(arg=kept(guard.arg)),
)
