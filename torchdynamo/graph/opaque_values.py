"""Classes of opaque values, as PyTorch calls them: equal objects are interchangeable, and none changes.

PyTorch has a registry of them. Placements of distributed tensors were such values before they were entered there.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import Any


def _none(cls: Any) -> bool:
    return False


def _registry() -> Callable[[Any], bool]:
    """Return torch's answer to whether a class is one; some versions have no such classes."""
    if importlib.util.find_spec("torch._library.opaque_object") is None:
        return _none
    from torch._library import opaque_object

    before = getattr(opaque_object, "is_opaque_value_type", _none)  # an older name: newer versions warn of it
    return getattr(opaque_object, "is_opaque_constant_type", before)


is_registered: Callable[[Any], bool] = _registry()
PLACEMENTS = "torch.distributed.tensor.placement_types"


def is_opaque_value(cls: Any) -> bool:
    """Return whether a class is one of opaque values."""
    return is_registered(cls) or (getattr(cls, "__module__", None) == PLACEMENTS and is_placement(cls))


def is_placement(cls: type) -> bool:
    """Return whether a class is one of torch's placements of distributed tensors."""
    module = sys.modules[PLACEMENTS]
    return module.__dict__.get(cls.__name__) is cls and issubclass(cls, module.Placement)
