"""Kinds of guards, one file each: the meaning in Python, and the check of the native program."""

from __future__ import annotations

import importlib
import pkgutil

from torchdynamo.guards.kind import GuardKind

KINDS: dict[str, GuardKind] = {}
for _module in pkgutil.iter_modules(__path__):
    _kind: GuardKind = importlib.import_module(f"{__name__}.{_module.name}").KIND
    KINDS[_kind.name] = _kind
