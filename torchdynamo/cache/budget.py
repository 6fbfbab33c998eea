"""Stop compiling a function from which nothing is gained: whose versions are not used, or compute nothing.

A version pays for itself when it is called often. A program that compiles one in each step, for a class or an object
that the step makes, or for a value that never comes back, pays for all of them. So a function may have a few versions,
and after that one more for so many calls that its versions served; refused, it asks ever more rarely, and is granted
one now and then, since programs change. Versions of small graphs have to be called more often: they save less, and cost
nearly the same. Functions in which no operator on tensors is captured gain nothing at all, nor do helpers of installed
packages that have one or two: move a batch, take an item, copy.

Most of a program is compiled in its first steps. A call of a kind that first comes after that may be the only one: it
has to come again some times before it is compiled, and until then nothing is compiled for what it calls either. That
holds when nothing was compiled for a whole round of the program: most functions that have versions used one since.

A function that the program itself gave to `compile` or `optimize` is not held to that, but for versions without number.
These counts are of calls, versions and operators, not of seconds, so that a program compiles alike in each run. What is
tried again although it was in vain so far is on credit: all of that together may take a twentieth of the time.
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

FREE = 4  # versions of a function that was not asked for
FREE_IF_BRIEF = 3  # of one with versions that were gone before they served a call: of a first run, of a brief object
FREE_IF_SMALL = 2
FREE_IF_LATE = 2
FREE_IF_ASKED = 64
LITTLE = 2  # operators of a function of an installed package, with which entering a graph costs more than it saves
SMALL = 4  # operators, at most
LARGE = 16  # operators; a version of fewer has to serve more calls, in proportion
CALLS = 16  # that have to be served for the first version beyond; for the next four times as many, then nine times
ROUND = 6  # calls, at least, that the versions of the function serve in it
MOST = 0.6  # of the functions with versions; others are for the beginning, or for an evaluation
GRANTED = 16  # refusals after which one is granted all the same; for the next twice as many
LONGEST_REST = 1000  # calls
BARREN = 32  # calls is the first rest of a function that computes nothing, and so many times longer is the next
BARREN_LIBRARY = 256  # of one of an installed package
IN_VAIN = 3  # pieces of a function, each ended by a break, in none of which anything was computed


class Credit:
    """The time that captures on credit may take."""

    SHARE = 0.05  # of the time since the first

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.since: float | None = None
        self.spent = 0.0

    def covers(self, seconds: float) -> bool:
        """Return whether so much may be spent now."""
        if self.since is None:
            self.since = self.clock()
        return self.spent + seconds <= self.SHARE * (self.clock() - self.since)


credit = Credit()


def account(code: CodeType, owner_id: int) -> Account:
    """Return the account of a code object with this compiler, opened when it is first asked for."""
    accounts = record(code).accounts
    return accounts.get(owner_id) or accounts.setdefault(owner_id, Account(GRANTED))


class Refusal(NamedTuple):
    """Says why no further version is compiled."""

    times: int  # that it was refused
    versions: int  # that were compiled
    calls: int  # that these have served, besides those that compiled


def refusal(code: CodeType, asked_for: CodeType, owner_id: int) -> Refusal | None:
    """Return None if one more version of a code object may be compiled; else it is not asked for some calls.

    asked_for: the function as the program wrote it, of which `code` may be a continuation.
    """
    own = account(code, owner_id)
    own.on_credit = own.barren > 0
    if own.on_credit and not credit.covers(own.seconds):
        rest(code, owner_id, BARREN)
        return Refusal(0, own.compiled, 0)
    served = own.served + served_now(code, owner_id)
    again = served - own.compiled  # not the calls that compiled
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
    """Return how many versions a function may have that need not have paid for themselves."""
    if asked_for in marks.ASKED:
        return FREE_IF_ASKED
    if own.operators <= SMALL:
        return FREE_IF_SMALL
    return FREE_IF_BRIEF if again < 0 else FREE


def is_late(own: Account, served: int, owner_id: int) -> bool:
    """Return whether nothing was compiled for a whole round of the program."""
    if served - own.served_before <= ROUND:
        return False
    in_use, there_are = _native.codes_in_use(owner_id)
    return in_use >= MOST * there_are


def miss(code: CodeType, owner_id: int) -> int:
    """Count a call that found no version and may not make one; return how many there have been."""
    own = account(code, owner_id)
    own.missed += 1
    rest(code, owner_id, own.missed**2 // 8)
    return own.missed


def served_now(code: CodeType, owner_id: int) -> int:
    """Return how many calls the versions that there are have served."""
    return sum(entry.hits for entry in _native.cache_entries(code) if entry.owner_id == owner_id)


def spent(code: CodeType, owner_id: int, operators: int) -> None:
    """Note that a version was compiled, with so many operators on tensors."""
    own = account(code, owner_id)
    own.compiled += 1
    own.served_before, own.waited = own.served + served_now(code, owner_id), False
    own.operators = max(own.operators, operators)


def took(code: CodeType, owner_id: int, seconds: float) -> None:
    """Note how long a capture took, and whatever followed."""
    own = account(code, owner_id)
    own.seconds = seconds
    if own.on_credit:
        credit.spent += seconds


def gone(code: CodeType, entry: _native.Entry) -> None:
    """Note that a version is dropped."""
    account(code, entry.owner_id).served += entry.hits


def fruitful(code: CodeType, asked_for: CodeType, owner_id: int) -> None:
    """Note that a capture found enough operators on tensors, in a code object and the function it is a piece of."""
    account(code, owner_id).barren = account(asked_for, owner_id).barren = 0
    account(asked_for, owner_id).operators += 1


def is_barren(code: CodeType, asked_for: CodeType, owner_id: int, whole: bool) -> bool:
    """Note that a capture found too few operators on tensors; return whether the function is left to Python for now.

    whole: the capture reached the end of the function; what follows a break may still compute something.
    """
    written = account(asked_for, owner_id)
    if asked_for in marks.ASKED or written.operators:
        return False
    written.barren += 1
    if not whole and written.barren <= IN_VAIN:
        return False
    own = account(code, owner_id)
    own.barren += own is not written
    rest(code, owner_id, (BARREN_LIBRARY if is_library(asked_for) else BARREN) ** min(own.barren, 4))
    return True


def rest(code: CodeType, owner_id: int, calls: int, deep: bool = False) -> None:
    """Do not ask for a version while so many calls go by that there is none for.

    deep: nor for versions of what those calls, and this one, call.
    """
    _native.rest_code(code, owner_id, min(calls, LONGEST_REST), deep)
