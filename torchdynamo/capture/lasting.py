"""What lasts from call to call: a module's, a global's, a closure's. An argument may well be another one next time."""

from __future__ import annotations

from collections.abc import Container

import torch

from torchdynamo.capture.source import Roots, Source


def lasts(roots: Roots, source: Source | None, own: Container[str]) -> bool:
    """Whether what lives there belongs to something that outlives the call; `own` variables are made in each call."""
    while source is not None:
        if source.base is None:
            if source.how == "closure" and source.arg in own:
                return False
            return source.how != "local" or isinstance(source.load(roots), torch.nn.Module)
        if isinstance(source.load(roots), torch.nn.Module):
            return True
        source = source.base
    return False
