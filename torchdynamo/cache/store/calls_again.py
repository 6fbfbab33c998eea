"""Make calls again that a stored capture has made: of functions with `functools.lru_cache`, or with constant results.

Their effects are the program's. Results of the former are kept for other callers; both may be others in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from torchdynamo.capture.vm.cached_calls import (
    CachedCall,
    ask,
    guard_of_result,
    holds,
    key_of,
    may_drop,
)
from torchdynamo.capture.vm.constant_calls import ConstantCall, is_declared
from torchdynamo.core import call_sites
from torchdynamo.core.call_sites import Call
from torchdynamo.core.source import Guard, Source
from torchdynamo.guards.constants import same_constant
from torchdynamo.hook import interrupts
from torchdynamo.hook.compile_lock import lent


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
    given = [arguments(call, load) for call in calls]
    for function in set(functions):
        own = [call for call, called in zip(calls, functions, strict=True) if called is function]
        if not has_room(function, own):
            raise AnotherResult(f"{own[0].function} has no room for more results")
    for call, function, (args, named) in zip(calls, functions, given, strict=True):
        check()
        if not call.at_entry and not holds(function, key_of(function, args, named)):
            raise AnotherResult(f"{call.function} would be called before what the frame writes")
        try:
            found = ask(function, args, named, calling(call, load))
        except BaseException as error:
            if interrupts.came():
                raise
            raise CallRaised(f"{call.function} raised {type(error).__name__}") from None
        require_same(call, found)


def compare_constants(calls: Sequence[ConstantCall], load: Callable[[Source], Any]) -> None:
    """Call functions whose results are declared to be constant, as a capture here would. Raises AnotherResult."""
    for call in calls:
        function = load(call.function)
        if not is_declared(function):
            raise AnotherResult(f"{call.function} is not declared to be constant")
        try:
            with lent():
                found = function(*call.args, **dict(call.named))
        except Exception as error:
            if interrupts.came():
                raise
            raise AnotherResult(f"{call.function} raised {type(error).__name__}") from None
        require_same(call, found)


def require_same(call: CachedCall | ConstantCall, found: Any) -> None:
    """Raise AnotherResult if a call has given something else than it gave when it was captured."""
    if not same_constant(found, call.result):
        raise AnotherResult(f"{call.function} returned something else")


def arguments(call: CachedCall, load: Callable[[Source], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call as they are passed: those by position, and those by name."""
    return tuple(real(each, load) for each in call.args), {name: real(each, load) for name, each in call.named}


def real(argument: Any, load: Callable[[Source], Any]) -> Any:
    """Return an argument as it is passed."""
    if type(argument) is Source:
        return load(argument)
    return tuple(real(each, load) for each in argument) if type(argument) is tuple else argument


def calling(cached: CachedCall, load: Callable[[Source], Any]) -> Call:
    """Return a function that calls others as if from the line of the program that has the call."""
    place = cached.place
    if place is None or place.line is None:
        return call_sites.call
    own = load(Source("globals"))
    space = own if own.get("__name__") == cached.module else call_sites.namespace(cached.module)
    return FunctionType(call_sites.code_at(place.filename, place.function, place.line), space)


def has_room(function: Any, calls: Sequence[CachedCall]) -> bool:
    """Return whether a cache keeps the results of these calls too, and drops none for them."""
    return not may_drop(function, len({repr((call.args, call.named)) for call in calls}))


def guards_of_results(calls: Sequence[CachedCall], load: Callable[[Source], Any]) -> list[Guard]:
    """Return the guards that caches hold the results of calls.

    Raises AnotherResult if a cache holds another, or none any more: a later call may have cleared it.
    """
    guards = []
    for call in calls:
        function, (args, named) = load(call.function), arguments(call, load)
        guard = guard_of_result(function, call.function, key_of(function, args, named), call.place)
        if guard is None or (guard.kind == "EQUALS_MATCH" and not same_constant(guard.arg, call.result)):
            raise AnotherResult(f"{call.function} does not hold its result")
        guards.append(guard)
    return guards
