"""Check modes and options of backends at `compile()`, rather than when the first graph is compiled."""

from __future__ import annotations

import difflib
import inspect
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from torchdynamo.backends.registry import BACKENDS, Backend, backend_name
from torchdynamo.errors import TorchDynamoWarning, UnknownSetting
from torchdynamo.hook.user_warnings import warn_user

Check = Callable[[str | None, Mapping[str, Any] | None], object]
LOG = logging.getLogger("torchdynamo.backends")
OURS = ("buckets",)  # the option that any backend may be given
OF_TORCH_COMPILE = frozenset({"guard_filter_fn", "use_aoti"})  # options that no backend gets
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
            if BACKENDS.get(name) is not backend:
                raise UnknownSetting(f"backend {name!r} has no modes, so none called {value!r}; 'inductor' has some")
            LOG.warning("backend %r has no modes, and ignores mode=%r", name, value)
            return
        hints = {option: nearest(str(option), OURS) for option in value}
        option = next((each for each, hint in hints.items() if hint), next(iter(value)))
        raise UnknownSetting(f"backend {name!r} has no option {option!r}: it takes no options{hints[option]}")


def taken(backend: Backend, given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings to call a backend with: without a mode, where one of ours has no modes."""
    if "mode" in given and BACKENDS.get(backend_name(backend)) is backend and not _takes(backend, given):
        return {name: value for name, value in given.items() if name != "mode"}
    return given


def without_guard_filters(options: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return options without those of torch.compile itself, which passes on the others to the backend.

    Warns of "guard_filter_fn", because all guards are kept here. Raises UnknownSetting for "use_aoti".
    """
    if not isinstance(options, Mapping) or not options.keys() & OF_TORCH_COMPILE:
        return options
    if options.get("use_aoti"):
        raise UnknownSetting("use_aoti is not supported: export the model, and package it by AOTInductor")
    if options.get("guard_filter_fn") is not None:
        warn_user("guard_filter_fn has no effect in torchdynamo: all guards are kept", TorchDynamoWarning)
    return {name: value for name, value in options.items() if name not in OF_TORCH_COMPILE} or None


def split_choice(
    options: Mapping[str, Any] | None, name: str, default: Any, word: str | None = None
) -> tuple[Any, Mapping[str, Any] | None]:
    """Split options into the choice of this name, by default `default`, and the others.

    Raises UnknownSetting for a choice that is neither a bool nor the word.
    """
    if not options or name not in options:
        return default, options
    choice = options[name]
    if type(choice) is not bool and (word is None or choice != word):
        known = "True or False" if word is None else f"True, False or {word!r}"
        raise UnknownSetting(f"options[{name!r}] is {known}, and not {choice!r}")
    return choice, {other: value for other, value in options.items() if other != name}


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
