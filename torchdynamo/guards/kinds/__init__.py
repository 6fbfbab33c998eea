"""One file for each kind of guard: its meaning in Python, and what the native program checks for it."""

from __future__ import annotations

import importlib
import pkgutil

from torchdynamo.guards.kind import GuardKind

KINDS: dict[str, GuardKind] = {}
for _module in pkgutil.iter_modules(__path__):
    _kind: GuardKind = importlib.import_module(f"{__name__}.{_module.name}").KIND
    KINDS[_kind.name] = _kind
