"""Stop compiling functions that gain nothing from it: their entries are not used, or compute nothing.

An entry pays for itself when it is called often. A program that compiles one in each step (for a class or an object
that the step makes, or for a value that never comes back) pays for all of them. So a function may have a few entries,
and after these one more for every so many calls that its entries served. Each refusal makes it ask less often, and now
and then one is granted, because programs change. Entries with small graphs must be called more often: they save less
and cost nearly as much. Functions in which no operator on tensors is captured gain nothing at all, nor do functions of
installed packages with one or two operators: move a batch, take an item, copy.

Most of a program is compiled in its first steps. A kind of call that first comes later may be the only one: it must
come again a few times before it is compiled, and until then nothing is compiled for what it calls either. Later means
that nothing was compiled for a whole round of the program: most functions with entries have used one since.

A function that the program itself passed to `compile` or `optimize` is exempt, except from a limit of entries. The
counts are of calls, entries and operators, not of seconds, so that a program compiles alike in each run. Captures that
are tried again although they gained nothing so far are on credit: together they may take a twentieth of the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import CodeType
from typing import NamedTuple

from torchdynamo import _native
from torchdynamo.core import marks
from torchdynamo.core.learned import Account, record
from torchdynamo.hook.frames import is_library

# Entries that a function may have without having paid for them:
FREE = 4
FREE_IF_BRIEF = 3  # if entries were dropped before they served a call: of a first run, of a short-lived object
FREE_IF_SMALL = 2  # if its graphs have at most SMALL operators
FREE_IF_LATE = 2  # if it is first called after the program's first steps
FREE_IF_ASKED = 64  # if it was passed to `compile` or `optimize`
LITTLE = 2  # operators; for functions of installed packages, entering a graph of so few costs more than it saves
SMALL = 4  # operators
LARGE = 16  # operators; an entry of fewer must serve more calls, in proportion
CALLS = 16  # calls to be served for the first entry beyond the free ones; four times as many for the next, then nine
ROUND = 6  # least number of calls that the function's entries serve in a round of the program
MOST = 0.6  # part of the functions with entries that a round uses; others are for the beginning, or an evaluation
GRANTED = 16  # refusals after which an entry is granted all the same; twice as many for the next
LONGEST_REST = 1000  # calls
BARREN = 32  # calls of the first rest of a function that computes nothing; each further rest is longer by this factor
BARREN_LIBRARY = 256  # the same factor for a function of an installed package
IN_VAIN = 3  # parts of a function, each ended by a break, after which one that computes nothing rests


class Credit:
    """Limits the time of captures that gained nothing so far."""

    SHARE = 0.05  # part of the time since the first such capture

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.since: float | None = None
        self.spent = 0.0

    def covers(self, seconds: float) -> bool:
        """Return whether a capture of so many seconds may be made now."""
        if self.since is None:
            self.since = self.clock()
        return self.spent + seconds <= self.SHARE * (self.clock() - self.since)


credit = Credit()


def account(code: CodeType, owner_id: int) -> Account:
    """Return the account of a code object with one compiler, created when it is first needed."""
    accounts = record(code).accounts
    return accounts.get(owner_id) or accounts.setdefault(owner_id, Account(GRANTED))


class Refusal(NamedTuple):
    """Tells why no further entry is compiled."""

    times: int  # number of refusals
    versions: int  # entries compiled
    calls: int  # calls that these have served, besides those that compiled them


def refusal(code: CodeType, asked_for: CodeType, owner_id: int) -> Refusal | None:
    """Return None if another entry may be compiled; else the refusal, after which no entry is asked for for some calls.

    asked_for: the function as the program wrote it, of which `code` may be a continuation.
    """
    own = account(code, owner_id)
    own.on_credit = own.barren > 0
    if own.on_credit and not credit.covers(own.seconds):
        rest(code, owner_id, BARREN)
        return Refusal(0, own.compiled, 0)
    served = own.served + served_now(code, owner_id)
    again = served - own.compiled  # calls served, without those that compiled
    waits = asked_for not in marks.ASKED and own.compiled >= FREE_IF_LATE and not own.waited
    if waits and is_late(own, served, owner_id):
        own.waited = True
        rest(code, owner_id, CALLS * LARGE // max(1, min(own.operators, LARGE)), deep=True)
        return Refusal(0, own.compiled, again)
    beyond = own.compiled + 1 - free(own, asked_for, again)
    if beyond <= 0 or again * min(own.operators, LARGE) >= CALLS * LARGE * beyond**2:
        return None
    own.refused += 1
    if own.refused >= own.granted_at and credit.covers(own.seconds):
        own.on_credit, own.granted_at = True, 2 * own.refused
        return None
    rest(code, owner_id, own.refused**2 // 8)
    return Refusal(own.refused, own.compiled, again)


def free(own: Account, asked_for: CodeType, again: int) -> int:
    """Return how many entries a function may have without having paid for them by served calls."""
    if asked_for in marks.ASKED:
        return FREE_IF_ASKED
    if own.operators <= SMALL:
        return FREE_IF_SMALL
    return FREE_IF_BRIEF if again < 0 else FREE


def is_late(own: Account, served: int, owner_id: int) -> bool:
    """Return whether nothing has been compiled for a whole round of the program."""
    if served - own.served_before <= ROUND:
        return False
    in_use, there_are = _native.codes_in_use(owner_id)
    return in_use >= MOST * there_are


def miss(code: CodeType, owner_id: int) -> int:
    """Count a call that no entry served and that may not compile one; return how many there have been."""
    own = account(code, owner_id)
    own.missed += 1
    rest(code, owner_id, own.missed**2 // 8)
    return own.missed


def served_now(code: CodeType, owner_id: int) -> int:
    """Return how many calls the current entries have served."""
    return sum(entry.hits for entry in _native.cache_entries(code) if entry.owner_id == owner_id)


def spent(code: CodeType, owner_id: int, operators: int) -> None:
    """Record that an entry was compiled, with so many operators on tensors."""
    own = account(code, owner_id)
    own.compiled += 1
    own.served_before, own.waited = own.served + served_now(code, owner_id), False
    own.operators = max(own.operators, operators)


def took(code: CodeType, owner_id: int, seconds: float) -> None:
    """Record how many seconds a capture and the compile after it took."""
    own = account(code, owner_id)
    own.seconds = seconds
    if own.on_credit:
        credit.spent += seconds


def gone(code: CodeType, entry: _native.Entry) -> None:
    """Record that an entry was dropped."""
    account(code, entry.owner_id).served += entry.hits


def is_fruitful(code: CodeType, asked_for: CodeType, owner_id: int, operators: int) -> bool:
    """Return whether what was captured of a function, or of a part of it, has enough operators on tensors; record it
    if so.
    """
    if operators <= (LITTLE if is_library(asked_for) else 0):
        return False
    account(code, owner_id).barren = account(asked_for, owner_id).barren = 0
    account(asked_for, owner_id).operators += 1
    return True


def may_rest(asked_for: CodeType, owner_id: int) -> bool:
    """Record that too few operators on tensors were found in a function; return whether that may make it rest."""
    written = account(asked_for, owner_id)
    if asked_for in marks.ASKED or written.operators:
        return False
    written.barren += 1
    return True


def is_barren(code: CodeType, asked_for: CodeType, owner_id: int, whole: bool) -> bool:
    """Record that a capture found too few operators on tensors; return whether the function rests for now.

    whole: the capture reached the end of the function; the part after a break may still compute something.
    """
    written = account(asked_for, owner_id)
    if not may_rest(asked_for, owner_id) or (not whole and written.barren <= IN_VAIN):
        return False
    own = account(code, owner_id)
    own.barren += own is not written
    rest(code, owner_id, (BARREN_LIBRARY if is_library(asked_for) else BARREN) ** min(own.barren, 4))
    return True


NO_TENSORS = "no tensors"


def leave_alone(code: CodeType, reason: str, owner_id: int, whole: bool) -> None:
    """Ask no more about a function that is left to Python for a reason.

    One that was passed to `compile`, in whose call no tensor was in reach, is asked about in later calls: in each if
    it has to be one graph, else after rests that get longer.
    """
    if reason != NO_TENSORS or code not in marks.ASKED:
        _native.skip_code(code, reason)
    elif not whole:
        own = account(code, owner_id)
        own.without_tensors += 1
        rest(code, owner_id, 2 ** min(own.without_tensors, 10) - 1)


def note_asked(code: CodeType) -> None:
    """Record that a function was passed to `compile`: that its calls had no tensors counts no more."""
    marks.ASKED.add(code)
    if _native.skip_reason(code) == NO_TENSORS:
        _native.clear_code(code)


def rest(code: CodeType, owner_id: int, calls: int, deep: bool = False) -> None:
    """Ask for no entry during the next `calls` calls that none serves.

    deep: nor for entries of the functions that these calls, and the current one, call.
    """
    _native.rest_code(code, owner_id, min(calls, LONGEST_REST), deep)
