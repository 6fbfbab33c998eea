"""Check modes and options of backends at `compile()`, rather than when the first graph is compiled."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from torchdynamo.backends.registry import Backend, backend_name
from torchdynamo.errors import UnknownSetting

Check = Callable[[str | None, Mapping[str, Any] | None], object]
OURS = ("buckets",)  # the option that any backend may be given
B = TypeVar("B", bound=Callable[..., Any])


def checked_by(check: Check) -> Callable[[B], B]:
    """Return a decorator that gives a backend its check: `check(mode, options)` raises UnknownSetting."""

    def mark(backend: B) -> B:
        backend.check_settings = check  # type: ignore[attr-defined]
        return backend

    return mark


def check_settings(backend: Backend, mode: str | None, options: Mapping[str, Any] | None) -> None:
    """Check a backend's mode and options. Raises UnknownSetting for those that it does not have."""
    mode, options = mode if mode != "default" else None, options or None
    given: dict[str, Any] = {"mode": mode, "options": options}
    wanted = {name: value for name, value in given.items() if value is not None}
    check: Check | None = getattr(backend, "check_settings", None)
    if check is not None:
        check(mode, options)
    elif wanted and not _takes(backend, wanted):
        kind, value = next(iter(wanted.items()))
        name = backend_name(backend)
        if kind == "mode":
            raise UnknownSetting(f"backend {name!r} has no modes, and so none called {value!r}; 'inductor' has some")
        hints = {option: nearest(str(option), OURS) for option in value}
        option = next((each for each, hint in hints.items() if hint), next(iter(value)))
        raise UnknownSetting(f"backend {name!r} has no option {option!r}: it takes no options{hints[option]}")


def nearest(name: str, known: Collection[str]) -> str:
    """Return "; did you mean ...?" for the most similar known name; "" if there is none."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def _takes(backend: Backend, wanted: Mapping[str, Any]) -> bool:
    """Return whether a backend accepts these keyword arguments, as far as its signature tells."""
    try:
        signature = inspect.signature(backend)
    except (TypeError, ValueError):
        return True  # some C functions have no signature
    try:
        signature.bind(None, None, **wanted)
    except TypeError:
        return False
    return True
