"""Guard that patterns take the instances of a class for sequences, for mappings, or for neither.

`collections.abc.Sequence.register` and its kin change that by a flag of the class, of which its attributes do not tell.
"""

from __future__ import annotations

from torchdynamo._native import collection_flags
from torchdynamo.capture.ops.matching import MAPPING, SEQUENCE
from torchdynamo.guards.kind import GuardDifference, GuardKind, by_node

_TEXTS = {0: "neither", SEQUENCE: "a sequence", MAPPING: "a mapping"}

KIND = GuardKind(
    "COLLECTION",
    holds=lambda value, arg, roots: collection_flags(value) == arg,
    lower=by_node("collection"),
    why=lambda value, arg, roots: GuardDifference("", _TEXTS[arg], _TEXTS.get(collection_flags(value), "no class")),
    describe=lambda arg: _TEXTS[arg],
)
