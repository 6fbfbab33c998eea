"""Write a report as one HTML file that needs no network."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any


def page(report: Mapping[str, Any], *, redact: bool = False) -> str:
    """Return the HTML file of a report: see `document.py`, which is imported here, since that takes 50 ms."""
    text: str = import_module("torchdynamo.report.page.document").page(report, redact=redact)
    return text


__all__ = ["page"]
