"""Collect the constants of a code object that is being assembled.

The `bytecode` package compares constants by their `marshal` form, which merges equal lists and arrays and depends on
reference counts. Here they are compared by identity (two strings that a program made stay two); the package only sees
the numbers that this pool hands out.
"""

from __future__ import annotations

from types import CodeType
from typing import Any


class Constants:
    """Numbers distinct constants. The first one stays first, because it is the docstring."""

    def __init__(self, docstring: str | None) -> None:
        self.values: list[Any] = []
        self._numbers: dict[int, int] = {}  # by id
        self.docstring = self.number(docstring)

    def number(self, value: Any) -> int:
        # The same int object is handed out each time, because the package's comparison depends on reference counts.
        number = self._numbers.setdefault(id(value), len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number

    def fill(self, code: CodeType) -> CodeType:
        return code.replace(co_consts=tuple(self.values[number] for number in code.co_consts))
