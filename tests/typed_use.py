"""What a type checker knows of compiled functions: `make lint` runs mypy on this file."""

from __future__ import annotations

import torch
from typing_extensions import assert_type

import torchdynamo


@torchdynamo.optimize("eager")
def optimized(x: torch.Tensor, count: int = 2) -> torch.Tensor:
    return x * count


@torchdynamo.compile(backend="eager", fullgraph=True)
def compiled(x: torch.Tensor) -> tuple[torch.Tensor, int]:
    return x + 1, 3


@torchdynamo.run()
def only_run(x: torch.Tensor) -> torch.Tensor:
    return x - 1


class Double(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def use(x: torch.Tensor) -> Double:
    """Return a compiled module, of its own type."""
    assert_type(optimized(x, count=3), torch.Tensor)
    assert_type(compiled(x), tuple[torch.Tensor, int])
    assert_type(only_run(x), torch.Tensor)
    model = torchdynamo.optimize("eager")(Double())
    assert_type(model, Double)
    assert_type(torchdynamo.compile(Double(), backend="eager"), Double)
    return model


def wrong(x: torch.Tensor) -> None:
    """Hold what a type checker refuses: an unused `ignore` would be an error."""
    optimized("x")  # type: ignore[arg-type]
    compiled(x, 3)  # type: ignore[call-arg]
    torchdynamo.optimize("eager")(3)  # type: ignore[type-var]
