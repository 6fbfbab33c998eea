"""Keep the modes under which a graph was captured as data, and set them again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch

from torchdynamo.backends.ensemble.graph_data import GraphDecoder, GraphEncoder
from torchdynamo.graph.modes import Modes


class CaptureModes(NamedTuple):
    """The modes that a graph's results and speed depend on."""

    grad: bool
    inference: bool
    autocast: tuple[tuple[str, bool, torch.dtype], ...]
    autocast_cache: bool
    deterministic: bool

    @classmethod
    def now(cls) -> CaptureModes:
        """Return the current modes."""
        modes, inference = Modes.now(), torch.is_inference_mode_enabled()
        deterministic = torch.are_deterministic_algorithms_enabled()
        return cls(modes.grad, inference, modes.autocast, modes.autocast_cache, deterministic)

    def as_data(self) -> dict[str, Any]:
        """Return the modes as JSON has them."""
        return {name: GraphEncoder({})(value) for name, value in self._asdict().items()}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> CaptureModes:
        """Return the modes that data stands for. Raises RecordError, KeyError, ValueError or TypeError for others."""
        found = {name: GraphDecoder()(data[name]) for name in cls._fields}
        autocast = tuple((str(device), bool(enabled), dtype) for device, enabled, dtype in found.pop("autocast"))
        return cls(autocast=autocast, **{name: bool(value) for name, value in found.items()})

    @contextlib.contextmanager
    def set(self) -> Iterator[None]:
        """Set these modes for the length of the block."""
        before, deterministic = Modes.now(), torch.are_deterministic_algorithms_enabled()
        warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
        wanted: dict[str, Any] = {name: getattr(self, name) for name in ("grad", "autocast", "autocast_cache")}
        try:
            with torch.inference_mode(self.inference):
                Modes.now()._replace(**wanted).restore()
                torch.use_deterministic_algorithms(self.deterministic)
                yield
        finally:
            before.restore()
            torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
