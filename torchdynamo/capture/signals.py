"""How symbolic execution leaves an instruction early."""

from __future__ import annotations

from typing import Any

from torchdynamo.capture.value import Object


class Break(Exception):
    """Capture cannot continue past the current instruction. Names a row of reasons.py and fills its fields."""

    def __init__(self, reason: str, **fields: Any) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fields = fields
        self.where: Any = None  # Position of the innermost frame, filled in as it passes
        self.restart = -1  # the root step before which the next try must stop; -1 if there is none


class Raised(Exception):
    """The user's program raises here: a Python exception, as a symbolic object."""

    def __init__(self, value: Object) -> None:
        super().__init__(value)
        self.value = value


class Attentive(Exception):
    """Capture must be done again from the start: nothing is presumed of how tensors lie in memory; caches are asked."""


class Stop(Exception):
    """The root frame reached the step at which this capture is to end."""


class Restart(Exception):
    """Capture must be done again from the start of the frame, and stop at an earlier step."""

    def __init__(self, step: int, what: str = "a value that cannot be made again") -> None:
        super().__init__(step)
        self.step = step
        self.what = what


class NotYet(Exception):
    """The program sets something up that cannot be followed: this call runs eagerly, the next is captured."""
