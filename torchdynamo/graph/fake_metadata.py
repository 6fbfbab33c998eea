"""What is known of a fake tensor without asking it again, and the making of another just like it.

A fake tensor is the answer to a long computation, but nothing in it is more than metadata: one with the same metadata
can be made at a hundredth of the cost.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from torchdynamo import _native
from torchdynamo.graph import torch_compat


class FakeMetadata:
    """The metadata of a fake tensor. There is one of each, so equal ones are the same object."""

    __slots__ = ("device", "dtype", "facts", "offset", "requires_grad", "sizes", "strides")

    def __init__(self, facts: tuple[Any, ...]) -> None:
        self.facts: Final = facts
        self.sizes, self.strides, self.offset, _, self.dtype, self.device, self.requires_grad = facts[:7]


class KnownMetadata:
    """Those of one world of fake tensors."""

    def __init__(self) -> None:
        self._all: dict[tuple[Any, ...], FakeMetadata] = {}
        self._of: dict[
            int, tuple[torch.Tensor, FakeMetadata]
        ] = {}  # by id; the fake tensor is kept so that its id is its own

    def of(self, fake: Any) -> FakeMetadata | None:
        """Return what a fake tensor is like; None where there is more to it than metadata."""
        known = self._of.get(id(fake))
        if known is not None:
            return known[1]
        likeness = self.measure(fake)
        if likeness is not None:
            self._of[id(fake)] = fake, likeness
        return likeness

    def measure(self, fake: Any) -> FakeMetadata | None:
        """Return the same, read off the fake tensor."""
        if type(fake) is not torch_compat.fake_tensor_type() or fake.layout is not torch.strided:
            return None
        sizes, strides, offset = tuple(fake.shape), fake.stride(), fake.storage_offset()
        bytes_ = fake.untyped_storage().nbytes()
        if not all(type(number) is int for number in (*sizes, *strides, offset, bytes_)):
            return None
        if not torch_compat.is_mere_metadata(fake):
            return None
        # The dispatch keys say whether it is conjugated, made in inference mode, wrapped by a transform, ...
        _, keys, *_ = _native.tensor_meta(fake)
        try:
            leaf = fake.is_leaf
        except RuntimeError:  # a view that has lost its history: whoever looks for it is told so
            return None
        more = keys, leaf, isinstance(fake, torch.nn.Parameter)
        facts = (sizes, strides, offset, bytes_, fake.dtype, fake.device, fake.requires_grad, *more)
        likeness = self._all.get(facts)
        if likeness is None:
            likeness = self._all[facts] = FakeMetadata(facts)
        return likeness

    def note(self, fake: torch.Tensor, likeness: FakeMetadata) -> None:
        """Note a fake tensor that was just made."""
        self._of[id(fake)] = fake, likeness

    def forget(self) -> None:
        """Forget the metadata of fake tensors, which something may have changed."""
        self._of.clear()


class Pattern:
    """How to make fake tensors like one that was made the long way."""

    __slots__ = ("likeness", "state")

    def __init__(self, state: dict[str, Any], likeness: FakeMetadata) -> None:
        self.state = state
        self.likeness = likeness

    def make(self, memory: torch.UntypedStorage | None = None) -> torch.Tensor:
        """Return one more, with memory of its own or in this one."""
        like = self.likeness
        return torch_compat.stand_in(
            self.state, like.sizes, like.strides, like.offset, like.dtype, like.device, like.requires_grad, memory
        )


def pattern_of(fake: torch.Tensor, known: KnownMetadata, shared: bool) -> Pattern | None:
    """Return the pattern of a fake tensor, if that is all there is to it: proved by making one."""
    likeness = known.of(fake)
    if likeness is None:
        return None
    pattern = Pattern(torch_compat.state_of(fake), likeness)
    try:
        twin = pattern.make(fake.untyped_storage() if shared else None)
    except RuntimeError:
        return None
    return pattern if known.measure(twin) is likeness else None
