"""Fake tensors for tensors that exist when the graph starts.

Most are a module's parameters, of which a model has hundreds with a few different shapes: the first of each kind is
made by torch, the others after its pattern. What torch has to look at more closely (views, numbers, what has a
gradient, what shares memory with another) it always makes itself.
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
    """Those of one graph."""

    def __init__(self, likenesses: KnownMetadata) -> None:
        self.likenesses = likenesses
        self._patterns: dict[Any, Pattern | None] = {}
        self._memory: dict[int, torch.UntypedStorage] = {}  # of all so far, by address
        self._untold: list[tuple[torch.Tensor, torch.Tensor]] = []  # made here, which torch has not heard of

    def stand_in(self, mode: FakeTensorMode, tensor: torch.Tensor, origin: torch_compat.TorchSource) -> torch.Tensor:
        """Return the fake tensor of a tensor, which has nothing to do with layers of torch.func that may be open."""
        with torch._C._DisableFuncTorch():
            return self.made(mode, tensor, origin)

    def made(self, mode: FakeTensorMode, tensor: torch.Tensor, origin: torch_compat.TorchSource) -> torch.Tensor:
        """Return the same, where none is."""
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
                    self._untold.append((tensor, fake))
                    self.likenesses.note(fake, pattern.likeness)
                    return fake
        for each, made in self._untold:
            torch_compat.introduce(mode, each, made)
        self._untold.clear()
        fake = mode.from_tensor(tensor, static_shapes=True, source=origin, trace=False)
        if kind is not None and kind not in self._patterns:
            self._patterns[kind] = pattern_of(fake, self.likenesses, shared=False)
        return fake

    def forget_tensors(self) -> None:
        """Drop the real tensors, and their memory."""
        self._untold.clear()
        self._memory.clear()


def is_plain(tensor: torch.Tensor, memory: torch.UntypedStorage) -> bool:
    """Return whether a tensor is nothing but numbers in memory of its own."""
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
