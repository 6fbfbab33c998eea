"""Find objects that a call replaces by new ones with the same contents, so that the next call does the same again.

A registry whose every change makes a new state, which ends as it began, is one. What the call has looked at is compared
object by object. Which new object stands for which old one is remembered, so that two that were apart stay so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.core.source import Source
from torchdynamo.core.value import ABSENT, Known, Object, TensorNode, Value

CONTENTS = frozenset({"TYPE_MATCH", "LENGTH", "DICT_KEYS", "SET_CONTENTS", "HAS_KEY", "NO_KEY"})
NAMES = frozenset({"HAS_KEY", "NO_KEY"})  # what may have been asked of the names of an instance


class RebuiltObjects:
    """Pairs of old and new objects of a call, as found so far."""

    def __init__(self, vm: Machine) -> None:
        self.vm = vm
        self.new_of: dict[int, int] = {}
        self.old_of: dict[int, int] = {}
        self.asked: dict[Source, set[str]] = {}
        self.compared: set[Source] = set()
        for guard in vm.guards.values():
            self.asked.setdefault(guard.source, set()).add(guard.kind)
            self.compared.update(sources_in(guard.arg))
        self.compared.update(source for told in vm.told_apart.values() for source in told)
        self.places: dict[int, int] = {}
        for value in vm.by_source.values():
            if isinstance(value, Object):
                self.places[value.ref] = self.places.get(value.ref, 0) + 1

    def is_alike(self, old: Value | None, new: Value | None) -> bool:
        """Return whether the new value is the old one, or an object that was made with the same contents."""
        if old is new:
            return True
        if isinstance(old, Known) and isinstance(new, Known):
            return old.obj is new.obj
        if isinstance(old, TensorNode) and isinstance(new, TensorNode):
            return old.node is new.node and old.fake is new.fake
        if not (isinstance(old, Object) and isinstance(new, Object)):
            return False
        if old.ref == new.ref:
            return True
        if old.ref in self.new_of or new.ref in self.old_of:
            return self.new_of.get(old.ref) == new.ref
        self.new_of[old.ref], self.old_of[new.ref] = new.ref, old.ref
        return self.is_rebuilt(self.vm.heap[old], self.vm.heap[new])

    def is_rebuilt(self, old: Entity, new: Entity) -> bool:
        """Return whether an object that the frame made has all that was looked at of one that it found."""
        if old.source is None or new.source is not None or old.pytype is not new.pytype or self.is_told_apart(old):
            return False
        if old.touched or old.attrs or (old.pytype is not set and not old.payload is new.payload is None):
            return False
        if not all(self.is_alike(value, new.attrs.get(name, ABSENT)) for name, value in old.loaded.items()):
            return False
        before, after = contents(old), contents(new)
        return before is not None and after is not None and self.are_alike(before, after)

    def are_alike(self, before: Mapping[object, Value], after: Mapping[object, Value]) -> bool:
        return list(before) == list(after) and all(self.is_alike(before[key], after[key]) for key in before)

    def is_told_apart(self, old: Entity) -> bool:
        """Return whether anything but its contents was asked of an object, or it lies in two places."""
        names = {kind for source, kinds in self.asked.items() if is_dict_of(source, old.source) for kind in kinds}
        kinds = self.asked.get(old.source, set()) if old.source is not None else set()
        return (
            self.places.get(old.ref, 0) > 1 or old.source in self.compared or not (kinds <= CONTENTS and names <= NAMES)
        )


def contents(entity: Entity) -> Mapping[object, Value] | None:
    """Return the items of a list, tuple or dict by their places, none of an instance, and None for what has an order of
    its own, as sets have.
    """
    items = entity.items
    if items is None:
        return {}
    if entity.pytype in (list, tuple):
        return dict(enumerate(items))
    if entity.pytype is dict or not items:
        return {key: value for key, (_, value) in items.items()}
    return None


def is_dict_of(source: Source, owner: Source | None) -> bool:
    """Return whether a source is the `__dict__` of what is at another."""
    return source.base is owner and source.how == "dict"


def sources_in(arg: object) -> Iterator[Source]:
    """Yield the sources in the argument of a guard."""
    if isinstance(arg, Source):
        yield arg
    elif isinstance(arg, tuple):
        for each in arg:
            yield from sources_in(each)
