"""Run a loop that cannot be unrolled: the loop is Python, each turn a call of its body, which is captured."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import TYPE_CHECKING

from torchdynamo.bytecode.assemble import argument_names
from torchdynamo.bytecode.bound_at import bound_at
from torchdynamo.bytecode.decode import decode
from torchdynamo.bytecode.flow import loop_at
from torchdynamo.bytecode.instruction import Code, Label, RegionEnd, RegionStart
from torchdynamo.bytecode.liveness import live_locals
from torchdynamo.codegen import resume
from torchdynamo.codegen.dynamism_across_breaks import record_returned
from torchdynamo.codegen.outline import KINDS, Kind, NotOutlined, Outlined, PartPlace, WayOut, part
from torchdynamo.codegen.part_calls import PartCalls
from torchdynamo.codegen.setups import with_object_for_place
from torchdynamo.core.signals import Restart

if TYPE_CHECKING:
    from torchdynamo.codegen.graph_break import Exit


def leaves(code: Code, start: int) -> Callable[[int], bool]:
    """Return what tells whether an instruction begins another turn of the loop at `start`, or is outside of it."""
    loop = loop_at(code, start)
    if loop is None:
        raise NotOutlined
    return lambda index: index == start or index not in loop.body


KINDS["turn"] = Kind(leaves, False, lambda place: len(place.stack))
KINDS["turn with an item"] = Kind(
    lambda code, start: leaves(code, start - 1), False, lambda place: len(place.stack) - 1
)


def turn_of(code: CodeType, at: int, stack: tuple[bool, ...]) -> Outlined | None:
    """Return the body of the loop that begins at an instruction; None if it has to stay Python."""
    source, shift, *_ = resume.origin(code)
    if at < shift:  # inside the prologue: none of the program has run yet
        raise Restart(-1)
    start = at - shift
    place = PartPlace("turn", start, stack)
    if decode(source).instructions[start].op == "FOR_ITER":
        place = PartPlace("turn with an item", start + 1, (*stack, False))
    try:
        return part(source, place)
    except NotOutlined:
        return None


def write(leaving: Exit, turn: Outlined) -> None:
    """Emit a loop that calls the body for each turn, and goes on with continuations. The stack is in temporaries."""
    emit, at, shape = leaving.emit, leaving.exit.at, leaving.shape
    code = leaving.code
    shift = resume.origin(leaving.raw).prologue
    head, end = Label(), Label()
    first = code.instructions[at]
    iterates = first.op == "FOR_ITER"
    item = f"__stack{len(shape)}"
    region = code.lookup(at) if iterates else None
    handler = Label()
    emit.position = first.position
    emit.items.append(head)
    if iterates:
        start = RegionStart(handler, region.lasti, 0) if region is not None else None
        emit.items += [start] if start is not None else []
        emit.op("LOAD_FAST", f"__stack{len(shape) - 1}")
        emit.op("FOR_ITER", end)
        emit.op("STORE_FAST", item)
        emit.op("POP")
        emit.items += [RegionEnd(start)] if start is not None else []
        record_returned(turn.code, item)

    def go_on(way: WayOut) -> None:
        if way.to + shift == at:
            emit.op("JUMP", head)
            return
        for depth in range(len(way.stack), turn.below):
            if not turn.stack[depth]:
                emit.op("DELETE_FAST", f"__stack{depth}")
        behind(leaving, turn, way.to + shift, list(way.stack))

    calls = PartCalls(emit)
    leaving.made.append(turn.code)
    calls.call(turn, lambda: leaving.function(turn.code), go_on, leaving.held)
    if iterates:
        emit.items.append(end)
        emit.op("DELETE_FAST", f"__stack{len(shape) - 1}")
        behind(leaving, turn, code.targets[first.arg], shape[:-1])
    if region is not None:
        emit.items += [handler, *with_object_for_place(region.lasti)]
        results = 2 if region.lasti else 1
        for depth in reversed(range(region.depth, region.depth + results)):
            emit.op("STORE_FAST", f"__stack{depth}")
        behind(leaving, turn, region.handler, [*shape[: region.depth], *[False] * results])
    calls.finish()


def behind(leaving: Exit, turn: Outlined, index: int, shape: list[bool]) -> None:
    """Emit a call of the continuation at an instruction outside of the loop."""
    code, known = leaving.code, leaving.exit.locals
    there = bound_at(code, argument_names(leaving.raw)).get(index)
    if there is None:
        raise Restart(-1)
    wanted = leaving.held | live_locals(code, index)
    at_entry = {name for name in known if leaving.is_set(name)}
    sure = {name for name in at_entry - turn.touched | (turn.touched & there.surely) if name in wanted}
    unsure = {name for name in turn.touched & there.perhaps - there.surely if name in wanted}
    names = [name for name in leaving.raw.co_varnames if name in sure | unsure]
    names += sorted((sure | unsure) - {*names})
    leaving.shape = shape
    leaving.go_on(index, tuple(names), None, tuple(name for name in names if name in unsure))
