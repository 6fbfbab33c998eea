"""Every knob, as attributes of this module: `torchdynamo.config.debug = True`.

The module's own class checks each assignment, so a misspelt name or a value of the wrong type is an error
where it is written, not a setting that silently does nothing.
"""

from __future__ import annotations

import contextlib
import difflib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

debug: bool = False
"""Print, for each frame compiled: its graph, the bytecode before and after, and the guards."""

verbose: bool = False
"""Warnings about a fallback carry the full traceback of what failed inside."""

cache_size_limit: int = 8
"""How many versions of one function may be compiled before further ones run eagerly."""

error_on_recompile: bool = False
"""Raise `exc.RecompileError` where a function would be compiled once more: for finding what keeps changing."""

fail_on_recompile_limit_hit: bool = False
"""Raise `exc.FailOnRecompileLimitHit` at `cache_size_limit`, instead of warning and running eagerly."""

verify_correctness: bool = False
"""Hold what a backend makes of each graph against eager once, on copies of the inputs; differences are errors."""

dynamic_shapes: bool = False
"""Capture sizes as symbols from the start, as `compile(dynamic=True)` does for one function."""

dynamic_sources: str = ""
"""What is a symbol from the first compile on, by name, with commas between: `"x, self.layer_idx"`."""

capture_scalar_outputs: bool = False
"""Let `.item()` and its kin into the graph as symbols, where the default is a graph break."""

capture_dynamic_output_shape_ops: bool = False
"""Let operators whose output shape depends on values (`nonzero`, a mask as index) into the graph."""

suppress_errors: bool = True
"""A fault inside torchdynamo or a backend warns and runs eagerly. False raises it: for finding the fault."""

capture_everything: bool = False
"""Capture every frame there is, with tensors or without, Python's own library too: for testing what capture does."""

_DEFAULTS: dict[str, Any] = {name: globals()[name] for name in __annotations__}


def knobs() -> dict[str, Any]:
    """Return the settings as they stand now."""
    return {name: globals()[name] for name in _DEFAULTS}


@contextlib.contextmanager
def patch(**changes: Any) -> Iterator[None]:
    """Set options for the length of a `with` block, or of a function when used as its decorator."""
    for name, value in changes.items():
        _check(name, value)  # all of them first: no half-applied patch
    before = {name: globals()[name] for name in changes}
    globals().update(changes)
    try:
        yield
    finally:
        globals().update(before)


def reset() -> None:
    """Put every setting back to its default."""
    globals().update(_DEFAULTS)


def _check(name: str, value: Any) -> None:
    if name not in _DEFAULTS:
        raise AttributeError(_unknown(name))
    wanted = type(_DEFAULTS[name])
    if type(value) is not wanted:
        raise TypeError(f"torchdynamo.config.{name} takes {wanted.__name__}, not {type(value).__name__} ({value!r})")
    if wanted is int and value < 1:
        raise ValueError(f"torchdynamo.config.{name} must be at least 1, not {value}")


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, _DEFAULTS, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(sorted(_DEFAULTS))}"
    return f"torchdynamo.config has no setting {name!r}{hint}"


class _Config(ModuleType):
    """This module's class: assignments from outside are checked, dunder names are the import system's."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("__"):
            _check(name, value)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"torchdynamo.config.{name} cannot be deleted")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(_unknown(name))


sys.modules[__name__].__class__ = _Config
