"""Show our warnings at the line of the program that calls the compiled function."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

from torchdynamo.hook.frames import is_program


def warn_user(text: str, category: type[Warning]) -> None:
    """Show a warning at the program's innermost active call, or at our caller's if there is none."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and not is_program(frame.f_code):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level if frame is not None else 2)
