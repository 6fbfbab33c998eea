"""The code that replaces a frame's: call the graph, replay effects, then return, or step over a break and go on."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any, NamedTuple

from torchdynamo.bytecode import versions
from torchdynamo.bytecode.assemble import argument_names, assemble
from torchdynamo.bytecode.decode import decode
from torchdynamo.bytecode.instruction import Instruction, Item
from torchdynamo.capture.capture import Capture
from torchdynamo.capture.exits import BreakExit, Return
from torchdynamo.capture.kept import were_changed
from torchdynamo.capture.self_inspection import inspects_itself
from torchdynamo.capture.signals import CACHES, Attentive, Restart
from torchdynamo.capture.source import Source
from torchdynamo.codegen import effects
from torchdynamo.codegen.attempt import Attempt, Rerun
from torchdynamo.codegen.emit import BOUND, BoundIndex, Emitter
from torchdynamo.codegen.leaving import Exit


class Draft(NamedTuple):
    """Replacement code before the graph is compiled: everything but the call of the graph."""

    code: CodeType
    before: list[Item]  # what comes before the graph
    items: list[Item]
    outputs: list[Any]  # graph nodes, in the order the code unpacks them
    bound: list[Source]  # what the code reads of the bound tuple
    continuations: list[CodeType]
    skipped: list[CodeType]  # those that stay Python
    position: Any
    rerun: Rerun | None  # where the frame may have to run as it was written


def draft(capture: Capture, repeatable: Callable[[], bool], then: Callable[[Emitter], None] | None = None) -> Draft:
    """Write the part after the graph's call. Raises Restart where something cannot be made again.

    `repeatable`: whether nobody can tell that the graph ran, up to where it raised. `then` writes what comes after the
    effects.
    """
    if were_changed(capture.machine):
        raise Attentive(CACHES)
    emit = Emitter(capture)
    decoded = decode(capture.code)
    continuations: list[CodeType] = []
    skipped: list[CodeType] = []
    if capture.exit.__class__ is BreakExit:
        emit.position = decoded.instructions[capture.exit.at].position
    else:
        emit.position = None
    attempt = Attempt(emit, capture) if capture.machine.checks or capture.machine.may_raise else None
    if capture.exit.__class__ is BreakExit:
        effects.root_cells(emit, capture)
    before = effects.begin(emit, capture) if attempt is None else []  # an attempt may have to begin again
    effects.replay(emit, capture, begun=attempt is None)
    rerun = attempt or (Rerun(emit, capture) if emit.items and not before and repeatable() else None)
    if isinstance(capture.exit, Return):
        emit.value(capture.exit.value)
        effects.root_cells_that_stay(emit, capture)
        if then is not None:
            then(emit)
        emit.op("RETURN")
    else:
        if inspects_itself(capture.code):
            raise Restart(-1)
        if then is not None:
            then(emit)
        leaving = Exit(emit, capture.code, capture.exit, continuations, skipped)
        leaving.push_snapshot()
        leaving.write()
    outputs, bound = list(emit.outputs), list(emit.bound)
    return Draft(capture.code, before, emit.items, outputs, bound, continuations, skipped, emit.position, rerun)


def finish(draft: Draft, graph: Any, arguments: list[str], bound_inputs: int, discard: bool) -> CodeType:
    """The whole code: the graph's call near its start. `arguments` are the locals it takes; the rest comes bound."""
    head: list[Item] = [*draft.before]
    position = draft.position
    made = lambda op, arg=None: head.append(Instruction(op, arg, position))  # noqa: E731
    if graph is not None:
        emit_call(made, graph, arguments, bound_inputs, len(draft.bound))
        if draft.rerun is not None:
            head += draft.rerun.look(position)
        if discard or not draft.outputs:
            made("POP")
        else:
            made("UNPACK", len(draft.outputs))
            for index in range(len(draft.outputs)):
                made("STORE_FAST", f"__out{index}")
    bound = [BOUND] if draft.bound or bound_inputs else []
    items = [item for item in (*head, *draft.items) if bound or not lets_go_of_bound(item)]
    for item in items:
        if isinstance(item, Instruction) and item.arg.__class__ is BoundIndex:
            item.arg = int(item.arg) + bound_inputs
    return assemble(items, draft.code, varnames=[*bound, *locals_of(draft.code)])


def lets_go_of_bound(item: Item) -> bool:
    return isinstance(item, Instruction) and item.op == "DELETE_FAST" and item.arg == BOUND


def emit_call(made: Any, graph: Any, arguments: list[str], bound_inputs: int, extras: int) -> None:
    if versions.NULL_FIRST:
        made("NULL")
    made("LOAD_CONST", graph)
    if not versions.NULL_FIRST:
        made("NULL")
    for name in arguments:
        made("LOAD_FAST", name)
    if bound_inputs:
        made("LOAD_FAST", BOUND)
        if extras:
            made("LOAD_CONST", slice(0, bound_inputs))
            made("GETITEM")
    made("CALL", (len(arguments) + bool(bound_inputs), ()))


def locals_of(code: CodeType) -> list[str]:
    arguments = argument_names(code)
    return [name for name in code.co_varnames if name not in arguments]
