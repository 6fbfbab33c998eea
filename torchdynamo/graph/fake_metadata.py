"""Remember the metadata of fake tensors, and make further fake tensors from it.

A fake tensor results from a long computation but consists of metadata alone: one with known metadata can be made at a
hundredth of the cost.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from torchdynamo import _native
from torchdynamo.graph import torch_compat


class FakeMetadata:
    """The metadata of a fake tensor, interned: equal metadata is the same object."""

    __slots__ = ("device", "dtype", "facts", "offset", "requires_grad", "sizes", "strides")

    def __init__(self, facts: tuple[Any, ...]) -> None:
        self.facts: Final = facts
        self.sizes, self.strides, self.offset, _, self.dtype, self.device, self.requires_grad = facts[:7]


class KnownMetadata:
    """The metadata of the fake tensors of one fake mode."""

    def __init__(self) -> None:
        self._all: dict[tuple[Any, ...], FakeMetadata] = {}
        # id -> the fake tensor, kept alive so that the id stays its own, and its metadata
        self._of: dict[int, tuple[torch.Tensor, FakeMetadata]] = {}

    def of(self, fake: Any) -> FakeMetadata | None:
        """Return the metadata of a fake tensor; None if it consists of more than metadata."""
        known = self._of.get(id(fake))
        if known is not None:
            return known[1]
        metadata = self.measure(fake)
        if metadata is not None:
            self._of[id(fake)] = fake, metadata
        return metadata

    def measure(self, fake: Any) -> FakeMetadata | None:
        """Read the metadata off a fake tensor; None if it consists of more than metadata."""
        if type(fake) is not torch_compat.fake_tensor_type() or fake.layout is not torch.strided:
            return None
        sizes, strides, offset = tuple(fake.shape), fake.stride(), fake.storage_offset()
        bytes_ = fake.untyped_storage().nbytes()
        if not all(type(number) is int for number in (*sizes, *strides, offset, bytes_)):
            return None
        if not torch_compat.is_only_metadata(fake):
            return None
        # The dispatch keys say whether it is conjugated, made in inference mode, wrapped by a transform, ...
        _, keys, *_ = _native.tensor_meta(fake)
        try:
            leaf = fake.is_leaf
        except RuntimeError:  # raised for a view that has lost its history
            return None
        more = keys, leaf, isinstance(fake, torch.nn.Parameter)
        facts = (sizes, strides, offset, bytes_, fake.dtype, fake.device, fake.requires_grad, *more)
        metadata = self._all.get(facts)
        if metadata is None:
            metadata = self._all[facts] = FakeMetadata(facts)
        return metadata

    def note(self, fake: torch.Tensor, metadata: FakeMetadata) -> None:
        """Record the metadata of a fake tensor that was just made."""
        self._of[id(fake)] = fake, metadata

    def forget(self) -> None:
        """Forget all fake tensors, because their metadata may have changed."""
        self._of.clear()


class Pattern:
    """A template from which fake tensors with the same metadata are made."""

    __slots__ = ("metadata", "state")

    def __init__(self, state: dict[str, Any], metadata: FakeMetadata) -> None:
        self.state = state
        self.metadata = metadata

    def make(self, memory: torch.UntypedStorage | None = None) -> torch.Tensor:
        """Return a new fake tensor, in this memory or in memory of its own."""
        like = self.metadata
        return torch_compat.make_fake(
            self.state, like.sizes, like.strides, like.offset, like.dtype, like.device, like.requires_grad, memory
        )


def pattern_of(fake: torch.Tensor, known: KnownMetadata, shared: bool) -> Pattern | None:
    """Return the template of a fake tensor; None if a tensor made from it would not be equal, which is tried."""
    metadata = known.of(fake)
    if metadata is None:
        return None
    pattern = Pattern(torch_compat.state_of(fake), metadata)
    try:
        twin = pattern.make(fake.untyped_storage() if shared else None)
    except RuntimeError:
        return None
    return pattern if known.measure(twin) is metadata else None
