"""A store of captures of each test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from torchdynamo import warm_start


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is in use as the store, and does not exist yet."""
    folder = tmp_path / "store"
    monkeypatch.setenv("TORCHDYNAMO_CACHE", "1")
    monkeypatch.setenv("TORCHDYNAMO_CACHE_DIR", str(folder))
    warm_start._complained.clear()
    yield folder
    warm_start._complained.clear()
