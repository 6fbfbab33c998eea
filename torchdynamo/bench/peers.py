"""PyTorch's own front end, to be measured beside this one; nothing else of the package calls it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

NAME = "torch.compile"


def compiled(model: Any, options: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a model compiled by torch.compile. options: its keyword arguments."""
    return torch.compile(model, **options)
