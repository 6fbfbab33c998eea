"""The contents of mutable objects while a frame is executed symbolically.

Nothing real is ever written during capture, so an object's state at entry can be read from the object itself at any
time. An `Entity` holds what was read (`loaded`, with a guard each) and what the frame made of it (`attrs`, `items`),
which only effects.py writes to, or is told of.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeVar

from torchdynamo.capture.vm.effect_kinds import EffectKind
from torchdynamo.core.source import Source
from torchdynamo.core.value import Object, Value

P = TypeVar("P")


class Missing:
    """Stand for the real object of something that the frame made."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()


class Entity:
    """Hold the contents of an object: reference, exact type, and the real object and its source if it is older."""

    __slots__ = (
        "attrs",
        "attrs_at",
        "born",
        "entry_items",
        "items",
        "items_at",
        "loaded",
        "payload",
        "pytype",
        "real",
        "ref",
        "source",
        "touched",
        "version",
    )

    def __init__(self, ref: int, pytype: type, real: Any, source: Source | None, born: int) -> None:
        self.ref = ref
        self.pytype = pytype
        self.real = real
        self.source = source
        self.attrs: dict[str, Value] = {}  # as written by the frame; ABSENT where deleted
        self.loaded: dict[str, Value] = {}  # as read at entry
        self.items: Any = None  # the type's own payload; None until loaded
        self.entry_items: Any = None  # a copy from when it was loaded
        self.touched = False  # the frame wrote to `items`
        self.attrs_at = self.items_at = -1  # after how many marks the frame wrote to them last
        self.version = 0  # how often it changed in a way that ends its iterators
        self.born = born  # the root step it was made in: where to stop if it cannot be rebuilt
        self.payload: object = None  # what the model of its type remembers of it, of a class that the model declares

    def payload_as(self, cls: type[P]) -> P:
        """Return the payload, which is of this class."""
        assert isinstance(self.payload, cls), self.pytype
        return self.payload

    def payload_if(self, cls: type[P]) -> P | None:
        """Return the payload if it is of this class; None if there is another, or none."""
        return self.payload if isinstance(self.payload, cls) else None

    @property
    def fresh(self) -> bool:
        """Return whether the frame made the object."""
        return self.real is MISSING

    @property
    def attribute_kind(self) -> EffectKind:
        """Return of which kind a write to an attribute of the object is."""
        return EffectKind.THREAD_LOCAL if issubclass(self.pytype, threading.local) else EffectKind.ATTRIBUTE

    @property
    def changed(self) -> bool:
        """Return whether the object existed at entry and the frame wrote to it."""
        return self.real is not MISSING and (self.touched or bool(self.attrs))


class ReadLater(NamedTuple):
    """Describe when a backward was captured that reads an object: the root step, and how many changes there were."""

    step: int
    changes: int


class RunAgain(NamedTuple):
    """Describe a stretch that a backward runs again: the root step, what it reads then, and what was written before.

    objects: references of cells and containers. memory: addresses of storages. ends: how many changes of objects, and
    writes to memory, there had been when a backward in the frame ran it; None if none has.
    """

    step: int
    objects: frozenset[int]
    memory: frozenset[int]
    begins: tuple[int, int]
    ends: tuple[int, int] | None = None


class WatchedEntities(list[Entity]):
    """Hold the entities of a heap, and record which were asked for."""

    def __init__(self, entities: list[Entity]) -> None:
        super().__init__(entities)
        self.asked: set[int] = set()

    def __getitem__(self, ref: Any) -> Any:
        self.asked.add(ref)
        return super().__getitem__(ref)


class Heap:
    """Hold all entities of one capture. A real object always has the same reference."""

    def __init__(self) -> None:
        self.entities: list[Entity] = []
        self.by_id: dict[int, Object] = {}
        self.of_process: dict[str, None] = {}  # what the capture rests on that is so in this process only
        # Seen: the size of the set's table, or its keys as they were added, and its keys in order.
        self.set_orders: dict[tuple[int | tuple[Any, ...], tuple[Any, ...]], None] = {}
        self.thinned: list[set[Any]] = []  # from which something was taken: places in the table may not be used again
        self.in_turn: list[set[Any]] = []  # that were empty, and to which keys were added one after the other
        self.literals: list[frozenset[Any]] = []  # what sets were filled with at once, in an order of its own

    def new(self, pytype: type, *, items: Any = None, born: int = 0, payload: object = None) -> Object:
        """Add an object that the frame makes."""
        entity = Entity(len(self.entities), pytype, MISSING, None, born)
        entity.items = items
        entity.payload = payload
        self.entities.append(entity)
        return Object(entity.ref, pytype)

    def adopt(self, real: Any, source: Source) -> Object:
        """Add an object that existed at entry. The caller has checked that it is not known yet."""
        entity = Entity(len(self.entities), type(real), real, source, 0)
        self.entities.append(entity)
        self.by_id[id(real)] = value = Object(entity.ref, type(real))
        return value

    @contextlib.contextmanager
    def watched(self) -> Iterator[set[int]]:
        """Record the references of objects that are asked for in a `with` block, in the set that this gives."""
        before, asked = self.entities, set[int]()
        watched = WatchedEntities(before)
        watched.asked = asked
        self.entities = watched
        try:
            yield asked
        finally:
            now = list(watched)
            if isinstance(before, WatchedEntities):
                before.asked |= asked
                before[:] = now
                self.entities = before
            else:
                self.entities = now

    def let_go(self) -> None:
        """Drop all contents, since nobody needs the capture any more.

        Iterators and functions in it lead back to it, and it to all that the program's frame held, which is not to wait
        for the garbage collector.
        """
        for entity in self.entities:
            entity.items = None
        self.entities.clear()

    def __getitem__(self, value: Object) -> Entity:
        return self.entities[value.ref]
