"""Write sources and guards as rows of numbers, with facts in place of objects; and read them for a frame.

A row refers to values by their numbers in a pool, and to sources, facts and positions by their numbers in tables of
rows. An object is written as its description and the place where the frame has it, and is looked for there when the
rows are read: the guards that come out are those that a capture of that frame would have made, or there are none.
"""

from __future__ import annotations

import operator
import types
import weakref
from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torchdynamo.cache.store.facts import MADE, describe, made_again, shown
from torchdynamo.cache.store.homes import object_at, of_type, place_in_modules
from torchdynamo.cache.store.identical import ARGUMENTS, Identical, Place, unwrapped
from torchdynamo.cache.store.values import Malformed, NotStorable, PoolReader, ValuePool
from torchdynamo.capture.vm.wrap import holds_nan
from torchdynamo.core.naming import OWN
from torchdynamo.core.source import ACCESSORS, LED_TO, Guard, Pinned, Position, Roots, Source
from torchdynamo.core.value import ABSENT
from torchdynamo.graph.wrappers import GETTERS
from torchdynamo.guards.constants import same_constant
from torchdynamo.guards.kinds import KINDS

SOURCE, FACT, PINNED, NOTHING, OTHER = (bytes([0x80 + number]) for number in range(5))
"""Tags of a source, an object, an object that a source begins at, the absence of one, and of what the code holds."""
NONE = 0xFFFFFFFF


class Unresolved(LookupError):
    """Raised if this frame has no such object as was described; the text says what was looked for."""


