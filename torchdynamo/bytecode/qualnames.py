"""Keep qualified names of code objects that cannot hold them: before 3.11, MAKE_FUNCTION gets the name."""

from __future__ import annotations

from types import CodeType

from torchdynamo.bytecode.percode import PerCode

_names: PerCode[str] = PerCode()


def remember_qualname(code: CodeType, qualname: str) -> None:
    _names.set(code, qualname)


def lasting_name(code: CodeType) -> str:
    """Return the qualified name that a code object holds, the plain one if it holds none: equal in every process."""
    return getattr(code, "co_qualname", code.co_name)


def qualname_of(code: CodeType) -> str:
    name: str = getattr(code, "co_qualname", None) or _names.get(code) or code.co_name
    return name
