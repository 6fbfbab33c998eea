"""Process state that a graph may change while it runs: grad mode, autocast, and which layers of torch.func are open."""

from __future__ import annotations

from typing import NamedTuple

import torch

from torchdynamo.graph import torch_compat

_DEVICES = ("cpu", "cuda")


class Modes(NamedTuple):
    """As they are at one time."""

    grad: bool
    autocast: tuple[tuple[str, bool, torch.dtype], ...]
    autocast_cache: bool
    forward_grad: bool
    layers: int

    @classmethod
    def now(cls) -> Modes:
        """Return the modes as they stand."""
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
        """Set them back. Layers that were closed since stay closed."""
        torch_compat.close_layers(self.layers)
        torch._C._set_fwd_grad_enabled(self.forward_grad)
        torch._C._set_grad_enabled(self.grad)
        for device, enabled, dtype in self.autocast:
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
        torch.set_autocast_cache_enabled(self.autocast_cache)
