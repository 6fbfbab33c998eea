"""The constants of a code object being made.

The `bytecode` package tells constants apart by what `marshal` makes of them, which merges equal lists and arrays and
depends on reference counts. Here plain constants are compared by exact type and value, everything else by identity
(tuples too: two that a program made are two); the package only sees the numbers this pool hands out.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, EllipsisType, NoneType
from typing import Any


def _float_key(value: float) -> str:
    return value.hex()  # tells -0.0 from 0.0, and is equal for nan


_PLAIN: dict[type, Callable[[Any], Any]] = {
    **dict.fromkeys((int, bool, str, bytes, NoneType, EllipsisType), lambda value: value),
    float: _float_key,
    complex: lambda value: (_float_key(value.real), _float_key(value.imag)),
}


def constant_key(value: Any) -> tuple[Any, Any]:
    plain = _PLAIN.get(type(value))
    return (object, id(value)) if plain is None else (type(value), plain(value))


class Constants:
    """Hands out a number per distinct constant. The first stays first: it is the docstring."""

    def __init__(self, docstring: str | None) -> None:
        self.values: list[Any] = []
        self._numbers: dict[tuple[Any, Any], int] = {}
        self.docstring = self.number(docstring)

    def number(self, value: Any) -> int:
        # One int object per constant is kept and handed out, see above about reference counts.
        number = self._numbers.setdefault(constant_key(value), len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number

    def fill(self, code: CodeType) -> CodeType:
        return code.replace(co_consts=tuple(self.values[number] for number in code.co_consts))
