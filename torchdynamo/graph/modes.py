"""Read and restore process state that a graph may change: grad mode, autocast, torch.func transforms."""

from __future__ import annotations

from typing import NamedTuple

import torch

from torchdynamo.graph import torch_compat

_DEVICES = ("cpu", "cuda")


class Modes(NamedTuple):
    """A snapshot of grad mode, autocast, forward-mode differentiation and the number of active transforms."""

    grad: bool
    autocast: tuple[tuple[str, bool, torch.dtype], ...]
    autocast_cache: bool
    forward_grad: bool
    layers: int

    @classmethod
    def now(cls) -> Modes:
        """Return the current modes."""
        autocast = tuple(
            (device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in _DEVICES
        )
        return cls(
            torch.is_grad_enabled(),
            autocast,
            torch.is_autocast_cache_enabled(),
            torch._C._is_fwd_grad_enabled(),
            torch_compat.count_layers(),
        )

    def restore(self) -> None:
        """Restore these modes. Transforms that have been left since stay left."""
        torch_compat.close_layers(self.layers)
        torch._C._set_fwd_grad_enabled(self.forward_grad)
        torch._C._set_grad_enabled(self.grad)
        for device, enabled, dtype in self.autocast:
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
        torch.set_autocast_cache_enabled(self.autocast_cache)
