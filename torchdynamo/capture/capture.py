"""From a frame to a Capture: run it symbolically, and where that must end, once more up to there."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from torchdynamo import _native
from torchdynamo.bytecode.flow import loops, rebound
from torchdynamo.bytecode.versions import EXCEPTION_TABLE, HAS_PROLOGUE
from torchdynamo.capture import functions, ops, types
from torchdynamo.capture.exits import BreakExit, Callee, Return, Why
from torchdynamo.capture.frame import Frame, Globals
from torchdynamo.capture.interpreter import OPS
from torchdynamo.capture.show import show
from torchdynamo.capture.vm import dict_aliases, interop
from torchdynamo.capture.vm.call_records import Checking
from torchdynamo.capture.vm.finalizers import locals_of_root, noticeable
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.repeated_calls import RepeatedCalls
from torchdynamo.capture.vm.wrap import made_in_frame
from torchdynamo.core.signals import Break, Raised, Restart, Stop, StopPath
from torchdynamo.core.source import Guard, Roots, Source, local
from torchdynamo.core.value import Lazy, Value
from torchdynamo.graph.build import GraphBuilder

if TYPE_CHECKING:
    from types import CodeType

REGISTERED = (functions, ops, types)  # importing them fills the tables


class Capture(NamedTuple):
    """Hold the result of executing one frame symbolically, the only thing that leaves capture."""

    code: CodeType
    machine: Machine
    exit: Return | BreakExit
    why: Why | None  # the break, where the frame is left at the very place of it
    cells: dict[str, Value]

    def __str__(self) -> str:
        return show(self)

    @property
    def guards(self) -> list[Guard]:
        vm = self.machine
        groups = [list(sources) for sources in vm.told_apart.values()]
        if vm.inputs_apart:
            groups.append([tensor.source for tensor in vm.inputs if tensor.source is not None])
        apart = [Guard(sources[0], "DISTINCT", tuple(sources)) for sources in groups if len(sources) > 1]
        guards: Collection[Guard] = vm.guards.values()
        if vm.made_classes:  # of which each call makes its own
            guards = [guard for guard in guards if not made_in_frame(vm, guard.source)]
        return [*guards, *apart]

    @property
    def changed(self) -> list[Entity]:
        """Return the objects that existed at entry and were written to, in the order in which they were met."""
        return self.machine.effects.changed()


def capture(
    code: CodeType,
    roots: Roots,
    builder: GraphBuilder,
    stops: StopPath = (),
    may_begin_again: bool = False,
    checking: Checking | None = None,
) -> Capture:
    """Execute a frame of `code` symbolically to its end, or up to the steps `stops`.

    `may_begin_again`: conditions may be checked by the graph (assertions.py). `checking`: how guards are held against
    other objects, for repeated_calls.py; None: each call is executed. Raises Break where the program cannot be
    captured further, and Restart if it cannot stop there; both say where the next try must stop.
    """
    vm = Machine(builder, roots)
    vm.stops = stops
    vm.may_begin_again = may_begin_again
    vm.repeats = RepeatedCalls(checking) if checking is not None else None
    try:
        return run_to_the_end(vm, root_frame(vm, code), code)
    except BaseException:
        vm.let_go()
        raise
    finally:
        vm.repeats = None
        vm.effects.leave_process()
        builder.followed()
        builder.numbers.closed()  # what was looked at is free to go as soon as nobody needs the capture


LEVELS = 20_000  # calls that may nest in a capture beyond Python's limit: each call that is followed takes several


def run_to_the_end(vm: Machine, frame: Frame, code: CodeType) -> Capture:
    """Execute a frame symbolically from its beginning to its end, or to where it must stop."""
    _native.more_levels(LEVELS)
    try:
        value = vm.run(frame)
        check_finalizers(vm, frame)
        return Capture(code, vm, Return(value), None, frame.cells)
    except Stop as stop:
        check_finalizers(vm, frame)
        return Capture(code, vm, stopped_exit(vm, stop.frames), None, frame.cells)
    except Break as why:
        why.is_error = interop.breaks_are_errors(vm.effects)
        why.restart = why.restart or where_to_stop(vm, frame, why.inner)
        raise
    except Raised as raised:
        escaped = Break("uncaught exception", type=raised.value.pytype.__name__)
        escaped.where, escaped.raises = frame.position(), True
        escaped.is_error = interop.breaks_are_errors(vm.effects)
        escaped.restart = where_to_stop(vm, frame, [], vm.entity(raised.value))
        raise escaped from None
    finally:
        _native.more_levels(-LEVELS)


def root_frame(vm: Machine, code: CodeType) -> Frame:
    """Make the frame as the hook got it: its arguments are Lazy, and it has the function's cells."""
    arguments: dict[str, Value] = {name: Lazy(type(obj), local(name)) for name, obj in vm.roots.locals.items()}
    space = Globals(vm.roots.globals, Source("globals"), vm.roots.builtins)
    dict_aliases.note_lookup(vm, space.real, space.source)
    closure = {name: vm.wrap_cell(cell, Source("closure", None, name)) for name, cell in vm.roots.closure.items()}
    frame = Frame(code, space, arguments, closure)
    frame.locals = locals_of_root(vm, vm.roots.locals, arguments, rebound(frame.code))
    frame.root = True
    return frame


