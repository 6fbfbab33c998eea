"""What profilers do: a function of nn.Module's own is wrapped, for all modules."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo.report.explain import collecting


@pytest.mark.parametrize("name", ["__call__", "_call_impl"])
def test_wrapped_once_and_compiled_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    own = getattr(torch.nn.Module, name)

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(type(self).__name__)
        return own(self, *args, **kwargs)

    monkeypatch.setattr(torch.nn.Module, name, wrapper)
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    x = torch.randn(2, 3)
    want = model(x) + 1
    asked = list(seen)
    fast = torchdynamo.compile(lambda x: model(x) + 1, backend="eager", fullgraph=True)
    seen.clear()
    with collecting() as events:
        assert all(torch.equal(fast(x), want) for _ in range(3))
    assert seen == asked * 3
    assert len(events) == 1
