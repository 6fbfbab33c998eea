"""Show our warnings at the line of the program that calls the compiled function, and record them."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

from torchdynamo import events
from torchdynamo.errors import CacheLimitWarning, FallbackWarning
from torchdynamo.events import Place
from torchdynamo.hook.frames import is_program

_KINDS: dict[type[Warning], events.Kind] = {FallbackWarning: "fallback", CacheLimitWarning: "limit"}


def warn_user(text: str, category: type[Warning], graph: str = "") -> None:
    """Show a warning at the program's innermost active call, or at our caller's if there is none.

    graph: the name of the graph that it is about, for reports.
    """
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and not is_program(frame.f_code):
        frame, level = frame.f_back, level + 1
    kind = _KINDS.get(category)
    if kind is not None:
        at = frame or sys._getframe(1)
        events.record(kind, Place(at.f_code.co_filename, at.f_lineno or 0, at.f_code.co_name), text, graph=graph)
    warnings.warn(text, category, stacklevel=level if frame is not None else 2)
