"""Settings, as attributes of this module: `torchdynamo.config.debug = True`.

The module's own class checks each assignment, so a misspelt name or a value of the wrong type raises at once instead of
being ignored.
"""

from __future__ import annotations

import contextlib
import difflib
import sys
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

debug: bool = False
"""Print the graph, the bytecode before and after, and the guards of each compiled frame."""

verbose: bool = False
"""Warnings about a fallback carry the full traceback of what failed inside."""

cache_size_limit: int = 8
"""Limit of entries for one function; further kinds of calls run eagerly."""

error_on_recompile: bool = False
"""Raise `exc.RecompileError` instead of compiling a function again, to find out what keeps changing."""

fail_on_recompile_limit_hit: bool = False
"""Raise `exc.FailOnRecompileLimitHit` at `cache_size_limit`, instead of warning and running eagerly.

Functions compiled with `fullgraph=True` raise in any case."""

verify_correctness: bool | int = False
"""Compare the backend's results with eager's once for each graph, on copies of the inputs; differences raise.

A number n does so in every n-th call of each graph, which then returns eager's result; differences are warnings, or
raise if `suppress_errors` is off."""

dynamic_shapes: bool = False
"""Capture sizes as symbols from the start, as `compile(dynamic=True)` does for one function."""

automatic_dynamic_shapes: bool = True
"""Make a size a symbol once it has changed; False specializes each, as `compile(dynamic=False)` does."""

dynamic_sources: str = ""
"""Names of sizes and numbers that are symbols from the first compile on: `"x, self.layer_idx"`."""

capture_scalar_outputs: bool = False
"""Capture results of `.item()` and the like as symbols; by default they break the graph."""

capture_dynamic_output_shape_ops: bool = False
"""Capture operators whose output shape depends on values (`nonzero`, a mask as index); by default they break."""

capture_branches: bool = False
"""Capture branches and `while` loops on tensors' values as `torch.cond` and `while_loop`, where they only compute."""

regions: bool | str = "auto"
"""Compile blocks that repeat in a graph once and call the result for each, with backends that can ("inductor").

"auto" does so from six equal blocks on, True from three; False compiles each graph as a whole."""

rewrites: bool = True
"""Let backends that need not round as eager does ("inductor") rewrite a graph: attention into one operator."""

cache: str = ""
"""Use what other processes have captured and compiled, and store for them what this one does: "on", "read" or "off".

By default, as the environment variable TORCHDYNAMO_CACHE says: 1, read or 0; without that, "on"."""

suppress_errors: bool = True
"""Warn about errors inside of torchdynamo or a backend and run eagerly; False raises them, for debugging."""

progress: bool = True
"""Show on a terminal what is being compiled, once that takes more than two seconds."""

capture_everything: bool = False
"""Capture all frames, also those without tensors and those of the standard library, to test capture."""

# What a program sets is a global of this module; `__getattr__` serves what it has not set.
_DEFAULTS: dict[str, Any] = {name: globals().pop(name) for name in [*__annotations__]}
_followed: Callable[[str, Any], Any] | None = None  # gives, for a setting and its default, what holds in its place
_TYPES: dict[str, list[str]] = {name: kinds.split(" | ") for name, kinds in __annotations__.items()}
_WORDS = {"regions": ("auto",)}  # the texts that a setting may be, if it is one of a few


def knobs() -> dict[str, Any]:
    """Return all settings with their current values."""
    return {name: _value(name) for name in _DEFAULTS}


def changed() -> dict[str, Any]:
    """Return the settings that differ from their defaults."""
    return {name: value for name, value in knobs().items() if value != _DEFAULTS[name]}


@contextlib.contextmanager
def patch(**changes: Any) -> Iterator[None]:
    """Set options inside of a `with` block, or of a function decorated with it."""
    for name, value in changes.items():
        _check(name, value)  # all before the first is set, so that a patch is never half applied
    before = {name: globals()[name] for name in changes if name in globals()}
    globals().update(changes)
    try:
        yield
    finally:
        _unset(changes)
        globals().update(before)


def reset() -> None:
    """Set all settings back to their defaults."""
    _unset(_DEFAULTS)


def follow(settings: Callable[[str, Any], Any] | None) -> None:
    """Have a function give what settings are that no program has set: `settings(name, default)`; None ends that."""
    global _followed
    _followed = settings


def is_following() -> bool:
    """Return whether another place gives the settings that are not set here."""
    return _followed is not None


def _value(name: str) -> Any:
    if name in globals():
        return globals()[name]
    return _DEFAULTS[name] if _followed is None else _followed(name, _DEFAULTS[name])


def _unset(names: Iterable[str]) -> None:
    for name in names:
        globals().pop(name, None)


def _check(name: str, value: Any) -> None:
    if name not in _DEFAULTS:
        raise AttributeError(_unknown(name))
    if type(value).__name__ not in _TYPES[name]:
        wanted = " or ".join(_TYPES[name])
        raise TypeError(f"torchdynamo.config.{name} takes {wanted}, not {type(value).__name__} ({value!r})")
    if type(value) is str and value not in _WORDS.get(name, (value,)):
        raise ValueError(f"torchdynamo.config.{name} may be {' or '.join(map(repr, _WORDS[name]))}, not {value!r}")
    if type(value) is int and value < 1:
        raise ValueError(f"torchdynamo.config.{name} must be at least 1, not {value}")


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, _DEFAULTS, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(sorted(_DEFAULTS))}"
    return f"torchdynamo.config has no setting {name!r}{hint}"


class _Config(ModuleType):
    """The class of this module: it checks assignments, except to dunder names, which are the import system's.

    Deleting a setting sets it back to its default, as `unittest.mock.patch` does that put one there.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("__"):
            _check(name, value)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if name not in _DEFAULTS:
            raise AttributeError(f"torchdynamo.config.{name} cannot be deleted")
        _unset([name])

    def __getattr__(self, name: str) -> Any:
        if name not in _DEFAULTS:
            raise AttributeError(_unknown(name))
        return _value(name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *_DEFAULTS]


sys.modules[__name__].__class__ = _Config
