"""Attach data to code objects for as long as they live.

Code objects are known by identity: equal ones can come from different files, and one with a list among its constants
has no hash.
"""

from __future__ import annotations

from types import CodeType
from typing import Generic, TypeVar
from weakref import ref

T = TypeVar("T")


class PerCode(Generic[T]):
    def __init__(self) -> None:
        self._known: dict[int, tuple[ref[CodeType], T]] = {}

    def get(self, code: CodeType) -> T | None:
        known = self._known.get(id(code))
        return None if known is None else known[1]

    def set(self, code: CodeType, value: T) -> None:
        key = id(code)
        self._known[key] = ref(code, lambda _: self._known.pop(key, None)), value

    def items(self) -> list[tuple[CodeType, T]]:
        """Return the code objects that are alive, with their data."""
        pairs = [(reference(), value) for reference, value in list(self._known.values())]
        return [(code, value) for code, value in pairs if code is not None]

    def clear(self) -> None:
        """Drop the data of all code objects."""
        self._known.clear()
