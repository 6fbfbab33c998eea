"""Iterating what must stay as it is meanwhile: the keys of a dict, a set, a deque.

A container counts the changes that end its iterators (`Entity.version`). Python looks at the size of dicts and sets
only; where that is as before and the keys are not, what comes next depends on how the table was filled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import length_hint
from typing import Any

from torchdynamo.capture.vm.machine import Machine
from torchdynamo.core.signals import Break
from torchdynamo.core.value import Object, Value


class CheckedIterator:
    """Yield items one by one, and raise at each turn if the container has changed, as long as there are items left."""

    __slots__ = ("box", "entity", "error", "items", "order", "over", "size", "step", "version", "vm")

    def __init__(
        self,
        vm: Machine,
        box: Object,
        order: Iterable[Any],
        step: Callable[[Any], Value],
        size: Callable[[], int],
        error: str,
    ) -> None:
        self.vm, self.box, self.step, self.size, self.error = vm, box, step, size, error
        self.order = list(order)
        self.items = iter(self.order)
        self.entity = vm.entity(box)
        self.version = self.entity.version
        self.over = False

    def __iter__(self) -> Iterator[Value]:
        return self

    def __next__(self) -> Value:
        if self.over:
            raise StopIteration
        self.check()
        for item in self.items:
            return self.step(item)
        self.over = True
        raise StopIteration

    def check(self) -> None:
        if self.size() != len(self.order):
            raise self.vm.error(RuntimeError, self.error)
        if self.entity.version != self.version:
            end = Break("unknown iterator", type=f"{self.box.pytype.__name__} that changes")
            end.raises = True  # or goes on by how the table lies in memory
            raise end


class OrderedDictIterator(CheckedIterator):
    """Iterate over an OrderedDict: at the end changes are not looked for any more, and an error is an end."""

    __slots__ = ()

    def check(self) -> None:
        if self.entity.version != self.version and length_hint(self.items):
            self.over = True
            raise self.vm.error(RuntimeError, self.error)


class Strict(CheckedIterator):
    """Iterate over a deque: a change is an error even at the end, and after."""

    __slots__ = ()

    def __next__(self) -> Value:
        if self.entity.version != self.version:
            self.items = iter(())
            raise self.vm.error(RuntimeError, self.error)
        return self.step(next(self.items))