def weakly(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a bound method that does not keep its object alive.

    Writers and readers hold the frame's tensors. With pools that referred to them strongly, only the cycle collector
    would free these.
    """
    found = weakref.WeakMethod(method)
    return lambda *args: found()(*args)  # type: ignore[misc]


class Tables(NamedTuple):
    """Tables of a finished writer, as bytes."""

    values: bytes
    parts: bytes
    facts: bytes
    sources: bytes
    positions: bytes


class RowWriter:
    """Writes sources, guards and objects, each once."""

    def __init__(self, other: Callable[[Any], int | None] = lambda obj: None) -> None:
        """Make the writer. other: gives the number of an object that the reader gets elsewhere; None for others."""
        self.other = other
        self.pool = ValuePool(weakly(self.refer))
        self.parts = ValuePool(weakly(self.refer))  # of objects: apart, because they are read as numbers of facts
        self.source_rows = array("I")
        self.sources: dict[Source, int] = {}
        self.fact_rows: list[tuple[int, ...]] = []
        self.within = NONE  # the number of the object whose parts are written
        self.facts: dict[Any, int] = {}  # id, and for values the place too -> number
        self.references: dict[int, int] = {}  # number of a fact -> number, among values, of what refers to it
        self.held: list[Any] = []  # objects, so that their ids stay their own
        self.places: dict[int, Source] = {}  # id -> where a guard has it
        self.position_rows = array("I")
        self.positions: dict[Position, int] = {}

    def refer(self, obj: Any) -> tuple[bytes, int]:
        if type(obj) is Source:
            return SOURCE, self.source(obj)
        if type(obj) is Pinned:
            return PINNED, self.fact(obj.object)
        if obj is ABSENT:
            return NOTHING, 0
        if type(obj) is Identical:
            return FACT, self.fact(obj.obj, obj.place)
        number = self.other(obj)
        return (FACT, self.fact(unwrapped(obj))) if number is None else (OTHER, number)

    def source(self, source: Source) -> int:
        """Return the number of a source."""
        known = self.sources.get(source)
        if known is None:
            base = NONE if source.base is None else self.source(source.base)
            row = self.pool.number(source.how), base, self.pool.number(source.arg)
            known = self.sources[source] = len(self.source_rows) // 3
            self.source_rows.extend(row)
        return known

    def fact(self, obj: Any, place: Place = None) -> int:
        """Return the number of what describes an object. Raises NotStorable.

        place: where the frame has it; a value may be one object in one process and two in another, so it is written
        once for each place.
        """
        known = self.facts.get(id(obj))  # of a value by its place too, of all else without: what it is stays as it was
        if known is not None:
            return known
        if holds_nan(obj):
            raise NotStorable("it rests on which NaN a constant is: one equals none, and is found by identity")
        found = describe(obj)
        key = (id(obj), place) if found.kind == "value" else id(obj)
        known = self.facts.get(key)
        if known is not None:
            return known
        number = self.facts[key] = len(self.fact_rows)
        self.held.append((obj, found.parts))
        self.fact_rows.append(())
        home = place_in_modules(obj)
        place = None if home else place if found.kind == "value" else self.places.get(id(obj))
        kind = self.pool.number((found.kind, home))
        values, owner = self.pool.number(found.values), self.within
        if home is None and place is None and owner == NONE and found.kind not in MADE:
            raise NotStorable(f"{shown(obj)} is nowhere where it can be looked for")
        self.within = number
        parts = self.parts.number(tuple(map(unwrapped, found.parts)))
        self.within = owner
        self.fact_rows[number] = kind, values, parts, NONE if place is None else self.source(place), owner
        return number

    def position(self, position: Position | None) -> int:
        """Return the number of a position."""
        if position is None:
            return NONE
        known = self.positions.get(position)
        if known is None:
            known = self.positions[position] = len(self.position_rows)
            self.position_rows.append(self.pool.number(tuple(position)))
        return known

    def guards(self, guards: Sequence[Guard]) -> bytes:
        """Return guards as rows. Raises NotStorable."""
        arguments = [ARGUMENTS.get(each.kind, _as_it_is)(each.source, each.arg) for each in guards]
        for argument in arguments:  # all places are known before any object is described
            for part in argument if type(argument) is tuple else (argument,):
                if type(part) is Identical and part.place is not None:
                    self.places.setdefault(id(part.obj), part.place)
        rows = array("I")
        number, source, position = self.pool.number, self.source, self.position
        for guard, argument in zip(guards, arguments, strict=True):
            arg = self.identity(argument) if type(argument) is Identical else number(argument)
            rows.extend((number(guard.kind), source(guard.source), arg, position(guard.position)))
        return rows.tobytes()

    def identity(self, argument: Identical) -> int:
        """Return the number, among values, of an object that counts by its identity: as `refer` would write it."""
        fact = self.fact(argument.obj, argument.place)
        known = self.references.get(fact)
        if known is None:
            known = self.references[fact] = self.pool.number(argument)
        return known

    def tables(self) -> Tables:
        """Return all that has been written."""
        facts = array("I", [number for row in self.fact_rows for number in row])
        pools = self.pool.dump(), self.parts.dump()
        return Tables(*pools, facts.tobytes(), self.source_rows.tobytes(), self.position_rows.tobytes())


def _as_it_is(source: Source, arg: Any) -> Any:
    return arg


class RowReader:
    """Reads rows for one frame: finds the objects that they describe, each once."""

    def __init__(self, tables: Tables, roots: Roots, other: Callable[[int], Any] = operator.index) -> None:
        self.roots = roots
        self.other = other
        self.pool = PoolReader(tables.values, weakly(self.restore))
        self.parts = PoolReader(tables.parts, _number)
        self.fact_rows = array("I", tables.facts)
        self.source_rows = array("I", tables.sources)
        self.position_rows = array("I", tables.positions)
        self.sources: dict[int, Source] = {}
        self.positions: dict[int, Position] = {}
        self.loaded: dict[Source, Any] = {}
        self.objects: dict[int, Any] = {}  # number of a fact -> object
        self.facts: dict[int, int] = {}  # id of an object -> number of its fact
        self.asked: set[int] = set()

    def restore(self, tag: bytes, number: int) -> Any:
        return _RESTORED[tag](self, number)

    def source(self, number: int) -> Source:
        """Return the source of a row."""
        known = self.sources.get(number)
        if known is None:
            how, base, arg = self.source_rows[3 * number : 3 * number + 3]
            if base != NONE and base >= number:
                raise Malformed(f"source {number} begins at {base}")
            known = Source(self.pool[how], None if base == NONE else self.source(base), self.pool[arg])
            self.sources[number] = known
        return known

    def fact(self, number: int) -> Any:
        """Return the object that a row describes. Raises Unresolved."""
        if number in self.objects:
            return self.objects[number]
        if number in self.asked:
            raise Unresolved(f"{self.named(number)} leads to itself")
        self.asked.add(number)
        kind, _, _, place, owner = self.row(number)
        home = self.pool[kind][1]
        if home is None and place == NONE:
            return self.part_of(number, owner)
        found = object_at(*home) if home is not None else self.load(self.source(place))
        if found is None and self.pool[kind][0] != "value":
            raise Unresolved(f"there is no {self.named(number)}")
        self.match(number, found)
        return found

    def row(self, number: int) -> array[int]:
        """Return the numbers that describe an object: kind, values, parts, place, and what it is a part of."""
        return self.fact_rows[5 * number : 5 * number + 5]

    def part_of(self, number: int, owner: int) -> Any:
        """Return an object that is found as a part of another. Raises Unresolved."""
        if owner != NONE and owner not in self.asked:
            self.fact(owner)
        kind, values, parts, *_ = self.row(number)
        if number not in self.objects and self.pool[kind][0] in MADE:
            found = tuple(map(self.part, self.parts[parts]))
            self.match(number, made_again(self.pool[kind][0], self.pool[values], found))
        if number not in self.objects:
            raise Unresolved(f"{self.named(number)} has no place")
        return self.objects[number]

    def part(self, content: Any) -> Any:
        """Return a part of an object from what a row says of it. Raises Unresolved."""
        if type(content) is FactNumber:
            return self.fact(content)
        return self.other(content) if type(content) is OtherNumber else content

    def match(self, number: int, obj: Any) -> None:
        """Take an object for the one that a row describes. Raises Unresolved if it is not like that."""
        if number in self.objects:
            if self.objects[number] is not obj:
                raise Unresolved(f"{self.named(number)} was one object")
            return
        kind, values, parts, _, _ = self.row(number)
        home = self.pool[kind][1]
        if home is not None and place_in_modules(obj) != home:
            raise Unresolved(f"{self.named(number)} is another, or lies elsewhere")
        if self.pool[kind][0] != "value" and self.facts.setdefault(id(obj), number) != number:
            raise Unresolved(f"{self.named(number)} and {self.named(self.facts[id(obj)])} were two objects")
        self.objects[number] = obj
        try:
            found = describe(obj)
        except NotStorable as error:
            raise Unresolved(f"{self.named(number)}: {error}") from None
        if found.kind != self.pool[kind][0] or not same_constant(found.values, self.pool[values]):
            raise Unresolved(f"{self.named(number)} changed")
        self.match_part(number, found.parts, self.parts[parts])

    def match_part(self, number: int, part: Any, wanted: Any) -> None:
        """Compare a part of an object with what a row says of it. Raises Unresolved."""
        if type(wanted) is FactNumber:
            self.match(wanted, part)
        elif type(wanted) is OtherNumber:
            if self.other(wanted) is not part:
                raise Unresolved(f"{self.named(number)} changed")
        elif type(wanted) is tuple and type(part) is tuple and len(part) == len(wanted):
            for each, other in zip(part, wanted, strict=True):
                self.match_part(number, each, other)
        elif not same_constant(part, wanted):
            raise Unresolved(f"{self.named(number)} changed")

    def named(self, number: int) -> str:
        """Return what a row describes, for people."""
        kind, values, *_ = self.row(number)
        home = self.pool[kind][1]
        name = f"{home[0]}.{home[1]}" if home else " ".join(map(str, self.pool[values]))
        return f"{self.pool[kind][0]} {name}".strip()

    def load(self, source: Source) -> Any:
        """Return the object at a source in this frame. Raises Unresolved if there is none, or asking may run code."""
        if source in self.loaded:
            return self.loaded[source]
        base = self.roots if source.base is None else self.load(source.base)
        if is_attribute(source) and not _answers_in_c(base, source):
            raise Unresolved(f"{source} may run code")
        arg = self.load(source.arg) if source.how in LED_TO else source.arg
        try:
            found = ACCESSORS[source.how].load(base, arg)
        except Exception as error:
            raise Unresolved(f"there is no {source} ({type(error).__name__})") from None
        self.loaded[source] = found
        return found

    def guards(self, rows: bytes) -> list[Guard]:
        """Return guards from rows. Raises Unresolved."""
        pool, numbers = self.pool, iter(array("I", rows))
        made = []
        for kind, source, arg, position in zip(numbers, numbers, numbers, numbers, strict=True):
            name: str = pool[kind]
            place = None if position == NONE else self.position(position)
            made.append(Guard(self.source(source), name, KINDS[name].stored(pool[arg]), place))
        return made

    def position(self, number: int) -> Position:
        """Return the position of a row."""
        known = self.positions.get(number)
        if known is None:
            known = self.positions[number] = Position(*self.pool[self.position_rows[number]])
        return known


class FactNumber(int):
    """The number of a fact, among values."""


class OtherNumber(int):
    """The number of what the code holds, among values."""


def _number(tag: bytes, number: int) -> Any:
    if tag not in _PARTS:
        raise Malformed("a part of an object is a value or an object")
    return _PARTS[tag](number)


_PARTS: dict[bytes, Callable[[int], Any]] = {FACT: FactNumber, OTHER: OtherNumber}


_RESTORED: dict[bytes, Callable[[RowReader, int], Any]] = {
    SOURCE: RowReader.source,
    FACT: RowReader.fact,
    PINNED: lambda reader, number: Pinned(reader.fact(number)),
    NOTHING: lambda reader, number: ABSENT,
    OTHER: lambda reader, number: reader.other(number),
}
_ASKING = frozenset({"attr", "size", "stride", "method"})
_IN_C = (
    *(types.GetSetDescriptorType, types.MemberDescriptorType, types.MethodDescriptorType, types.WrapperDescriptorType),
    *(types.BuiltinFunctionType, types.ClassMethodDescriptorType),
)


def is_attribute(source: Source) -> bool:
    """Return whether a step reads an attribute, so that code of the program's may run."""
    return source.how in _ASKING or (source.how == "asked" and source.arg.__code__ is GETTERS)


def _answers_in_c(base: Any, source: Source) -> bool:
    """Return whether reading an attribute runs no code of a program: C has it, or a dictionary does."""
    cls: type = type(base)
    name = source.how if source.how in ("size", "stride") else getattr(source.arg, "__name__", source.arg)
    for each in of_type(cls, "__mro__"):
        own = OWN.__get__(each)
        if "__getattribute__" in own and type(own["__getattribute__"]) is types.FunctionType:
            return False
        if name in own:
            return isinstance(own[name], _IN_C)
    return issubclass(cls, (type, types.ModuleType)) or name in getattr(base, "__dict__", {})
