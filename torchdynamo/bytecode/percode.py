"""Something known about a code object for as long as it lives.

By identity: equal code objects can stand in different files, and one with a list among its constants has no hash.
"""

from __future__ import annotations

from types import CodeType
from typing import Any, ClassVar, Generic, TypeVar
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

    def clear(self) -> None:
        """Know nothing of any."""
        self._known.clear()


class Learned(PerCode[T]):
    """Something that calls have shown of a code object. `forget_all` clears each such table."""

    tables: ClassVar[list[Learned[Any]]] = []

    def __init__(self) -> None:
        super().__init__()
        self.tables.append(self)


def forget_all() -> None:
    """Clear all that was learned of any code object, as if nothing had run."""
    for table in Learned.tables:
        table.clear()
