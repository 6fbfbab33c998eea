"""Write what a compiled frame is as the sections of a file, and read it for another frame.

Sections: `values`, `parts`, `facts`, `sources` and `places` are the tables of rows.py; `guards` are rows; `frame` is
the replacement code and how it calls its graph; `graph` the graph as it was captured; `backend` what was made of it;
`setup` what is known of a call that sets something up.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import CodeType, MappingProxyType
from typing import Any, NamedTuple
from weakref import ref

from torchdynamo import _native
from torchdynamo.backends.ensemble import operator_names
from torchdynamo.backends.run import Leaving
from torchdynamo.bytecode.instruction import Item
from torchdynamo.cache.store.calls_again import AnotherResult, call_again, compare_constants, guards_of_results
from torchdynamo.cache.store.devices import check_visible
from torchdynamo.cache.store.entry_parts import EntryReader, EntryWriter
from torchdynamo.cache.store.identical import unwrapped
from torchdynamo.cache.store.instructions import GRAPH, items_of, plain_items, renamed
from torchdynamo.cache.store.operators import digest_of
from torchdynamo.cache.store.rows import RowReader, RowWriter, Tables, Unresolved
from torchdynamo.cache.store.values import NotStorable
from torchdynamo.capture.exits import Why
from torchdynamo.capture.functions.builtins_classes import REGISTRATIONS, guards_of_answer
from torchdynamo.capture.vm.cached_calls import CachedCall, is_of_result
from torchdynamo.capture.vm.constant_calls import ConstantCall
from torchdynamo.capture.vm.process_settings import is_order_of_hashes
from torchdynamo.codegen import resume
from torchdynamo.codegen.deopt import Bailout
from torchdynamo.core.source import Guard, Position, Roots, Source
from torchdynamo.errors import RecordError
from torchdynamo.guards.constants import is_constant, same_constant
from torchdynamo.guards.identity import Weak
from torchdynamo.guards.kinds import KINDS
from torchdynamo.guards.program import complete, lower

ROWS = ("values", "parts", "facts", "sources", "places")
FRAMES_CODE = 0


class GraphFacts(NamedTuple):
    """How a frame's code calls its graph, and what the graph does besides computing its results."""

    name: str  # "" if there is no graph
    arguments: tuple[str, ...]
    bound_inputs: int
    splat: bool  # the other inputs come in one tuple
    boxes: tuple[int, ...]
    mutated: tuple[int, ...]  # positions of inputs
    random: bool
    as_captured: bool
    pure: bool  # the frame does nothing but to run its graph
    operators: int
    at_call: bool  # the frame ends before a call that leads to where capture ends
    rerun: tuple[bool, bool] | None  # if it runs as written when its graph raises: a warning was shown, sizes assumed


class RegistryAnswer(NamedTuple):
    """Answer of an abstract class about a class, given by its registrations."""

    cls: type
    abstract: type
    answer: bool


class StoredFrame(NamedTuple):
    """A compiled frame as it is stored."""

    code: CodeType
    guards: Sequence[Guard]
    bound: Sequence[Source]
    items: Sequence[Item]
    variables: Sequence[str]
    call: GraphFacts
    why: Why | None
    answers: Sequence[RegistryAnswer] = ()
    set_orders: Sequence[tuple[int | tuple[Any, ...], tuple[Any, ...]]] = ()
    cached_calls: Sequence[CachedCall] = ()
    operators: Mapping[str, str] = MappingProxyType({})  # custom ones, with their digests
    targets: Mapping[str, Any] = MappingProxyType({})  # functions that its graph calls, by their names there
    first_run: Any = None  # what compiles the function again once this call has set something up
    leaving: Sequence[Leaving] = ()  # what an error of its graph calls on its way out
    constant_calls: Sequence[ConstantCall] = ()
    devices: str = ""  # GPUs that its graph needs, as devices.py tells them


