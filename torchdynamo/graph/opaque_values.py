"""Classes that are registered with PyTorch as opaque values: equal objects are interchangeable, and none changes."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any


def _none(cls: Any) -> bool:
    return False


def _registry() -> Callable[[Any], bool]:
    """Return torch's answer to whether a class is one; some versions have no such classes."""
    if importlib.util.find_spec("torch._library.opaque_object") is None:
        return _none
    from torch._library import opaque_object

    return getattr(opaque_object, "is_opaque_value_type", _none)


is_opaque_value: Callable[[Any], bool] = _registry()
