"""The same changes under the ensemble, behind copies of the parameters that a careless member would go on using."""

from __future__ import annotations

import mutations_modules
import mutations_torch
import pytest
from backends.ensemble.conftest import always_freezing, compete  # noqa: F401
from mutating import ROWS, Row, follow

# The table may have more rows by now, of files that other tests import.
FILES = (mutations_modules.__name__, mutations_torch.__name__)


@pytest.mark.usefixtures("always_freezing")
@pytest.mark.parametrize("row", [row for row in ROWS if row.__module__ in FILES], ids=lambda row: row.__name__)
def test_change_is_seen_behind_constants(row: Row) -> None:
    follow(row, "ensemble", options={"constants": True, "tune": "now"})
