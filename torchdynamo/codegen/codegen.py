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
from torchdynamo.capture.speculate.cached_calls import were_changed
from torchdynamo.capture.vm.self_inspection import inspects_itself
from torchdynamo.codegen import replay
from torchdynamo.codegen.deopt import Bailout, CheckedRun
from torchdynamo.codegen.emit import BOUND, GRAPH, BoundIndex, CodeEmitter
from torchdynamo.codegen.graph_break import Exit
from torchdynamo.core.signals import Assumption, Restart, Retry
from torchdynamo.core.source import Source


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
    rerun: Bailout | None  # where the frame may have to run as it was written
    does_nothing_else: bool  # but to run its graph, which leaves no trace where it raises


def draft(capture: Capture, repeatable: Callable[[], bool], then: Callable[[CodeEmitter], None] | None = None) -> Draft:
    """Write the part after the graph's call. Raises Restart where something cannot be made again.

    `repeatable`: whether nobody can tell that the graph ran, up to where it raised. `then` writes what comes after the
    effects.
    """
    if were_changed(capture.machine):
        raise Retry(Assumption.CACHES)
    emit = CodeEmitter(capture)
    decoded = decode(capture.code)
    continuations: list[CodeType] = []
    skipped: list[CodeType] = []
    if capture.exit.__class__ is BreakExit:
        emit.position = decoded.instructions[capture.exit.at].position
    else:
        emit.position = None
    attempt = CheckedRun(emit, capture) if capture.machine.checks or capture.machine.may_raise else None
    if capture.exit.__class__ is BreakExit:
        replay.root_cells(emit, capture)
    before = replay.begin(emit, capture) if attempt is None else []  # an attempt may have to begin again
    replay.replay(emit, capture, begun=attempt is None)
    rests = attempt is None and not before and repeatable()
    rerun = attempt or (Bailout(emit, capture) if emit.items and rests else None)
    pure = rests and not emit.items and isinstance(capture.exit, Return)
    if isinstance(capture.exit, Return):
        emit.value(capture.exit.value)
        replay.root_cells_that_stay(emit, capture)
        if then is not None:
            then(emit)
        emit.op("RETURN")
    else:
        if inspects_itself(capture.code):
            raise Restart(-1)
        if then is not None:
            then(emit)
        names = capture.machine.roots.globals
        leaving = Exit(emit, capture.code, capture.exit, continuations, skipped, names)
        leaving.push_snapshot()
        leaving.write()
    outputs, bound = list(emit.outputs), list(emit.bound)
    return Draft(capture.code, before, emit.items, outputs, bound, continuations, skipped, emit.position, rerun, pure)


def finish(draft: Draft, graph: str, arguments: list[str], bound_inputs: int, discard: bool) -> CodeType:
    """Return the whole code: the graph's call near its start. `arguments` are the locals it takes; the rest comes
    bound.

    The graph is a local of that name, which a frame begins with; "" if there is none.
    """
    position = draft.position
    call: list[Item] = []
    rest: list[Item] = []
    if graph:
        emit_call(
            lambda op, arg=None: call.append(Instruction(op, arg, position)),
            "LOAD_FAST",
            graph,
            arguments,
            bound_inputs,
            len(draft.bound),
        )
        if discard or not draft.outputs:
            rest.append(Instruction("POP", None, position))
        else:
            rest.append(Instruction("UNPACK", len(draft.outputs), position))
            rest += [Instruction("STORE_FAST", f"__out{index}", position) for index in range(len(draft.outputs))]
    bound = [BOUND] if draft.bound or bound_inputs else []
    there = {BOUND: BOUND if bound else "", GRAPH: graph}
    rest += [item for item in draft.items if there.get(let_go_by(item), True)]
    if graph and draft.rerun is not None:
        rest = draft.rerun.looking(rest, position)
    items = [*draft.before, *call, *rest]
    for item in items:
        if not isinstance(item, Instruction):
            continue
        if item.arg.__class__ is BoundIndex:
            item.arg = int(item.arg) + bound_inputs
        elif let_go_by(item) == GRAPH:
            item.arg = graph
    return assemble(items, draft.code, varnames=[*bound, *([graph] if graph else ()), *locals_of(draft.code)])


def let_go_by(item: Item) -> str:
    """Return the name of the variable that an instruction deletes, or ""."""
    return str(item.arg) if isinstance(item, Instruction) and item.op == "DELETE_FAST" else ""


def emit_call(made: Any, load: str, callee: Any, arguments: list[str], bound_inputs: int, extras: int) -> None:
    if versions.NULL_FIRST:
        made("NULL")
    made(load, callee)
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
