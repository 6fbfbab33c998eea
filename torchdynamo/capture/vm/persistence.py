"""Find objects that last from call to call: a module's, an optimizer's, a global's, a closure's.

An argument that is none of these may well be another object next time.
"""

from __future__ import annotations

from collections.abc import Container

from torch.nn import Module
from torch.optim import Optimizer

from torchdynamo.core.source import Roots, Source

LASTING = (Module, Optimizer)


def lasts(roots: Roots, source: Source | None, own: Container[str]) -> bool:
    """Return whether what a source leads to outlives the call; closure variables of the frame itself (`own`) do not."""
    while source is not None:
        if source.base is None:
            if source.how == "closure" and source.arg in own:
                return False
            return source.how != "local" or isinstance(source.load(roots), LASTING)
        if isinstance(source.load(roots), LASTING):
            return True
        source = source.base
    return False