def dump(frame: StoredFrame) -> tuple[dict[str, bytes], list[CodeType]]:
    """Return the sections of a frame, and the code that they name. Raises NotStorable with what cannot be stored."""
    users = resume.origin(frame.code).code
    writer = RowWriter(lambda obj: FRAMES_CODE if obj is users else None)
    told = {(each.cls, each.abstract): each for each in frame.answers}
    if not told and any(guard.source is REGISTRATIONS for guard in frame.guards):
        raise NotStorable("it rests on which classes are registered with abstract ones")
    rows = writer.guards([guard for guard in frame.guards if not is_made_again(guard)])
    bound = array("I", [writer.source(source) for source in frame.bound])
    graph = frame.call.name
    left = frame.why.reason if frame.why is not None else resume.LOOP
    named = [users, *code_among(writer.held)]
    items = plain_items(frame.items, EntryWriter(frame.code, named, left, frame.first_run), graph)
    code = [users, *code_among(writer.held)]
    content = (
        tuple(frame.call._replace(name=GRAPH if graph else "")),
        tuple(GRAPH if graph and name == graph else name for name in frame.variables),
        items,
        None if frame.why is None else plain_reason(frame.why),
        tuple((each.cls, each.abstract, each.answer) for each in told.values()),
        tuple(frame.set_orders),
        tuple(map(tuple, frame.cached_calls)),
        tuple(frame.operators.items()),
        tuple(frame.targets.items()),
        tuple(map(tuple, frame.leaving)),
        tuple(map(tuple, frame.constant_calls)),
        frame.devices,
        tuple(code),
    )
    number = writer.pool.number(content)
    tables = dict(zip(ROWS, writer.tables(), strict=True))
    return {**tables, "guards": rows, "bound": bound.tobytes(), "frame": struct.pack("<I", number)}, code


def code_among(held: Iterable[tuple[Any, Any]]) -> Iterator[CodeType]:
    """Yield the code among the objects that a writer holds."""
    return (obj for obj, _ in held if type(obj) is CodeType)


def is_made_again(guard: Guard) -> bool:
    """Return whether a guard is not stored: it is made where the entry is read, or says nothing."""
    of_registry = guard.source is REGISTRATIONS or guard.kind == "REMEMBERED"
    return of_registry or is_of_itself(guard) or is_of_result(guard)


def is_of_itself(guard: Guard) -> bool:
    """Return whether a guard says that an object is itself: its source begins at the object."""
    source = guard.source
    return guard.kind == "ID_MATCH" and source.how == "pinned" and source.arg.object is unwrapped(guard.arg)


def plain_reason(why: Why) -> tuple[Any, ...]:
    """Return a reason as values; what fills its text becomes text."""
    fields = tuple((name, value if is_constant(value) else str(value)) for name, value in why.fields.items())
    return why.reason, fields, _plain(why.position), tuple(map(_plain, why.callers)), why.raises


def _plain(position: Position | None) -> tuple[Any, ...] | None:
    return None if position is None else tuple(position)


def reason_of(content: tuple[Any, ...]) -> Why:
    """Return a reason from values."""
    reason, fields, position, callers, raises = content
    place = None if position is None else Position(*position)
    return Why(reason, dict(fields), place, tuple(Position(*each) for each in callers), raises)


