"""Let a compiled graph put another callable in its own place, so that no call passes through it any more."""

from __future__ import annotations

import abc
import weakref
from collections.abc import Callable
from typing import Any, Protocol


class GraphHolder(Protocol):
    """Something that calls a compiled graph by its attribute `fn`."""

    fn: Callable[..., Any]


class Replaceable(abc.ABC):
    """A compiled graph that is called until it knows a better callable for the same graph."""

    def __init__(self) -> None:
        self._holders: list[weakref.ref[Any]] = []
        self._replacement: Callable[..., Any] | None = None

    def held_by(self, holder: GraphHolder) -> None:
        """Remember an object whose `fn` is this graph."""
        self._holders.append(weakref.ref(holder))
        if self._replacement is not None:
            holder.fn = self._replacement

    def replace(self, run: Callable[..., Any]) -> None:
        """Make `run` what the holders call from now on."""
        self._replacement = run
        for reference in self._holders:
            holder = reference()
            if holder is not None:
                holder.fn = run

    @abc.abstractmethod
    def __call__(self, *args: Any) -> Any:
        """Run the graph."""

    @abc.abstractmethod
    def failed(self, error: BaseException) -> None:
        """Hear that the callable in its place has raised where eager did not."""


Handler = Callable[[BaseException, Any], Any]


def reporting_failures(handler: Handler, compiled: Replaceable) -> Handler:
    """Wrap a graph's error handler so that the graph hears of errors that eager did not raise."""

    def handled(error: BaseException, args: Any) -> Any:
        result = handler(error, args)
        if args is not None and result is not None and not isinstance(result, BaseException):
            compiled.failed(error)
        return result

    return handled
