"""Python's builtin functions of iterables: iterators, reductions, sorted, range."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

from torchdynamo.capture.speculate import assertions, branches
from torchdynamo.capture.torch import symbols
from torchdynamo.capture.torch.symbols import is_symbol, unknown
from torchdynamo.capture.types import iterator_steps
from torchdynamo.capture.types.generators import stop
from torchdynamo.capture.types.lists import sorted_values
from torchdynamo.capture.vm.iteration import collect, make_iterator
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import function, passes_on
from torchdynamo.capture.vm.operators import same_or_equal
from torchdynamo.capture.vm.scalar_subclasses import indexed
from torchdynamo.core.signals import Break
from torchdynamo.core.value import FALSE, NONE, ONE, ZERO, Known, Symbol, Value, boolean


@function(iter)
def iter_(vm: Machine, obj: Value, *sentinel: Value) -> Value:
    if sentinel:
        return make_iterator(vm, call_until(vm, obj, sentinel[0]), None, type(iter(int, 1)))
    return vm.iterator(obj)


def call_until(vm: Machine, fn: Value, sentinel: Value) -> Iterator[Value]:
    """Yield what calling `fn` returns, until it returns the sentinel."""
    while True:
        item = vm.call(fn, [], {})
        if same_or_equal(vm, item, sentinel):
            return
        yield item


@function(next)
def next_(vm: Machine, iterator: Value, *default: Value) -> Value:
    item = vm.advance(iterator)
    if item is not None:
        return item
    if default:
        return default[0]
    raise stop(vm, iterator)


# -- iterators --------------------------------------------------------------------------------------------------------
def model_iterator(cls: type, steps: Any) -> None:
    """Register the constructor of a builtin iterator type; `steps` returns an iterator over the items."""

    def row(vm: Machine, /, *args: Value, **kwargs: Value) -> Value:
        try:
            inner = steps(vm, *args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            raise Break("unknown call", name=cls.__name__) from None  # it does not take such arguments
        return make_iterator(vm, inner, None, cls)

    row.__wrapped__ = steps  # type: ignore[attr-defined]  # whose parameters are the model's
    function(cls)(row)


def enumerated(vm: Machine, iterable: Value, start: Value = ZERO) -> Iterator[Value]:
    source, first = vm.iterate(iterable), vm.known(vm.call(Known(operator.index), [start], {}), "start")
    return iterator_steps.enumerated(vm, source, Known(int(first)))


def zipped(vm: Machine, *iterables: Value, strict: Value = FALSE) -> Iterator[Value]:
    steps = iterator_steps.ZippedStrictly if vm.truth(strict) else iterator_steps.zipped
    return steps(vm, [vm.iterate(each) for each in iterables])


def mapped(vm: Machine, fn: Value, iterable: Value, *iterables: Value) -> Iterator[Value]:
    return iterator_steps.mapped(vm, fn, [vm.iterate(each) for each in (iterable, *iterables)])


def filtered(vm: Machine, fn: Value, items: Value) -> Iterator[Value]:
    return iterator_steps.filtered(vm, fn, vm.iterate(items))


for _lazy, _steps in ((enumerate, enumerated), (zip, zipped), (map, mapped), (filter, filtered)):
    model_iterator(_lazy, _steps)


@function(sorted)
def sorted_(vm: Machine, items: Value, *, key: Value = NONE, reverse: Value = FALSE) -> Value:
    return vm.new(list, sorted_values(vm, collect(vm, items), key, reverse))


# -- reductions -------------------------------------------------------------------------------------------------------
def fold(vm: Machine, op: str, steps: Iterator[Value], total: Value) -> Value:
    """Return `total op item op item ...`, of all items in order."""
    for item in steps:
        total = vm.binary(op, total, item)
    return total


@function(sum)
def sum_(vm: Machine, items: Value, start: Value = ZERO) -> Value:
    steps = vm.iterate(items)
    for text in (str, bytes, bytearray):
        if issubclass(start.pytype, text):
            vm.run_pure(sum, [Known(()), Known(text())], {})  # which raises
    return fold(vm, "+", steps, start)


@function(any)
def any_(vm: Machine, items: Value) -> Value:
    none = assertions.result_to_go_on(vm) is False
    return boolean(
        any(not (none and assertions.expect(vm, item, False)) and vm.truth(item) for item in vm.iterate(items))
    )


@function(all)
def all_(vm: Machine, items: Value) -> Value:
    every = assertions.result_to_go_on(vm) is True
    return boolean(all((every and assertions.expect(vm, item, True)) or vm.truth(item) for item in vm.iterate(items)))


def extreme(fn: Any, op: str) -> None:
    def row(vm: Machine, *items: Value, key: Value = NONE, default: Value | None = None) -> Value:
        if len(items) > 1 and default is not None:
            return vm.run_pure(fn, [ONE, ONE], {"default": NONE})  # which raises
        values = list(vm.iterate(items[0])) if len(items) == 1 else list(items)
        if not values:
            if default is not None:
                return default
            raise vm.error(ValueError, f"{fn.__name__}() arg is an empty sequence")
        plain = key.__class__ is Known and key.obj is None
        number = symbols.extreme(vm, fn, values) if plain else None
        if number is not None:
            return number
        best, best_key = values[0], values[0] if plain else vm.call(key, [values[0]], {})
        for item in values[1:]:
            either = branches.chosen(vm, op, item, best) if plain else None
            if either is not None:
                best = best_key = either
                continue
            each = item if plain else vm.call(key, [item], {})
            if vm.truth(vm.binary(op, each, best_key)):
                best, best_key = item, each
        return best

    function(fn)(row)


extreme(min, "<")
extreme(max, ">")


# -- range ------------------------------------------------------------------------------------------------------------
MAX_TURNS = 1 << 12  # turns


@function(range)
@passes_on
def range_(vm: Machine, /, *args: Value, **kwargs: Value) -> Value:
    direct, vm.direct = vm.direct, False
    if direct and not kwargs and 1 <= len(args) <= 3 and is_iterated_at_once(vm) and all(map(is_int, args)):
        start, stop, step = (ZERO, *args, ONE) if len(args) == 1 else (*args, ONE)[:3]
        by_ones = start.__class__ is Known and step.__class__ is Known and step.obj in (1, -1)
        found = None if by_ones else range_items(vm, start, stop, step)
        if found is not None:
            return found
    return vm.run_pure(range, [indexed(vm, arg) for arg in args], dict(kwargs))


def is_iterated_at_once(vm: Machine) -> bool:
    """Return whether the next instruction iterates over the range, so that nothing else refers to it."""
    frame = vm.frames[-1]
    following = frame.code.instructions[frame.pc + 1 : frame.pc + 2]
    return bool(following) and following[0].op == "GET_ITER"


def is_int(value: Value) -> bool:
    return value.pytype is int and value.__class__ in (Known, Symbol)


def range_items(vm: Machine, start: Value, stop: Value, step: Value) -> Value | None:
    """Return the numbers of a range with symbols in it; None where they cannot be told, or are more than MAX_TURNS."""
    parts = (start, stop, step)
    if not any(map(is_symbol, parts)) or any(unknown(vm, each) for each in parts):
        return None
    first, end, by = (current_value(vm, each) for each in parts)
    if by == 0 or not vm.truth(vm.binary(">" if by > 0 else "<", step, ZERO)):
        return None
    count = len(range(first, end, by))
    if count > MAX_TURNS:
        return None
    last = vm.binary("+", start, vm.binary("*", step, Known(count - 1)))
    beyond = vm.binary("+", start, vm.binary("*", step, Known(count)))
    inside, outside = ("<", ">=") if by > 0 else (">", "<=")
    if (count and not vm.truth(vm.binary(inside, last, stop))) or not vm.truth(vm.binary(outside, beyond, stop)):
        return None
    if start.__class__ is Known and step.__class__ is Known:
        return Known(range(first, first + count * by, by))
    return vm.make_tuple([vm.binary("+", start, vm.binary("*", step, Known(turn))) for turn in range(count)])


def current_value(vm: Machine, value: Value) -> int:
    """Return the value that a number has in the call that is being captured."""
    found: int = vm.builder.numbers.now(value.fake) if isinstance(value, Symbol) else vm.known(value, "number")
    return found