class LoadedFrame:
    """A stored frame for the frame that is about to run. Its guards hold; its code is made when it is asked for."""

    def __init__(self, sections: Mapping[str, bytes], code: CodeType, roots: Roots) -> None:
        """Find what the stored frame speaks of. Raises Unresolved if something is not there or is another."""
        users = resume.origin(code).code
        self.code = code
        self.reader = RowReader(Tables(*(sections[name] for name in ROWS)), roots, lambda number: users)
        self.bound = [self.reader.source(number) for number in array("I", sections["bound"])]
        self.guards = self.reader.guards(sections["guards"])
        self.number = struct.unpack("<I", sections["frame"])[0]
        self.roots = roots

    def verified(self, *, calls: bool = True) -> _native.GuardProgram:
        """Return the program of the guards, which hold for the frame. Raises Unresolved if they do not.

        calls: whether functions are called as capture has called them, once all else holds; else it is enough that the
        results of those with `lru_cache` are there. Raises CallRaised if one of these raises.
        """
        answers, constant, cached = self.read()
        self.guards = complete([*self.guards, *answers], self.roots)
        program = lower(self.guards, self.bound, self.code)
        self.hold(program)
        if calls:
            self.compare(constant)
        if cached:
            program = self.called(cached, program, calls)
        return program

    def confirm(self, program: _native.GuardProgram) -> None:
        """Raise Unresolved unless the frame that the entry was made for would find it.

        program: that of the guards of the capture, which are those that were read.
        """
        answers, _, cached = self.read()
        self.hold(program)
        self.guards = complete([*answers, *self.of_results(cached)], self.roots)
        self.hold(lower(self.guards, (), self.code))

    def read(self) -> tuple[list[Guard], list[ConstantCall], list[CachedCall]]:
        """Read how the entry calls its graph. Returns guards of registrations, and the calls that are made again.

        Raises Unresolved if something that no guard says is another.
        """
        content = self.reader.pool[self.number]
        call, self.variables, self.items, why, answers, orders, cached, operators, targets, *content = content
        leaving, constant, devices, known = content
        if not all(is_order_of_hashes(*each) for each in orders):
            raise Unresolved("hashes have another seed, and put a set in another order")
        self.known = [ref(each) for each in (self.code, *known)]
        self.call = GraphFacts(*call)
        self.targets = dict(targets)
        self.leaving = [Leaving(*each) for each in leaving]
        self.why = None if why is None else reason_of(why)
        check_operators(operators)
        check_visible(devices)
        again = [ConstantCall(*each) for each in constant], [CachedCall(*each) for each in cached]
        return [guard for each in answers for guard in self.registered(each)], *again

    def compare(self, constant: Sequence[ConstantCall]) -> None:
        """Raise Unresolved unless functions whose results are constant give here what they gave."""
        try:
            compare_constants(constant, self.reader.load)
        except AnotherResult as error:
            raise Unresolved(str(error)) from None

    def called(self, cached: Sequence[CachedCall], program: _native.GuardProgram, calls: bool) -> _native.GuardProgram:
        """Return the program of the guards with those of what caches hold. Raises Unresolved or CallRaised."""
        if calls:
            try:
                call_again(cached, self.reader.load, lambda: self.hold(program))
            except AnotherResult as error:
                raise Unresolved(str(error)) from None
        self.guards = complete([*self.guards, *self.of_results(cached)], self.roots)
        program = lower(self.guards, self.bound, self.code)
        self.hold(program)
        return program

    def of_results(self, cached: Sequence[CachedCall]) -> list[Guard]:
        """Return the guards of what caches hold. Raises Unresolved if one holds something else, or nothing."""
        try:
            return guards_of_results(cached, self.reader.load)
        except AnotherResult as error:
            raise Unresolved(str(error)) from None

    def hold(self, program: _native.GuardProgram) -> None:
        """Raise Unresolved unless the guards hold, of which this is the program."""
        roots = self.roots
        if not program.check(roots.locals, roots.globals, roots.builtins, roots.closure):
            raise Unresolved(failure(self.guards, roots))

    def registered(self, content: tuple[type, type, bool]) -> list[Guard]:
        """Return the guards of what an abstract class says of a class. Raises Unresolved if that has changed."""
        cls, abstract, answer = content
        if issubclass(cls, abstract) is not answer:
            raise Unresolved(f"{cls.__qualname__} is {'no' if answer else 'a'} subclass of {abstract.__qualname__} now")
        return guards_of_answer(cls, abstract, answer)

    def rerun(self) -> Bailout | None:
        """Return what runs the frame as written if its graph raises."""
        return None if self.call.rerun is None else Bailout.again(self.code, *self.call.rerun)

    def written(self, graph: str, rerun: Bailout | None, first_run: Any) -> list[Item]:
        """Return the instructions of the code. graph: the name of the variable that holds the graph."""
        items = items_of(self.items, EntryReader(self.code, self.known, rerun, first_run))
        renamed(items, self.call.name, graph)
        self.variables = [graph if name == self.call.name and name else name for name in self.variables]
        return items


def check_operators(told: Sequence[tuple[str, str]]) -> None:
    """Raise Unresolved unless custom operators are here that have these digests."""
    for name, digest in told:
        try:
            found = digest_of(operator_names.function_named(f"torch.ops.{name}"))
        except (RecordError, NotStorable) as error:
            raise Unresolved(str(error)) from None
        if found != digest:
            raise Unresolved(f"the operator {name} changed")


def failure(guards: Sequence[Guard], roots: Roots) -> str:
    """Return the first guard that does not hold, as text."""
    for guard in guards:
        kind = KINDS[guard.kind]
        try:
            value = guard.source.load(roots)
        except Exception:
            continue
        if not kind.holds(value, guard.arg, roots):
            part, old, new = kind.why(value, guard.arg, roots)
            return f"{guard.source}{part} was {old}, is {new}"
    return "a guard does not hold"


def agree(made: Sequence[Guard], live: Sequence[Guard]) -> bool:
    """Return whether guards that were read back are those that were written."""
    wanted, found = ([guard for guard in each if not is_made_again(guard)] for each in (live, made))
    return len(found) == len(wanted) and all(
        one.source is other.source and one.kind == other.kind and same(one.arg, other.arg)
        for one, other in zip(found, wanted, strict=True)
    )


def same(one: Any, other: Any) -> bool:
    """Return whether two arguments of guards are equal: values by value, objects by identity."""
    if type(one) is Weak or type(other) is Weak:
        return unwrapped(one) is unwrapped(other)
    if isinstance(one, tuple) and type(one) is type(other) and len(one) == len(other):
        return all(map(same, one, other))
    return one is other or (is_constant(one) and same_constant(one, other))
