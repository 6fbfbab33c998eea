"""Entries that come from the store see changes as others do: the table of mutations, once more."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

import torchdynamo
from torchdynamo import _native, events

sys.path.append(str(Path(__file__).parents[1] / "mutations"))

import mutations_classes  # noqa: F401 - fills the table
import mutations_enums  # noqa: F401
import mutations_found  # noqa: F401
import mutations_functions  # noqa: F401
import mutations_metaclasses  # noqa: F401
import mutations_modules  # noqa: F401
import mutations_patched  # noqa: F401
import mutations_python  # noqa: F401
import mutations_torch  # noqa: F401
from mutating import ROWS, Row, outcome
from mutations_keys import KEYS
from mutations_memory import MEMORY
from mutations_namespaces import NAMESPACES
from mutations_settings import SETTINGS
from mutations_views import VIEWS
from pictures import difference

ALL = [*ROWS, *VIEWS, *NAMESPACES, *MEMORY, *KEYS, *SETTINGS]
COUNTS = {"rows": 0, "loaded": 0}


pytestmark = pytest.mark.usefixtures("store")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "row",
    [*ALL[::6], *(pytest.param(row, marks=pytest.mark.long) for at, row in enumerate(ALL) if at % 6)],
    ids=lambda row: row.__name__,
)
def test_change_is_seen_by_an_entry_that_was_loaded(row: Row) -> None:
    """The row's first call stores an entry; as if in another process, the next one loads it; then the change comes."""
    torchdynamo.reset()
    case = row()
    with ExitStack() as stack:
        before = outcome(case.fn, case.args())
        assert outcome(torchdynamo.compile(case.fn, backend="eager"), case.args()) == before
        torchdynamo.reset()
        compiled = torchdynamo.compile(case.fn, backend="eager")
        assert outcome(compiled, case.args()) == before
        COUNTS["rows"] += 1
        COUNTS["loaded"] += any(event.stored == "hit" for event in events.recent())
        assert outcome(compiled, case.args()) == before
        case.change(stack)
        given = outcome(compiled, case.args()) if row in SETTINGS else None
        after = outcome(case.fn, case.args())
        given = given or outcome(compiled, case.args())
        assert given == after, difference(after, given)
        _native.clear_all()  # another process, after the change
        again = outcome(compiled, case.args())
        assert again == after, difference(after, again)


def test_most_of_the_table_is_loaded() -> None:
    assert COUNTS["loaded"] > 0.75 * COUNTS["rows"], COUNTS
