"""Guard a function by its code object, and other callables (modules, classes, C functions) by identity.

Only the code object is kept, because a function owns its globals and the contents of its closure.
"""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import Any

from torchdynamo.core.source import Guard, Roots
from torchdynamo.guards.identity import Weak, held, is_same, lower_kept
from torchdynamo.guards.kind import GuardDifference, GuardKind, NodeOf, short


def kept(arg: Any) -> Any:
    """Return what a guard keeps of an object: the code of a function, a weak reference, or the object itself."""
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
    """Return the name and the place of a function, because functions of one name differ by that."""
    return f"{code.co_name} of {code.co_filename}:{code.co_firstlineno}"


KIND = GuardKind(
    "FUNCTION_MATCH",
    holds=holds,
    lower=lower,
    why=why,
    describe=lambda arg: placed(arg) if type(arg) is CodeType else short(arg),
    settle=lambda guard, roots: guard._replace(arg=kept(guard.arg)),
)