def check_finalizers(vm: Machine, frame: Frame) -> None:
    """Raise Break if the frame made an object whose finalizer does something: Python has to make it."""
    mortal = noticeable(vm)
    if mortal is not None:
        end = Break("unsupported type", type=f"{mortal.value.pytype.__name__} (with __del__)")
        end.where, end.restart = mortal.where, where_to_stop(vm, frame, [], vm.entity(mortal.value))
        raise end


def where_to_stop(vm: Machine, frame: Frame, inner: list[Frame], escaped: Entity | None = None) -> StopPath:
    """Return the steps to stop before: the root step that broke, or the beginning of the outermost loop it is in.

    The steps of the frames that it called follow, as long as each can be left in the middle of its call. With an
    exception under way it is the root step that raised it: Python raises it again, with its traceback and context.
    """
    thrown = [vm.entity(exc) for exc in frame.handling] + ([] if escaped is None else [escaped])
    thrown = [entity for entity in thrown if entity.fresh]
    last = len(frame.path) - 1
    if last < 0:
        return ()
    first = before_loops(frame, min([last, *(entity.born - 1 for entity in thrown)]))
    if first < 0 or not can_be_left(frame, first):
        return ()
    found = [first]
    for above in inner if first == last else ():
        last = len(above.path) - 1
        step = before_loops(above, last)
        if not can_be_left(above, step):
            break
        found.append(step)
        if step < last:
            break
    return tuple(found)


def can_be_left(frame: Frame, step: int) -> bool:
    """Return whether a continuation can begin after a step: not where nobody knows what is on the stack then."""
    return frame.code.instructions[frame.path[step]].op in OPS


def before_loops(frame: Frame, step: int) -> int:
    """Return the step before the outermost loop that a step is in; the step itself outside of loops."""
    if step < 0:
        return step
    index = frame.path[step]
    for loop in loops(frame.code):
        if index in loop.body:
            while step > 0 and frame.path[step - 1] in loop.body:
                step -= 1
            return step
    return step


def handled_by(vm: Machine, frame: Frame) -> tuple[tuple[Value, int], ...]:
    """Return the exceptions that a frame handles, each with the place on the stack of the one handled before it.

    Raises Restart for one that the frame has made: Python has to raise it.
    """
    found = []
    for exc, previous in zip(frame.handling, frame.previous, strict=True):
        places = [depth for depth, value in enumerate(frame.stack) if value is previous]
        if vm.entity(exc).fresh or len(places) != 1 or not EXCEPTION_TABLE:
            raise Restart(-1)
        found.append((exc, places[0]))
    return tuple(found)


def stopped_exit(vm: Machine, frames: list[Frame]) -> BreakExit:
    """Return how each frame stands when capture stops. The innermost comes first, before its next instruction."""
    exit: BreakExit | None = None
    callee: Callee | None = None
    for frame in frames:
        index = frame.pc
        for name in frame.raw.co_cellvars if not frame.root else ():
            if name not in frame.cells:
                frame.cells[name] = vm.new_cell(frame, name)
        in_loop = callee is None and any(index == loop.start or index in loop.body for loop in loops(frame.code))
        local = {
            name: value for name, value in frame.locals.items() if HAS_PROLOGUE or name not in frame.raw.co_cellvars
        }
        exit = BreakExit(index, local, list(frame.stack), in_loop, callee, handled_by(vm, frame))
        callee = Callee(frame.raw, frame.globals, frame.cells, exit, frame.passed)
    assert exit is not None
    return exit
