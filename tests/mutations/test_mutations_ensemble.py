"""The same changes under the ensemble, behind copies of the parameters that a careless member would go on using."""

from __future__ import annotations

import mutations_modules  # noqa: F401 - fills the table
import mutations_torch  # noqa: F401
import pytest
from backends.ensemble.conftest import always_freezing, compete  # noqa: F401
from mutating import ROWS, Row, follow


@pytest.mark.usefixtures("always_freezing")
@pytest.mark.parametrize("row", list(ROWS), ids=lambda row: row.__name__)
def test_change_is_seen_behind_constants(row: Row) -> None:
    follow(row, "ensemble", options={"constants": True, "tune": "now"})
