"""A store of captures of each test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from torchdynamo.cache.store import places


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is in use as the store, and does not exist yet."""
    folder = tmp_path / "store"
    monkeypatch.setenv("TORCHDYNAMO_CACHE", "1")
    monkeypatch.setenv("TORCHDYNAMO_CACHE_DIR", str(folder))
    places.complain.cache_clear()
    yield folder
    places.complain.cache_clear()
