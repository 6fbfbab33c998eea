"""Hold guards on one object against others of its kind, natively: see capture/vm/repeated_calls.py."""

from __future__ import annotations

from typing import Any

from torchdynamo.capture.vm.call_records import BLOCK, Holds
from torchdynamo.core.source import Guard, Roots
from torchdynamo.guards.program import complete, lower


def of_a(block: Any) -> None:
    """Stand for the frame whose argument the object is."""


def checking_of_blocks(guards: list[Guard], block: Any) -> Holds:
    """Return a function that says whether guards, which hold for an object, hold for another one as well."""
    program = lower(complete(guards, Roots({BLOCK: block}, {}, {}, {})), (), of_a.__code__)

    def holds(other: Any) -> bool:
        return program.check({BLOCK: other}, {}, {})

    return holds
