"""Emit the code that replaces a frame's: call the graph, replay side effects, then return or step over a break."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any, NamedTuple

from torchdynamo.bytecode import versions
from torchdynamo.bytecode.assemble import argument_names, assemble
from torchdynamo.bytecode.decode import decode
from torchdynamo.bytecode.instruction import Instruction, Item
from torchdynamo.capture.capture import Capture
from torchdynamo.capture.exits import BreakExit, Return
from torchdynamo.capture.functions.torch_autograd_objects import check_unchanged
from torchdynamo.capture.functions.torch_checkpoint import check_runs_again
from torchdynamo.capture.speculate.branches import were_noticed
from torchdynamo.capture.speculate.inlined_caches import were_changed
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.self_inspection import inspects_itself
from torchdynamo.codegen import replay
from torchdynamo.codegen.deopt import Bailout, CheckedRun
from torchdynamo.codegen.emit import BOUND, GRAPH, BoundIndex, CodeEmitter
from torchdynamo.codegen.graph_break import Exit
from torchdynamo.codegen.resume import is_continuation
from torchdynamo.core.signals import Assumption, Restart, Retry
from torchdynamo.core.source import Source
from torchdynamo.graph.host_nodes import draws_from_numpy


class Draft(NamedTuple):
    """Replacement code before the graph is compiled: all of it but the call of the graph."""

    code: CodeType
    before: list[Item]  # instructions before the graph's call
    items: list[Item]
    outputs: list[Any]  # graph nodes, in the order the code unpacks them
    bound: list[Source]  # sources whose objects the code reads from the bound tuple
    continuations: list[CodeType]
    skipped: list[CodeType]  # continuations that are not captured
    position: Any
    rerun: Bailout | None  # emits the deoptimization, if the frame may need one
    does_nothing_else: bool  # it only runs its graph, which has no side effects if it raises


def draft(capture: Capture, repeatable: Callable[[], bool], then: Callable[[CodeEmitter], None] | None = None) -> Draft:
    """Emit the code after the graph's call. Raises Restart where an object cannot be materialized.

    repeatable: tells whether running the graph up to an error has no visible side effect. then: emits code to follow
    the side effects.
    """
    if were_changed(capture.machine):
        raise Retry(Assumption.CACHES)
    check_unchanged(capture.machine)
    if draws_beside_sizes(capture.machine):
        raise Retry(Assumption.DRAWS)
    emit = CodeEmitter(capture)
    decoded = decode(capture.code)
    check_runs_again(capture.machine, decoded, capture.exit.at if capture.exit.__class__ is BreakExit else None)
    continuations: list[CodeType] = []
    skipped: list[CodeType] = []
    if capture.exit.__class__ is BreakExit:
        emit.position = decoded.instructions[capture.exit.at].position
    else:
        emit.position = None
    attempt = CheckedRun(emit, capture) if capture.machine.checks or capture.machine.may_raise else None
    if capture.exit.__class__ is BreakExit:
        replay.root_cells(emit, capture)
    before = replay.begin(emit, capture) if attempt is None else []  # a checked run may have to start over
    replay.replay(emit, capture, begun=attempt is None)
    rests = attempt is None and not before and repeatable()
    breaks_off = capture.exit.__class__ is BreakExit
    in_block = capture.machine.in_block and (breaks_off or is_continuation(capture.code))
    if in_block and attempt is None and not rests:  # a block that has been entered would not be left
        raise Retry(Assumption.BLOCKS)
    rerun = attempt or (Bailout(emit, capture) if (emit.items or (in_block and breaks_off)) and rests else None)
    pure = rests and not emit.items and isinstance(capture.exit, Return)
    if isinstance(capture.exit, Return):
        emit.value(capture.exit.value)
        replay.fill_referenced_cells(emit, capture)
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
        leaving.store_snapshot()
        leaving.write()
    outputs, bound = list(emit.outputs), list(emit.bound)
    if capture.machine.copies and were_noticed(capture.machine, outputs):
        raise Retry(Assumption.COPIES)
    return Draft(capture.code, before, emit.items, outputs, bound, continuations, skipped, emit.position, rerun, pure)


def draws_beside_sizes(vm: Machine) -> bool:
    """Return whether the graph draws from a generator of NumPy's and has sizes that vary, and need not be whole."""
    numbers = vm.builder.numbers
    return (
        bool(vm.objects_in and numbers.entries)
        and not numbers.scalars
        and any(map(draws_from_numpy, vm.builder.graph.nodes))
    )


class Written(NamedTuple):
    """Replacement code before it is assembled."""

    items: list[Item]
    variables: list[str]  # after the arguments, in order

    def assembled(self, like: CodeType) -> CodeType:
        """Return the code, which otherwise is like the frame's."""
        return assemble(self.items, like, varnames=self.variables)


def finish(draft: Draft, graph: str, arguments: Sequence[str], bound_inputs: int, discard: bool) -> Written:
    """Write the whole code, with the graph's call near its start.

    graph: name of the local that holds the graph when a frame begins; "" if there is no graph. arguments: locals that
    the graph takes; its other `bound_inputs` inputs come from the bound tuple. discard: ignore the graph's results.
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
    rest += [item for item in draft.items if there.get(deleted_variable(item), True)]
    if graph and draft.rerun is not None:
        rest = draft.rerun.branch_on_results(rest, position)
    items = [*draft.before, *call, *rest]
    for item in items:
        if not isinstance(item, Instruction):
            continue
        if item.arg.__class__ is BoundIndex:
            item.arg = int(item.arg) + bound_inputs
        elif deleted_variable(item) == GRAPH:
            item.arg = graph
    return Written(items, [*bound, *([graph] if graph else ()), *locals_of(draft.code)])


def deleted_variable(item: Item) -> str:
    """Return the name of the variable that an instruction deletes, or ""."""
    return str(item.arg) if isinstance(item, Instruction) and item.op == "DELETE_FAST" else ""


def emit_call(made: Any, load: str, callee: Any, arguments: Sequence[str], bound_inputs: int, extras: int) -> None:
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
