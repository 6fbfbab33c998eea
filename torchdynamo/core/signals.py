"""Exceptions by which symbolic execution leaves an instruction early."""

from __future__ import annotations

from enum import Enum
from typing import Any

from torchdynamo.core.value import Object

# Place where a capture stops: the step of the root frame, then that of the frame it calls there, and so on.
StopPath = tuple[int, ...]


class Break(Exception):
    """Raised where capture cannot continue. Names a row of core/reasons.py and fills its fields."""

    def __init__(self, reason: str, **fields: Any) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fields = fields
        self.where: Any = None  # Position of the innermost frame, set while the exception passes it
        self.callers: tuple[Any, ...] = ()  # Positions of the calls that led there, outermost first
        self.raises = False  # the program itself will probably raise there
        self.is_error = False  # the program has asked for an error where a graph ends there
        self.restart: StopPath = ()  # place where the next try must stop; empty if there is none
        self.inner: list[Any] = []  # inlined frames down to the break whose callers just return their result; no root


class Raised(Exception):
    """Carries a Python exception, as a symbolic object, that the user's program raises."""

    def __init__(self, value: Object) -> None:
        super().__init__(value)
        self.value = value


class Assumption(Enum):
    """An assumption that captures make until it turns out wrong; then the frame is captured again without it."""

    LAYOUTS = "layouts in memory are those of sizes other than 0 and 1"
    CACHES = "functions with a cache are called again for each number"
    AHEAD = "functions called ahead of time, on both sides of a branch, have no side effects"
    SLICES = "slices lie within their tensors"
    ADDRESSES = "no key of a dict of numbers is the id of an object"
    COPIES = "what one way of a captured branch leaves alone is not written to, and does not leave the frame"
    ARRAYS = "arrays that were there are constants, and memory of an array that a tensor shares is not written to"
    BLOCKS = "what ends a graph inside of a block, or of code that leaves it, can run again where the graph raises"
    DRAWS = "a graph that draws from NumPy's generators has no sizes that vary"
    MARKED = "functions marked by torch.compile's allow_in_graph can be inlined"


class Retry(Exception):
    """Raised to capture the frame again from its start, without an assumption."""

    def __init__(self, without: Assumption) -> None:
        super().__init__(without)
        self.without = without


class Stop(Exception):
    """Raised at the step at which this capture is to end."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[Any] = []  # frames that are left, the innermost first


class Restart(Exception):
    """Raised to capture the frame again from its start and stop at an earlier step of the root frame."""

    def __init__(self, step: int, what: str = "a value that cannot be made again") -> None:
        super().__init__(step)
        self.step = step
        self.what = what


class NotYet(Exception):
    """Raised where the program sets something up that cannot be captured: this call runs eagerly,
    the next is captured.
    """
