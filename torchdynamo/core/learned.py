"""One record for each code object of what calls have shown of it; `forget` clears the table of them.

Data only: each field is written and read where its subject is, which the field names.
"""

from __future__ import annotations

from types import CodeType
from typing import Any

from torchdynamo.bytecode.percode import PerCode
from torchdynamo.core.source import Source

NOWHERE: frozenset[Source] = frozenset()


class Account:
    """What one compiler has spent on a code object, and what came of it. cache/budget.py"""

    __slots__ = (
        "barren",
        "compiled",
        "granted_at",
        "missed",
        "on_credit",
        "operators",
        "refused",
        "seconds",
        "served",
        "served_before",
        "waited",
    )

    def __init__(self, granted_at: int) -> None:
        self.compiled = 0  # versions, those that are gone too
        self.served = 0  # calls, by versions that are gone
        self.served_before = 0  # calls, when the newest version was made
        self.waited = False  # for what was met late to come again
        self.refused = 0  # times
        self.granted_at = granted_at  # refusals
        self.missed = 0  # calls at the limit of versions that none of them served
        self.barren = 0  # captures in a row that found no operator on tensors
        self.operators = 0  # of the largest version
        self.seconds = 0.0  # that the last capture took
        self.on_credit = False  # the next capture is


class CodeRecord:
    """What is known of a code object that has run."""

    __slots__ = (
        "accounts",
        "drawn",
        "first_runs",
        "given",
        "not_speculated",
        "ran_eagerly",
        "results",
        "returned",
        "taken",
        "varied",
        "written_before",
    )

    def __init__(self) -> None:
        self.accounts: dict[int, Account] = {}  # by owner
        self.first_runs = 0  # that set something up: first_run.py
        self.not_speculated = False  # a check of it failed and nothing was raised: capture/speculate/assertions.py
        self.ran_eagerly = False  # once, under a stance that wants that: stances.py
        # What was found to vary in any piece of a function as written, by owner: cache/dynamic_sources.py
        self.varied: dict[int, frozenset[Source]] = {}
        # What was written before a continuation, by owner and name: capture/speculate/self_invalidation.py
        self.written_before: frozenset[tuple[int, Any]] = frozenset()
        # Numbers, sizes and texts that are others in another call: codegen/dynamism_across_breaks.py
        self.given = NOWHERE  # among the variables
        self.drawn = NOWHERE  # variables of a continuation, in which all numbers are such
        self.returned = NOWHERE  # variables of a continuation that hold what a call of Python's returned
        self.taken: tuple[tuple[Source, CodeType], ...] = ()  # the same, of a function that has a record
        self.results = NOWHERE  # in the result


_records: PerCode[CodeRecord] = PerCode()


def record(code: CodeType) -> CodeRecord:
    """Return the record of a code object, made when it is first asked for."""
    found = _records.get(code)
    if found is None:
        _records.set(code, found := CodeRecord())
    return found


def forget() -> None:
    """Know nothing of any code object, as if nothing had run."""
    _records.clear()
