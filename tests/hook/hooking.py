"""Callbacks that the tests share."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

from torchdynamo.eval_frame import GuardedCode, callback_active
from torchdynamo.hook.install import Entry, Frame, skip_code


def always(f_locals: dict[str, Any]) -> bool:
    return True


class Swapper:
    """Answers for some functions with another's code, for the rest with nothing; remembers what it was asked."""

    def __init__(self, *pairs: tuple[Any, Any], check: Callable[[dict[str, Any]], object] = always) -> None:
        self.codes: dict[CodeType, CodeType] = {old.__code__: new.__code__ for old, new in pairs}
        self.check = check
        self.asked: list[str] = []
        self.seen: list[dict[str, Any]] = []

    def __call__(self, frame: Frame, cache_entry: Entry | None, frame_state: dict[str, Any]) -> Entry | None:
        self.asked.append(frame.f_code.co_name)
        self.seen.append(dict(frame.f_locals))
        new = self.codes.get(frame.f_code)
        return None if new is None else GuardedCode(new, self.check)


def swapped(old: Any, new: Any, *args: Any, **kwargs: Any) -> Any:
    """What the call gives with the code of `old` replaced; twice, so that the second is a hit."""
    with callback_active(Swapper((old, new))):
        first = old(*args, **kwargs)
        second = old(*args, **kwargs)
    assert repr(first) == repr(second)
    return second


def nothing(frame: Frame, cache_entry: Entry | None, frame_state: dict[str, Any]) -> None:
    """A callback that is interested in nothing."""


def at_every_depth(call: Callable[[], Any], expected: Any, depth: int = 150) -> None:
    """Make the call on stacks of many depths."""

    def descend(n: int) -> None:
        assert call() == expected
        if n:
            descend(n - 1)

    descend(depth)


@contextlib.contextmanager
def unraisable() -> Iterator[list[BaseException]]:
    """The errors that are reported and go no further."""
    reported: list[BaseException] = []
    prior = sys.unraisablehook
    sys.unraisablehook = lambda args: reported.append(args.exc_value)  # type: ignore[arg-type]
    try:
        yield reported
    finally:
        sys.unraisablehook = prior


skip_code(always.__code__, "test")
