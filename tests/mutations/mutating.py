"""A program, something that changes under it, and what must be seen: eager's result, and few compiles."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple
from unittest import mock

import torch
from pictures import Picture, difference

import torchdynamo
from torchdynamo.errors import FallbackWarning
from torchdynamo.eval_frame import cache_entries
from torchdynamo.report.explain import collecting


class Mutation(NamedTuple):
    """What a row of the table makes."""

    fn: Callable[..., Any]
    args: Callable[[], tuple[Any, ...]]  # made for each call
    change: Callable[[ExitStack], Any]  # what it enters is left when the row is done
    seen: bool = True  # whether the result differs afterwards
    free: bool = False  # whether nothing may be compiled again: no guard needs what changed


Row = Callable[[], Mutation]
ROWS: list[Row] = []


def mutation(row: Row) -> Row:
    """Put a function that makes a Mutation into the table."""
    ROWS.append(row)
    return row


def x() -> torch.Tensor:
    return torch.arange(1.0, 5.0).reshape(2, 2)


def one() -> tuple[torch.Tensor]:
    """The usual arguments."""
    return (x(),)


def changing(fn: Callable[..., Any], change: Callable[[], Any], args: Any = one, seen: bool = True) -> Mutation:
    """A program, and a change that nothing has to undo."""
    return Mutation(fn, args, lambda stack: change(), seen)


def setting(obj: Any, name: str, value: Any) -> Callable[[ExitStack], None]:
    """An attribute is set, for good or until the row is done."""
    return lambda stack: stack.enter_context(mock.patch.object(obj, name, value, create=True))


def setting_code(fn: Any, other: Any) -> Callable[[ExitStack], None]:
    """A function is given another one's code until the row is done."""

    def change(stack: ExitStack) -> None:
        stack.callback(setattr, fn, "__code__", fn.__code__)
        fn.__code__ = other.__code__

    return change


def entering(make: Callable[[], Any]) -> Callable[[ExitStack], None]:
    """A context is entered."""
    return lambda stack: stack.enter_context(make())


def outcome(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """What a call gives, or raises, and what it leaves in its arguments, to be compared."""
    try:
        result = fn(*args)
    except Exception as error:
        return type(error), str(error)
    see = Picture()
    return see.of(result), see.of(args)


def unspecialized(fn: Any) -> Any:
    """Give a function that CPython has not yet specialized any instruction of, or the module as it is.

    CPython 3.14 reads an attribute of a module from the module's dict alone once it has specialized the instruction,
    whatever comes to the module's class, so that eager's result hangs on how often the function has run.
    """
    if not isinstance(fn, types.FunctionType):
        return fn
    cold = types.FunctionType(fn.__code__.replace(), fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    cold.__kwdefaults__ = fn.__kwdefaults__
    return cold


def entries(fn: Any) -> int:
    """How many times the program itself was compiled."""
    return len(cache_entries(getattr(fn, "forward", fn)))


def follow(row: Row, backend: str = "eager", first: bool = False, options: dict[str, Any] | None = None) -> None:
    """A compile, a hit, the change, eager's result with one compile at most, and a hit.

    With `first`, it is the compiled program that runs first after the change: running it may import a module.
    """
    torchdynamo.reset()
    case = row()
    compiled = torchdynamo.compile(case.fn, backend=backend, options=options)
    with ExitStack() as stack, collecting() as events, warnings.catch_warnings(record=True) as said:
        before = outcome(case.fn, case.args())
        assert outcome(compiled, case.args()) == before
        done = len(events)
        raises = isinstance(before[0], type)  # perhaps at its first operator
        assert raises or any(event.graph is not None for event in events), [event.reason_text for event in events]
        assert outcome(compiled, case.args()) == before
        assert len(events) == done, "a second call compiled again"
        case.change(stack)
        given = outcome(compiled, case.args()) if first else None
        after = outcome(unspecialized(case.fn), case.args())
        assert (after != before) == case.seen, "the row says otherwise of what the change does"
        given = given or outcome(compiled, case.args())
        assert given == after, difference(after, given)
        if case.free:
            assert len(events) == done, "compiled again, for nothing"
        assert entries(case.fn) <= 2
        again = len(events)
        assert outcome(compiled, case.args()) == after
        assert len(events) == again, "compiled once more after the change"
    assert [str(each.message) for each in said if each.category is FallbackWarning] == []
