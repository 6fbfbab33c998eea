"""Warnings of ours, at the line of the program that they are about: where it calls what is compiled."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

from torchdynamo.hook.frames import is_program


def warn_user(text: str, category: type[Warning]) -> None:
    """Give a warning at the innermost call of the program that is under way; outside of any, at our caller's."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and not is_program(frame.f_code):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level if frame is not None else 2)
