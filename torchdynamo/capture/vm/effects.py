"""The one owner of side effects: each write of the symbolic machine is recorded here, under its kind.

Nothing real is changed while a frame is captured. Whoever has to know what a stretch of code has done marks where it
begins (`mark`) and asks afterwards (`since`, `net`). What is found there is to be refused: a reader that tolerates some
kind of effect names it. `pending` lists what has to be done for real once the graph has run.

Writes to what is younger than a mark are nobody's business but the stretch's own. Each store is copied when it is first
written to after a mark, so that a mark costs nothing, and a loop of writes costs one copy.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from torchdynamo.capture.vm.effect_kinds import (
    AT_ENTRY,
    ATTRIBUTES,
    RANKS,
    UNKNOWN,
    Change,
    Deferred,
    EffectKind,
    EffectMark,
    Namespace,
    Write,
    copied,
    is_same,
)
from torchdynamo.capture.vm.heap import MISSING, Entity, Heap
from torchdynamo.core.source import Source
from torchdynamo.core.value import ABSENT, Known, Object, Value

if TYPE_CHECKING:
    from torchdynamo.graph.build import GraphBuilder


class SideEffects:
    """Own the stores of all side effects of one capture. Hot paths look at the three flags before they ask for more."""

    def __init__(self, heap: Heap, builder: GraphBuilder, assumptions: Sequence[Any]) -> None:
        self.heap, self.builder = heap, builder
        self.wrote_names = self.wrote_classes = self.wrote_functions = False
        self.modes: list[Value] = []  # of `__torch_function__`, opened by the frame
        self._assumptions = assumptions
        self._names: dict[tuple[int, str], Value] = {}  # by the id of a namespace's place
        self._names_set_again: set[tuple[int, str]] = set()  # after they were deleted
        self._spaces: dict[int, Namespace] = {}  # those written to, by the id of their place
        self._set_again: dict[int, set[str]] = {}  # attributes set after they were deleted, by reference
        self._deferred: list[Deferred] = []
        self._entry: dict[Any, tuple[Any, ...]] = {}  # by switch: what it was given before the frame, and now
        self._exit: dict[Any, tuple[Any, ...]] = {}
        self._undo: dict[Any, Callable[[], object]] = {}  # by switch or layer: how to put the process back
        self._tick = 0  # marks so far
        self._older = 0  # objects that are older than the newest mark
        self._changes: list[Change] = []
        self._written: dict[int, Entity] = {}  # by reference: objects that existed at entry and were written to
        self._copied: dict[EffectKind, int] = {}  # the tick in which a store that is one of a kind was copied last
        self.start = EffectMark(0, 0, builder.begin(), 0, self._state(), 0)

    # -- objects --------------------------------------------------------------------------------------------------
    def write(self, entity: Entity, name: str, value: Value) -> None:
        """Set an attribute, or the contents of a cell; ABSENT where the program deleted what was there at entry."""
        if entity.attrs_at != self._tick:
            self._note_attributes(entity)
        entity.attrs[name] = value

    def look(self, entity: Entity, name: str, value: Value) -> None:
        """Replace a stored Lazy by the value that it was found to be; this is no write."""
        entity.attrs[name] = value

    def write_all(self, entity: Entity, values: Mapping[str, Value]) -> None:
        """Set several attributes."""
        self._note_attributes(entity)
        entity.attrs.update(values)

    def write_last(self, entity: Entity, name: str, value: Value, was_there: bool) -> None:
        """Set an attribute that the frame had deleted: it comes last, also in a dict that had it at entry."""
        self.drop(entity, name)
        if was_there:
            self._set_again.setdefault(entity.ref, set()).add(name)
        entity.attrs[name] = value

    def drop(self, entity: Entity, name: str) -> Value | None:
        """Take an attribute away that only the frame has set; return what it was."""
        self._note_attributes(entity)
        return entity.attrs.pop(name, None)

    def remember(self, entity: Entity, payload: object) -> None:
        """Set the payload of an object: for readers, a write to its attributes."""
        self._note_attributes(entity)
        entity.payload = payload

    def put_back(self, entity: Entity, attrs: Mapping[str, Value]) -> None:
        """Set all attributes to what they were, as if nothing had been written."""
        entity.attrs = dict(attrs)

    def set_again(self, entity: Entity) -> Collection[str]:
        """Return the attributes that were deleted and set again."""
        return self._set_again.get(entity.ref, ())

    def items(self, entity: Entity) -> None:
        """Note that the contents of an object are about to change."""
        if entity.items_at != self._tick:
            self._note_items(entity)
        entity.touched = True

    def items_as_at_entry(self, entity: Entity) -> None:
        """Note that the contents of an object are again those at entry: nothing is left to replay."""
        entity.touched = False

    def _note_attributes(self, entity: Entity) -> None:
        if entity.attrs_at != self._tick:
            entity.attrs_at = self._tick
            if entity.real is not MISSING or entity.ref < self._older:
                self._note(entity.attribute_kind, entity, dict(entity.attrs))

    def _note_items(self, entity: Entity) -> None:
        entity.items_at = self._tick
        if entity.real is not MISSING or entity.ref < self._older:
            unread = copied(entity.items) is UNKNOWN and not (entity.touched or entity.fresh)
            self._note(EffectKind.ITEMS, entity, AT_ENTRY if unread else copied(entity.items))

    def _note(self, kind: EffectKind, entity: Entity, before: Any) -> None:
        self._changes.append(Change(kind, entity, before))
        if entity.real is not MISSING:
            self._written[entity.ref] = entity

    def changed(self) -> list[Entity]:
        """Return the objects that existed at entry and were written to, in the order in which they were met."""
        return [entity for _, entity in sorted(self._written.items()) if entity.changed]

    # -- names ----------------------------------------------------------------------------------------------------
    def write_name(self, space: Namespace, name: str, value: Value) -> None:
        """Set a name in a namespace; ABSENT deletes. What was deleted and is set again comes last."""
        self._note_names(space.kind)
        self.wrote_names |= RANKS[space.kind] == RANKS[EffectKind.NAME]
        self.wrote_functions |= space.kind is EffectKind.FUNCTION
        self.wrote_classes |= space.kind is EffectKind.CLASS
        self._spaces[id(space.place)] = space
        key = id(space.place), name
        if self._names.get(key) is ABSENT:
            del self._names[key]
            self._names_set_again.add(key)
        self._names[key] = value

    def change_tensor(self) -> None:
        """Note that more than the numbers of an input of the graph is changed."""
        self._note_names(EffectKind.TENSOR)

    def written(self, place: object, name: str) -> Value | None:
        """Return what the frame set under a name: ABSENT where it deleted, None where it did nothing.

        `place`: the dictionary, class or fake tensor of the namespace.
        """
        return self._names.get((id(place), name))

    def all_written(self, place: object) -> dict[str, Value]:
        """Return all names that the frame set or deleted in a namespace, with their values."""
        return {name: value for (owner, name), value in self._names.items() if owner == id(place)}

    def wrote_in(self, place: object) -> bool:
        """Return whether the frame set any name in a namespace."""
        return id(place) in self._spaces

    def renames(self, real: Mapping[str, Any], name: str) -> bool:
        """Return whether a name has another value than at entry."""
        value = self.written(real, name)
        return value is not None and not self._is_entry((id(real), name), value)

    def _note_names(self, kind: EffectKind) -> None:
        if self._copied.get(kind) != self._tick:
            self._copied[kind] = self._tick
            self._changes.append(Change(kind, None, dict(self._names)))

    @property
    def wrote_outside(self) -> bool:
        """Return whether there are writes to namespaces, which reads do not note."""
        return bool(self._names)

    # -- deferred calls -------------------------------------------------------------------------------------------
    def defer(self, text: str, emit: Callable[[Any], None], in_backward: bool = False) -> None:
        """Have a call made when the graph has run. `in_backward`: a backward sees whether it was made."""
        self._deferred.append(Deferred(text, emit, in_backward))

    def change_backwards(self) -> bool:
        """Return whether a backward in the graph would miss deferred calls that it should see."""
        return any(each.in_backward for each in self._deferred)

    @property
    def deferred(self) -> Sequence[Deferred]:
        """Return the deferred calls so far, in their order."""
        return self._deferred

    # -- process state --------------------------------------------------------------------------------------------
    def switch(
        self, key: tuple[Any, Any], before: tuple[Any, ...], now: tuple[Any, ...], undo: Callable[[], object] | None
    ) -> None:
        """Note that process state is switched, for real.

        `key` is a function and what tells its switches apart; called with `now`, it sets what is set now. Where that
        equals `before`, all is as it was at entry.
        """
        if undo is not None:
            self._undo.setdefault(key, undo)
        self._entry.setdefault(key, before)
        self._exit[key] = now

    def switch_back(self, key: tuple[Any, Any]) -> bool:
        """Forget a switch that has been undone; return whether there was one."""
        self._undo.pop(key, None)
        self._entry.pop(key, None)
        return self._exit.pop(key, None) is not None

    def was_switched(self, fn: Any, *given: Any) -> bool:
        """Return whether the frame has set what this function sets (`given`: of this key)."""
        return any(setter is fn and (not given or given[0] == told) for setter, told in self._entry)

    def open_layer(self, key: Any, close: Callable[[], object]) -> None:
        """Note that a layer is open, for real: no graph can end in it."""
        self._undo[key] = close

    def layers(self, kind: str) -> list[Any]:
        """Return the levels of the layers of a kind that the frame has open."""
        return [key[1] for key in self._undo if key[0] == kind]

    def close_layer(self, key: Any) -> None:
        """Note that a layer is closed."""
        del self._undo[key]

    def switched(self) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        """Yield each function that switches process state, with the arguments that leave it as the frame does."""
        return ((key[0], now) for key, now in self._exit.items() if self._entry[key] != now)

    def is_level(self) -> bool:
        """Return whether the process is as the frame found it."""
        return not any(self.switched()) and self._undo.keys() <= self._entry.keys()

    def leave_process(self) -> None:
        """Put the process back as the frame found it; called on every way out of a capture."""
        for undo in reversed(list(self._undo.values())):
            undo()
        self._undo.clear()

    def let_go(self) -> None:
        """Drop all references to the program's objects."""
        for store in (self._changes, self._written, self._names, self._spaces):
            store.clear()
        self._deferred.clear()

    def _state(self) -> tuple[Any, ...]:
        layers = [key for key in self._undo if key not in self._entry]
        return list(self.switched()), layers, [id(mode) for mode in self.modes]

    @property
    def is_watched(self) -> bool:
        """Return whether a mark has been set."""
        return self._tick > 0

    # -- readers --------------------------------------------------------------------------------------------------
    def mark(self) -> EffectMark:
        """Mark the place where the capture is now."""
        self.watch()
        return EffectMark(
            len(self._changes),
            self._older,
            self.builder.begin(),
            len(self._deferred),
            self._state(),
            len(self._assumptions),
        )

    def watch(self) -> None:
        """Have the next write to each object noted, also to one that was written to before."""
        self._tick += 1
        self._older = len(self.heap.entities)

    def outside(self) -> Any:
        """Return what is equal for two places between which nothing that existed at entry was written to, no call was
        deferred and no process state was switched, if `watch` was called at the first.
        """
        changes = sum(change.owner is None or change.owner.real is not MISSING for change in self._changes)
        return changes, len(self._deferred), self._state()

    def changes(self, since: int = 0) -> list[Change]:
        """Return what was written to, without the first so many."""
        return self._changes[since:]

    def since(self, mark: EffectMark, allowed: Collection[EffectKind] = ()) -> list[Change]:
        """Return the side effects since a mark, on what is older: the program's objects and the frame's own.

        Kinds that the caller tolerates are `allowed`; all others are to be refused.
        """
        first: dict[tuple[EffectKind, int], Change] = {}
        for change in self._changes[mark.changes :]:
            if change.owner is None or is_older(change.owner, mark.objects):
                first.setdefault((change.kind, id(change.owner)), change)
        found = list(first.values())
        done = self.builder.since(mark.graph)
        others = {
            EffectKind.DEFERRED: len(self._deferred) > mark.deferred,
            EffectKind.STATE: self._state() != mark.state,
            EffectKind.GRAPH: done.writes > 0,
            EffectKind.RANDOM: done.draws > 0,
            EffectKind.ASSUMPTION: len(self._assumptions) > mark.assumptions,
        }
        found += [Change(kind) for kind, there in others.items() if there]
        return [change for change in found if change.kind not in allowed]

    def net(self, mark: EffectMark, allowed: Collection[EffectKind] = ()) -> list[Change]:
        """Return the side effects since a mark, less those after which all is again as it was."""
        return [change for change in self.since(mark, allowed) if not self._is_back(change)]

    def _is_back(self, change: Change) -> bool:
        entity, before = change.owner, change.before
        if change.kind in ATTRIBUTES:
            now, entry = entity.attrs, entity.loaded
            return all(now.get(name, entry.get(name)) is before.get(name, entry.get(name)) for name in {*now, *before})
        if change.kind is EffectKind.ITEMS:
            at_entry = before is AT_ENTRY and self.holds_what_it_held(entity)
            return at_entry or (before is not UNKNOWN and is_same(copied(entity.items), before))
        if change.kind in (EffectKind.NAME, EffectKind.FUNCTION):
            now = {key: value for key, value in self._names.items() if self._spaces[key[0]].kind is change.kind}
            return all(before.get(key) is value or self._is_entry(key, value) for key, value in now.items())
        return False

    def _is_entry(self, key: tuple[int, str], value: Value) -> bool:
        """Return whether a name has, again, its value and its place at entry."""
        home = None if key in self._names_set_again else self._spaces[key[0]].source
        return home is not None and self._source_of(value) is Source("key", home, key[1])

    def holds_what_it_held(self, entity: Entity) -> bool:
        """Return whether a container that existed is known to hold what it held at entry, in the same order."""
        items = entity.items
        if entity.entry_items is not None:
            return is_same(copied(items), copied(entity.entry_items))
        if items.__class__ is not list or len(items) != _length(entity.real):
            return False
        return all(self._source_of(item) is Source("item", entity.source, at) for at, item in enumerate(items))

    def _source_of(self, value: Value) -> Source | None:
        return self.heap[value].source if value.__class__ is Object else getattr(value, "source", None)

    def pending(self) -> Iterator[Write]:
        """Yield the side effects to replay after the graph, in order; objects as they were met, in their final state.

        The value of a switch is the list of the function's arguments.
        """
        for entity in self.changed():
            if entity.touched:
                yield Write(EffectKind.ITEMS, entity, None, None)
            for name in self.set_again(entity):
                if entity.attrs[name] is not ABSENT:
                    yield Write(entity.attribute_kind, entity, name, ABSENT)  # else it would keep its place
            for name, value in entity.attrs.items():
                yield Write(entity.attribute_kind, entity, name, value)
        for key, value in sorted(self._names.items(), key=lambda item: RANKS[self._spaces[item[0][0]].kind]):
            space, name = self._spaces[key[0]], key[1]
            owner = space if space.holder is None else space.holder
            if key in self._names_set_again and value is not ABSENT:
                yield Write(space.kind, owner, name, ABSENT)
            if not self._is_entry(key, value):
                yield Write(space.kind, owner, name, value)
        for call in self._deferred:
            yield Write(EffectKind.DEFERRED, call, None, None)
        for mode in self.modes:
            yield Write(EffectKind.STATE, torch._C._push_on_torch_function_stack, None, [mode])
        for fn, args in self.switched():
            yield Write(EffectKind.STATE, fn, None, [Known(arg) for arg in args])


def _length(held: Any) -> int:
    """Return the length of a container; of a list or deque past what a subclass says."""
    if isinstance(held, list):
        return list.__len__(held)
    return collections.deque.__len__(held) if isinstance(held, collections.deque) else len(held)


def is_older(entity: Entity, objects: int) -> bool:
    """Return whether an object existed at entry, or is one of the first so many that were met or made."""
    return entity.real is not MISSING or entity.ref < objects
