"""Make calls of functions with `functools.lru_cache` again that a stored capture has made.

Their effects are the program's, their results are kept for other callers, and may be others in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchdynamo.capture.vm.cached_calls import CACHED, CachedCall, guard_of_result
from torchdynamo.core.source import Guard, Position, Source
from torchdynamo.guards.constants import same_constant


class AnotherResult(Exception):
    """Raised where a call gives something else than it gave, or must not be made; the text says what."""


class CallRaised(Exception):
    """Raised where a call that gave a result raises: nothing was kept, so the next call has the same effects again."""


def call_again(calls: Sequence[CachedCall], load: Callable[[Source], Any], check: Callable[[], object]) -> None:
    """Make calls once more, in their order, as long as they give what they gave.

    load: finds an object in the frame. check: raises if the next call is not the frame's; it is asked before each.
    Raises AnotherResult or CallRaised.
    """
    functions = [load(call.function) for call in calls]
    given = [(real(call.args, load), {name: real(each, load) for name, each in call.named}) for call in calls]
    for function in set(functions):
        own = [call for call, called in zip(calls, functions, strict=True) if called is function]
        if not keeps(function, own):
            raise AnotherResult(f"{own[0].function} has no room for more results")
    for call, function, (args, named) in zip(calls, functions, given, strict=True):
        check()
        try:
            found = function(*args, **named)
        except Exception as error:
            raise CallRaised(f"{call.function} raised {type(error).__name__}") from None
        if not same_constant(found, call.result):
            raise AnotherResult(f"{call.function} returned something else")


def real(argument: Any, load: Callable[[Source], Any]) -> Any:
    """Return an argument as it is passed."""
    if type(argument) is Source:
        return load(argument)
    return tuple(real(each, load) for each in argument) if type(argument) is tuple else argument


def keeps(function: Any, calls: Sequence[CachedCall]) -> bool:
    """Return whether a cache keeps the results of these calls too, and drops none for them."""
    if type(function) is not CACHED:
        return False
    _, _, most, size = CACHED.cache_info(function)
    return most is None or size + len({repr((call.args, call.named)) for call in calls}) <= most


def guards_of_results(calls: Sequence[CachedCall], load: Callable[[Source], Any]) -> list[Guard]:
    """Return the guards that caches hold the results of calls, for those that had one.

    Raises AnotherResult if a cache holds another, or none any more: a later call may have cleared it.
    """
    guards = []
    for call in calls:
        if not call.guarded:
            continue
        place = None if call.position is None else Position(*call.position)
        guard = guard_of_result(load(call.function), call.function, call.args, place)
        if guard is None or (guard.kind == "EQUALS_MATCH" and not same_constant(guard.arg, call.result)):
            raise AnotherResult(f"{call.function} does not hold its result")
        guards.append(guard)
    return guards
