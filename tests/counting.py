"""A backend that counts what it is asked to compile."""

from __future__ import annotations

from typing import Any

import torchdynamo


class Counting:
    """A backend, by default the eager one, counting graphs."""

    def __init__(self, backend: str = "eager") -> None:
        self.graphs: list[Any] = []
        self.backend = torchdynamo.optimizations.BACKENDS[backend]

    def __call__(self, gm: Any, inputs: Any) -> Any:
        self.graphs.append(gm)
        return self.backend(gm, inputs)
