"""How symbolic execution leaves an instruction early."""

from __future__ import annotations

from enum import Enum
from typing import Any

from torchdynamo.core.value import Object

# Where a capture stops: the step of the root frame, then that of the frame which it calls there, and so on.
StopPath = tuple[int, ...]


class Break(Exception):
    """Capture cannot continue past the current instruction. Names a row of core/reasons.py and fills its fields."""

    def __init__(self, reason: str, **fields: Any) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fields = fields
        self.where: Any = None  # Position of the innermost frame, filled in as it passes
        self.callers: tuple[Any, ...] = ()  # Positions of the calls that led there, outermost first
        self.raises = False  # the program itself is going to raise there, as far as can be told
        self.restart: StopPath = ()  # where the next try must stop; nothing if there is no such place
        self.inner: list[Any] = []  # the frames that return straight to one another, up to where it broke; not the root


class Raised(Exception):
    """The user's program raises here: a Python exception, as a symbolic object."""

    def __init__(self, value: Object) -> None:
        super().__init__(value)
        self.value = value


class Assumption(Enum):
    """What a capture presumes until it turns out wrong, and a later one of the frame does not."""

    LAYOUTS = "tensors lie in memory as those of their sizes do"
    CACHES = "functions with a cache are called anew for each number"
    AHEAD = "functions called ahead of time, on both sides of a branch, do nothing else"
    SLICES = "slices take all that they ask for"
    ADDRESSES = "no key of a dict of numbers is the id of an object"
    MARKED = "functions marked by torch.compile's allow_in_graph can be followed"


class Retry(Exception):
    """Capture must be done again from the start, without a presumption."""

    def __init__(self, without: Assumption) -> None:
        super().__init__(without)
        self.without = without


class Stop(Exception):
    """The step was reached at which this capture is to end."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[Any] = []  # that are left, the innermost first


class Restart(Exception):
    """Capture must be done again from the start of the frame, and stop at an earlier step of the root."""

    def __init__(self, step: int, what: str = "a value that cannot be made again") -> None:
        super().__init__(step)
        self.step = step
        self.what = what


class NotYet(Exception):
    """The program sets something up that cannot be followed: this call runs eagerly, the next is captured."""
