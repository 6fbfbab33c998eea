"""Outline a part of a function: code that runs it, and returns on which way it was left, and with what.

What is around such a part stays Python: a loop that cannot be unrolled, the `yield`s of a generator. The part is called
with the variables and the stack that it needs, and is a function like any other to the hook. It returns the number of
the way on which it was left and a tuple of what it has changed; for a `return`, RETURNED and the value.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable
from types import CodeType
from typing import Any, NamedTuple
from weakref import ref

from torchdynamo import _native
from torchdynamo.bytecode import versions
from torchdynamo.bytecode.assemble import argument_names
from torchdynamo.bytecode.bound_at import bound_at
from torchdynamo.bytecode.decode import decode
from torchdynamo.bytecode.flow import FINAL, successors, target
from torchdynamo.bytecode.instruction import Code, Instruction, Item, Label, RegionEnd, RegionStart, with_regions
from torchdynamo.bytecode.liveness import live_locals
from torchdynamo.bytecode.percode import PerCode
from torchdynamo.bytecode.stacks import NULL, PLACE, UNKNOWN, Effect, UnknownEffect, plain_lookup, reaching, stacks
from torchdynamo.capture.interpreter import MANY, OPS
from torchdynamo.codegen import resume
from torchdynamo.codegen.operands import COUNTED
from torchdynamo.codegen.resume import Unset
from torchdynamo.codegen.unbound_cells import checked

RETURNED = -1


class WayOut(NamedTuple):
    """A way on which a part is left."""

    to: int  # instruction at which the function goes on
    stack: tuple[bool, ...]  # True for each NULL
    given: tuple[int, ...]  # places on the stack whose contents the part returns; others are as they were
    names: tuple[str, ...]  # variables that the part returns
    unsure: frozenset[str]  # those among them that may be unset: Unset stands for them
    places: frozenset[int]  # places on the stack where there may be no object: a number is returned in its stead


class Outlined(NamedTuple):
    """A part of a function: its code, what it takes, and its ways out."""

    code: CodeType
    names: tuple[str, ...]
    unsure: frozenset[str]
    touched: frozenset[str]  # variables that it may set or delete
    stack: tuple[bool, ...]
    below: int  # so many items at the bottom of the stack stay with the caller
    ways: tuple[WayOut, ...]
    returns: bool  # it may return from the function


class PartPlace(NamedTuple):
    """Which part of a function: the arguments of `part`."""

    kind: str  # a row of KINDS
    start: int
    stack: tuple[bool, ...]


class NotOutlined(Exception):
    """Raised where a part cannot be a function of its own."""


class Kind(NamedTuple):
    """Says where parts of a kind end, and what they leave behind."""

    cuts: Callable[[Code, int], Callable[[int], bool]]  # of the code and the part's start
    keeps_all: bool  # variables that are needed no more are returned as well, since they can be looked at
    below: Callable[[PartPlace], int]  # so many items at the bottom of the stack stay with the caller


KINDS: dict[str, Kind] = {}

_places: PerCode[tuple[ref[CodeType], PartPlace]] = PerCode()


def place_of(code: CodeType) -> tuple[CodeType, PartPlace] | None:
    """Return the function that code is a part of, and which; None for other code."""
    known = _places.get(code)
    source = None if known is None else known[0]()
    return None if known is None or source is None else (source, known[1])


def written_by_user(code: CodeType) -> CodeType:
    """Return the code that the user wrote, behind parts and continuations."""
    while True:
        source = resume.origin(code).code
        known = place_of(source)
        if known is None:
            return source
        code = known[0]


def part(code: CodeType, place: PartPlace) -> Outlined:
    """Return a part of a function, made once. Raises NotOutlined."""
    known: dict[PartPlace, Outlined | None] = decode(code).analyses.setdefault("parts", {})
    if place not in known:
        try:
            known[place] = make(code, place)
        except (NotOutlined, UnknownEffect):
            known[place] = None
    found = known[place]
    if found is None:
        raise NotOutlined
    return found


def make(code: CodeType, place: PartPlace) -> Outlined:
    """Outline a part of a function. Raises NotOutlined or UnknownEffect."""
    if not versions.OUTLINES:
        raise NotOutlined
    decoded, kind = decode(code), KINDS[place.kind]
    cut = kind.cuts(decoded, place.start)
    below = kind.below(place)
    entry = tuple(NULL if null else ("slot", depth) for depth, null in enumerate(place.stack))
    found = stacks(decoded, place.start, entry, cut, effects())
    again = returns_to(decoded, found, place.start)
    ends = sorted(index for index in found if cut(index) and (again or index != place.start))
    body = [decoded.instructions[index] for index in found if index not in ends or index == place.start]
    touched = frozenset(each.arg for each in body if each.op in TOUCHING)
    wanted = touched | {each.arg for each in body if each.op in READING}
    cells = frozenset(code.co_cellvars)
    bound = bound_at(decoded, argument_names(code))

    def variables(index: int, among: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str]]:
        there = bound[index]
        held = among & there.perhaps - cells
        if not kind.keeps_all:
            held &= live_locals(decoded, index) | self_of(code)
        order = [*code.co_varnames, *sorted(held - {*code.co_varnames})]
        return tuple(name for name in order if name in held), held - there.surely

    names, unsure = variables(place.start, wanted | self_of(code))
    ways = []
    for index in ends:
        if UNKNOWN in found[index]:
            raise NotOutlined
        shape = tuple(slot == NULL or slot[0] == "method" for slot in found[index])
        given = (
            depth
            for depth, slot in enumerate(found[index])
            if not shape[depth] and (depth >= below or slot != ("slot", depth))
        )
        places = frozenset(depth for depth, slot in enumerate(found[index]) if slot == PLACE)
        ways.append(WayOut(index, shape, tuple(given), *variables(index, touched), places))
    writer = PartWriter(code, place, names, unsure, ways, reaching(found, ends))
    made = writer.code()
    _native.called_last(made, True, None, True)
    _places.set(made, (ref(code), place))
    returns = any(each.op == "RETURN" for each in body)
    return Outlined(made, names, unsure, touched, place.stack, below, tuple(ways), returns)


def returns_to(code: Code, found: Iterable[int], index: int) -> bool:
    """Return whether an instruction among those found leads to this one."""
    normal = successors(code)
    return any(index in normal[each] for each in found)


def self_of(code: CodeType) -> frozenset[str]:
    """Return the first argument, where `super()` reads it without an instruction."""
    return frozenset(code.co_varnames[:1] if "__class__" in code.co_freevars else ())


TOUCHING = frozenset({"STORE_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR"})
READING = frozenset({"LOAD_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR"})


def effect_of(op: str) -> Effect:
    """Return the effect on the stack of an instruction that capture knows."""
    _, pops, pushes = OPS[op]

    def effect(arg: Any) -> tuple[int, int]:
        count = pops if isinstance(pops, int) else pops(arg)
        if op in COUNTED:
            return count, COUNTED[op](arg)
        if pushes is None or pushes == MANY:
            raise UnknownEffect(op)
        return count, pushes

    return effect


YIELDS: dict[str, Effect] = {"YIELD": lambda arg: (1, 1)}


@functools.cache
def effects() -> dict[str, Effect]:
    """Return the effects on the stack of all instructions, by name."""
    return {op: effect_of(op) for op in OPS} | YIELDS


class PartWriter:
    """Writes the code of a part."""

    def __init__(
        self,
        code: CodeType,
        place: PartPlace,
        names: tuple[str, ...],
        unsure: frozenset[str],
        ways: list[WayOut],
        methods: set[int],
    ) -> None:
        """Set up. methods: lookups of methods to be written as plain lookups."""
        self.raw = code
        self.place = place
        self.names = names
        self.unsure = unsure
        self.ways = {way.to: (number, way) for number, way in enumerate(ways)}
        self.methods = methods

    def code(self) -> CodeType:
        """Return the code."""
        start = Label()
        first = decode(self.raw).instructions[self.place.start]
        body: list[Item] = []
        ends: list[Item] = []
        index = -1
        for item in checked(self.raw):
            if not isinstance(item, Instruction):
                body.append(item)
                continue
            index += 1
            if index in self.ways:
                there = Label()
                body.append(Instruction("JUMP", there, item.position))
                ends += self.leave(there, *self.ways[index], item.position)
            if index == self.place.start:
                body.append(start)
            body += self.written(index, item)
        stack, arguments = self.place.stack, [*self.names]
        arguments += [f"__stack{depth}" for depth, null in enumerate(stack) if not null]
        unset = resume.unset(self.names, self.unsure, first.position)
        items = pruned([*unset, *resume.prologue_of(stack, start, first.position), *body, *ends])
        return resume.given(self.raw, items, tuple(arguments))

    def written(self, index: int, item: Instruction) -> list[Item]:
        """Return what an instruction of the function is in the part."""
        if item.op == "RETURN":
            parts = [("LOAD_CONST", RETURNED), ("SWAP", 2), ("BUILD", ("tuple", 2)), ("RETURN", None)]
            return [Instruction(op, arg, item.position) for op, arg in parts]
        if index in self.methods:
            moved = [Instruction("SWAP", 2, item.position)] if versions.NULL_FIRST else []
            return [plain_lookup(item), Instruction("NULL", None, item.position), *moved]
        return [item]

    def leave(self, there: Label, number: int, way: WayOut, position: Any) -> list[Item]:
        """Return instructions that return what the part leaves behind on a way."""
        made: list[Item] = [there]
        after: list[Item] = []

        def emit(op: str, arg: Any = None) -> None:
            made.append(Instruction(op, arg, position))

        put_away(emit, way.stack, way.places)
        emit("LOAD_CONST", number)
        for depth in way.given:
            emit("LOAD_FAST", f"__stack{depth}")
        for name in way.names:
            load(name, name in way.unsure, False, made, after, position)
        emit("BUILD", ("tuple", len(way.given) + len(way.names)))
        emit("BUILD", ("tuple", 2))
        emit("RETURN")
        return made + after


def put_away(emit: Callable[..., None], stack: tuple[bool, ...], places: Collection[int] = ()) -> None:
    """Emit instructions that put what is on the stack into temporaries, and a number for what may be no object."""
    for depth, null in reversed([*enumerate(stack)]):
        if depth in places:
            emit("POP")
            emit("LOAD_CONST", 0)
        if not null:
            emit("STORE_FAST", f"__stack{depth}")
            continue
        emit("LOAD_CONST", int)  # a call takes the NULL away
        if not versions.NULL_FIRST:
            emit("SWAP", 2)
        emit("CALL", (0, ()))
        emit("POP")


def load(name: str, unsure: bool, moves: bool, made: list[Item], after: list[Item], position: Any) -> None:
    """Append instructions that push a variable, or Unset if it is not set. after: what is to follow out of line.

    moves: the variable is unset then.
    """
    deleted = [Instruction("DELETE_FAST", name, position)] if moves else []
    if not unsure:
        made += [Instruction("LOAD_FAST", name, position), *deleted]
        return
    start, over = RegionStart(Label()), Label()
    made += [start, Instruction("LOAD_FAST", name, position), RegionEnd(start), *deleted, over]
    ops = [("POP", None), ("LOAD_CONST", Unset), ("JUMP", over)]
    after += [start.handler, *(Instruction(op, arg, position) for op, arg in ops)]


def pruned(items: list[Item]) -> list[Item]:
    """Return the items without the instructions that cannot be reached from the first."""
    places = {item: index for index, item in enumerate(items) if isinstance(item, Label)}
    handlers = [None if around is None else around.handler for _, around in with_regions(items)]
    reached: set[int] = set()
    waiting = [0]
    while waiting:
        index = waiting.pop()
        while index < len(items) and index not in reached:
            reached.add(index)
            item = items[index]
            if isinstance(item, Instruction):
                handler, label = handlers[index], target(item)
                waiting += [places[each] for each in (handler, label) if each is not None]
                if item.op in FINAL:
                    break
            index += 1
    return [item for index, item in enumerate(items) if index in reached or not isinstance(item, Instruction)]
