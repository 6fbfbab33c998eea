"""The table: a function, the arguments it is tried with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Case(NamedTuple):
    """One function and its arguments, which each run gets a copy of."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    breaks: str | None = None  # the reason it ends the graph with; None: it is one graph
    grad: bool = True  # whether grad mode is on

    @property
    def name(self) -> str:
        return f"{self.fn.__module__.removeprefix('torch_cases_')}-{self.fn.__name__}"


CASES: list[Case] = []


def case(*args: Any, breaks: str | None = None, grad: bool = True) -> Callable[..., Any]:
    """Add the function to the table."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        CASES.append(Case(fn, args, breaks, grad))
        return fn

    return register
