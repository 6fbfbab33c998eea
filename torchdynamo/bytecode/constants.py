"""The constants of a code object being made.

The `bytecode` package tells constants apart by what `marshal` makes of them, which merges equal lists and arrays and
depends on reference counts. Here they are compared by identity (two strings that a program made are two); the package
only sees the numbers this pool hands out.
"""

from __future__ import annotations

from types import CodeType
from typing import Any


class Constants:
    """Hands out a number per distinct constant. The first stays first: it is the docstring."""

    def __init__(self, docstring: str | None) -> None:
        self.values: list[Any] = []
        self._numbers: dict[int, int] = {}  # by id
        self.docstring = self.number(docstring)

    def number(self, value: Any) -> int:
        # One int object per constant is kept and handed out, see above about reference counts.
        number = self._numbers.setdefault(id(value), len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number

    def fill(self, code: CodeType) -> CodeType:
        return code.replace(co_consts=tuple(self.values[number] for number in code.co_consts))
