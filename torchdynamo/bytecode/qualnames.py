"""Qualified names of code objects that cannot hold their own (before 3.11 MAKE_FUNCTION is handed the name)."""

from __future__ import annotations

from types import CodeType
from weakref import WeakKeyDictionary

_names: WeakKeyDictionary[CodeType, str] = WeakKeyDictionary()


def remember_qualname(code: CodeType, qualname: str) -> None:
    _names[code] = qualname


def qualname_of(code: CodeType) -> str:
    name: str = getattr(code, "co_qualname", None) or _names.get(code, code.co_name)
    return name
