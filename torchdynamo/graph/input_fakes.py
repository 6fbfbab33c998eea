"""Make the fake tensors of tensors that exist when the graph starts.

Most are a module's parameters, of which a model has hundreds with a few different shapes: torch makes the first of each
kind, and the others are made from its template. Tensors that need a closer look (views, 0-dim tensors, tensors with
gradients or shared memory) are always made by torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from torchdynamo import _native
from torchdynamo.graph import torch_compat
from torchdynamo.graph.fake_metadata import KnownMetadata, Pattern, pattern_of
from torchdynamo.graph.recording import storage_of

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode


class InputFakes:
    """Makes the fake tensors of one graph's inputs."""

    def __init__(self, known_metadata: KnownMetadata) -> None:
        self.known_metadata = known_metadata
        self._patterns: dict[Any, Pattern | None] = {}
        self._memory: dict[int, torch.UntypedStorage] = {}  # address -> storage of an input
        self._unregistered: list[
            tuple[torch.Tensor, torch.Tensor]
        ] = []  # made from templates, not yet known to torch's mode

    def fake_of(self, mode: FakeTensorMode, tensor: torch.Tensor, origin: torch_compat.TorchSource) -> torch.Tensor:
        """Return the fake tensor of a tensor, independent of torch.func transforms that are active."""
        with torch._C._DisableFuncTorch():
            return self.made(mode, tensor, origin)

    def made(self, mode: FakeTensorMode, tensor: torch.Tensor, origin: torch_compat.TorchSource) -> torch.Tensor:
        """Return the fake tensor of a tensor, outside of torch.func transforms."""
        memory = storage_of(tensor)
        apart = memory is not None and memory._cdata not in self._memory
        kind: Any = None
        if memory is not None:
            self._memory[memory._cdata] = memory
            if apart and is_plain(tensor, memory):
                kind = _native.tensor_meta(tensor)
                pattern = self._patterns.get(kind)
                if pattern is not None:
                    fake = pattern.make()
                    self._unregistered.append((tensor, fake))
                    self.known_metadata.note(fake, pattern.metadata)
                    return fake
        for each, made in self._unregistered:
            torch_compat.introduce(mode, each, made)
        self._unregistered.clear()
        fake = mode.from_tensor(tensor, static_shapes=True, source=origin, trace=False)
        if kind is not None and kind not in self._patterns:
            self._patterns[kind] = pattern_of(fake, self.known_metadata, shared=False)
        return fake

    def place_if_alike(self, known: torch.Tensor, other: torch.Tensor) -> int | None:
        """Return the address of the memory of `other` if its fake tensor would be made from the template that gave that
        of `known`; else None.
        """
        first, memory = storage_of(known), storage_of(other)
        if first is None or memory is None or memory._cdata in self._memory:
            return None
        if not is_plain(known, first) or not is_plain(other, memory):
            return None
        kind = _native.tensor_meta(other)
        return memory._cdata if kind in self._patterns and kind == _native.tensor_meta(known) else None

    def forget_tensors(self) -> None:
        """Drop the real tensors and their storages."""
        self._unregistered.clear()
        self._memory.clear()


def is_plain(tensor: torch.Tensor, memory: torch.UntypedStorage) -> bool:
    """Return whether a tensor is a leaf that fills memory of its own and has no gradient or attributes."""
    return (
        (type(tensor) is torch.Tensor or type(tensor) is torch.nn.Parameter)
        and tensor.layout is torch.strided
        and tensor.dim() > 0
        and tensor.is_leaf
        and tensor.grad is None
        and not tensor._is_view()
        and not tensor.is_inference()
        and tensor.storage_offset() == 0
        and memory.nbytes() == tensor.nbytes
        and not vars(tensor)
        and torch_compat.has_usual_gradient(tensor)
    )
