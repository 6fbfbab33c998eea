"""Assertions as Python compiles them: pytest writes those of test modules anew."""

from __future__ import annotations

from typing import Any


def asserted(x: Any, n: Any) -> Any:
    """About what a tensor holds."""
    assert (n > 2).all(), "too small"
    assert n.item() < 9
    return x + n
