"""Keep one record per code object of what its calls have shown; `forget` clears them all.

Data only: each field is written and read by the module that its comment names.
"""

from __future__ import annotations

import weakref
from pathlib import Path
from types import CodeType
from typing import Any, TypeAlias

from torchdynamo.bytecode.percode import PerCode
from torchdynamo.core.source import Source

NOWHERE: frozenset[Source] = frozenset()


class Account:
    """Costs and benefits of compiling a code object, for one owner (a compiler). Used by cache/budget.py."""

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
        "without_tensors",
    )

    def __init__(self, granted_at: int) -> None:
        self.compiled = 0  # entries compiled so far, including dropped ones
        self.served = 0  # calls served by entries that have been dropped
        self.served_before = 0  # calls served when the newest entry was compiled
        self.waited = False  # a capture was put off until its cause comes again
        self.refused = 0  # captures refused
        self.granted_at = granted_at  # number of refusals after which the next capture is granted
        self.missed = 0  # calls at the limit of entries that none of them served
        self.barren = 0  # captures in a row that found no operator on tensors
        self.without_tensors = 0  # calls found without a tensor in reach
        self.operators = 0  # operators of the largest entry
        self.seconds = 0.0  # duration of the last capture
        self.on_credit = False  # the next capture is granted before it has been earned


class CodeRecord:
    """Facts learned about a code object from its calls."""

    __slots__ = (
        "accounts",
        "drawn",
        "filled_caches",
        "first_runs",
        "given",
        "graphs",
        "left_to_raise",
        "not_speculated",
        "number",
        "raising",
        "ran_with",
        "results",
        "returned",
        "taken",
        "varied",
        "written_before",
    )

    def __init__(self) -> None:
        self.accounts: dict[int, Account] = {}  # owner -> account
        self.number: int | None = None  # the function's number in names of graphs: report/compiles.py
        self.graphs = 0  # graphs named so far: report/compiles.py
        self.first_runs = 0  # runs that set something up: first_run.py
        self.not_speculated = False  # an assertion failed although nothing was raised: capture/speculate/assertions.py
        self.filled_caches = False  # it has run as written to fill caches that it asks: capture/types/lru_cache.py
        # (id of a function, hash of arguments) called as written, as it may raise: capture/types/lru_cache.py
        self.left_to_raise: set[tuple[int, int]] = set()
        self.raising: frozenset[Path] = frozenset()  # stored entries that call what raises: warm_start.py
        # Numbers and sizes of the call that ran eagerly under a stance that asks for that: stances.py
        self.ran_with: dict[Source, Any] | None = None
        # owner -> sources found to vary in the function or its continuations: cache/dynamic_sources.py
        self.varied: dict[int, frozenset[Source]] = {}
        # (owner, name) of writes before a continuation: capture/speculate/self_invalidation.py
        self.written_before: frozenset[tuple[int, Any]] = frozenset()
        # Sources of numbers, sizes and strings that differ in other calls: codegen/dynamism_across_breaks.py
        self.given = NOWHERE  # in variables of the frame
        self.drawn = NOWHERE  # variables of a continuation in which all numbers differ
        self.returned = NOWHERE  # variables of a continuation that hold the result of a call left to Python
        self.taken: tuple[tuple[Source, CodeType], ...] = ()  # variables with a result of a function that has a record
        self.results = NOWHERE  # in the result


_records: PerCode[CodeRecord] = PerCode()


def record(code: CodeType) -> CodeRecord:
    """Return the record of a code object, created when it is first needed."""
    found = _records.get(code)
    if found is None:
        _records.set(code, found := CodeRecord())
    return found


CodeKey: TypeAlias = tuple[str, str, int]
"""A code object as other processes of the same program know it: file, name, line."""
# what varies on other ranks of a distributed program, by code: distributed.py
agreed: dict[CodeKey, frozenset[Source]] = {}
# functions with `lru_cache` of which one frame asks for more results than they keep: capture/types/lru_cache.py
crowded: weakref.WeakSet[Any] = weakref.WeakSet()


def key_of(code: CodeType) -> CodeKey:
    return code.co_filename, getattr(code, "co_qualname", code.co_name), code.co_firstlineno


def known_codes() -> list[tuple[CodeType, CodeRecord]]:
    """Return the code objects that have a record, with it."""
    return _records.items()


def forget() -> None:
    """Drop all records, as if nothing had run."""
    _records.clear()
    agreed.clear()
    crowded.clear()
