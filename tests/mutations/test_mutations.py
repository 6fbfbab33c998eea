"""Whatever a captured program rests on may change between two calls: the result is eager's, and compiles stay few."""

from __future__ import annotations

import mutations_classes  # noqa: F401 - fills the table
import mutations_modules  # noqa: F401
import mutations_python  # noqa: F401
import mutations_torch  # noqa: F401
import pytest
from mutating import ROWS, Row, follow


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)
def test_change_is_seen(row: Row) -> None:
    follow(row)


def test_the_table_is_full() -> None:
    assert len(ROWS) >= 60
    assert len({row.__name__ for row in ROWS}) == len(ROWS)
