"""Fields of tuples that have names: of namedtuple, and of C's structure sequences."""

from __future__ import annotations

import collections
import types
from typing import Any

from torchdynamo.capture.types.sequence import items_of, read
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import FIELD
from torchdynamo.core.value import Value

_Pair = collections.namedtuple("_Pair", "first second")
GETTER: type = type(_Pair.__dict__["first"])


def place(cls: Any, name: str, found: Any) -> int | None:
    """Return the index of the item that the class's attribute `found` reads; None if it reads none."""
    if type(found) is GETTER:
        parts: Any = found.__reduce__()
        return parts[1][0]
    if type(found) is types.MemberDescriptorType and hasattr(cls, "n_sequence_fields"):
        names = getattr(cls, "__match_args__", ())
        return names.index(name) if name in names else None
    return None


@FIELD.register(tuple)
def field(vm: Machine, self: Value, name: str, found: Any) -> Value | None:
    """Return the field of that name; None where the attribute is something else."""
    at = place(self.pytype, name, found)
    return None if at is None else read(vm, items_of(vm, self), at)
