"""Steps of the iterators that Python makes of others: Python's own, over values.

Like the program's they take each step anew, so that an error or an end need not be the last that they give.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchdynamo.capture.vm.machine import Machine
from torchdynamo.core.value import Known, Value, is_none


def counted(vm: Machine, start: Value, step: Value) -> Iterator[Value]:
    current = start
    while True:
        yield current
        current = vm.binary("+", current, step)


def enumerated(vm: Machine, source: Iterator[Value], start: Value) -> Iterator[Value]:
    return map(lambda item, number: vm.make_tuple([number, item]), source, counted(vm, start, Known(1)))


def zipped(vm: Machine, sources: list[Iterator[Value]]) -> Iterator[Value]:
    return in_tuples(vm, zip(*sources))


def mapped(vm: Machine, fn: Value, sources: list[Iterator[Value]]) -> Iterator[Value]:
    return map(lambda *items: vm.call(fn, list(items), {}), *sources)


def filtered(vm: Machine, fn: Value, source: Iterator[Value]) -> Iterator[Value]:
    return filter(lambda item: is_chosen(vm, fn, item), source)


def is_chosen(vm: Machine, fn: Value, item: Value) -> bool:
    """Return whether an item is true, or what the function says of it."""
    return vm.truth(item if is_none(fn) else vm.call(fn, [item], {}))


def in_tuples(vm: Machine, groups: Iterator[tuple[Value, ...]]) -> Iterator[Value]:
    """Return the steps that give each of the host's tuples as the program's."""
    return map(vm.make_tuple, map(list, groups))


class ZippedStrictly:
    """Give tuples of items, one of each source. Raises the program's ValueError where one source is shorter."""

    def __init__(self, vm: Machine, sources: list[Iterator[Value]]) -> None:
        self.vm, self.steps = vm, in_tuples(vm, zip(*sources, strict=True))

    def __iter__(self) -> Iterator[Value]:
        return self

    def __next__(self) -> Value:
        try:
            return next(self.steps)
        except ValueError as error:
            raise self.vm.error(ValueError, *error.args) from None
