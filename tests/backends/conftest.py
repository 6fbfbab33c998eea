"""What tests of recorded graphs share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_cuda_graphs import FakeDevice

import torchdynamo
from torchdynamo.backends.cuda_graphs.device import DEVICES


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDevice]:
    """A stand-in for CUDA graphs on the CPU, for one test."""
    torchdynamo.reset()
    found = FakeDevice()
    monkeypatch.setitem(DEVICES, "cpu", found)
    yield found
    torchdynamo.reset()
