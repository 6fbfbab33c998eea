"""Whatever a captured program rests on may change between two calls: the result is eager's, and compiles stay few."""

from __future__ import annotations

import mutations_classes  # noqa: F401 - fills the table
import mutations_enums  # noqa: F401
import mutations_found  # noqa: F401
import mutations_functions  # noqa: F401
import mutations_metaclasses  # noqa: F401
import mutations_modules  # noqa: F401
import mutations_patched  # noqa: F401
import mutations_python  # noqa: F401
import mutations_torch  # noqa: F401
import pytest
from mutating import ROWS, Row, follow
from mutations_keys import KEYS
from mutations_memory import MEMORY
from mutations_namespaces import NAMESPACES
from mutations_settings import SETTINGS
from mutations_views import VIEWS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)
def test_change_is_seen(row: Row) -> None:
    follow(row)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("row", VIEWS, ids=lambda row: row.__name__)
def test_change_of_views_is_seen(row: Row, backend: str) -> None:
    follow(row, backend)


@pytest.mark.parametrize("row", [*NAMESPACES, *MEMORY], ids=lambda row: row.__name__)
def test_another_name_is_seen(row: Row) -> None:
    follow(row)


@pytest.mark.parametrize("row", KEYS, ids=lambda row: row.__name__)
def test_another_key_is_seen(row: Row) -> None:
    follow(row)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("row", SETTINGS, ids=lambda row: row.__name__)
def test_another_setting_is_seen(row: Row) -> None:
    follow(row, first=True)


def test_the_table_is_full() -> None:
    rows = [*ROWS, *VIEWS, *NAMESPACES, *MEMORY, *KEYS, *SETTINGS]
    assert len(rows) >= 200
    assert len({row.__name__ for row in rows}) == len(rows)
