"""From a frame to a Capture: run it symbolically, and where that must end, once more up to there."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from torchdynamo.bytecode.flow import loops
from torchdynamo.capture import functions, ops, types
from torchdynamo.capture.deaths import holding, noticed
from torchdynamo.capture.exits import BreakExit, Return, Why
from torchdynamo.capture.frame import Frame, Globals
from torchdynamo.capture.heap import Entity
from torchdynamo.capture.machine import Machine
from torchdynamo.capture.show import show
from torchdynamo.capture.signals import Break, Raised, Restart, Stop
from torchdynamo.capture.source import Guard, Roots, Source, local
from torchdynamo.capture.trace import GraphBuilder
from torchdynamo.capture.value import Opaque, Value

if TYPE_CHECKING:
    from types import CodeType

REGISTERED = (functions, ops, types)  # importing them fills the tables


class Capture(NamedTuple):
    """The result of executing one frame symbolically, and the only thing that leaves capture."""

    code: CodeType
    machine: Machine
    exit: Return | BreakExit
    why: Why | None
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
        return [*vm.guards.values(), *apart]

    @property
    def changed(self) -> list[Entity]:
        """Objects that existed at entry and were written to, in the order they were met."""
        return [entity for entity in self.machine.heap.entities if entity.changed]


def capture(
    code: CodeType, roots: Roots, builder: GraphBuilder, stop_at: int = -1, may_begin_again: bool = False
) -> Capture:
    """Execute a frame of `code` up to root step `stop_at`, or to its end; perhaps past checks (raising.py).

    Raises Restart with the step to stop at where the program cannot be followed further, and Break (with `where`) if
    not even that is possible.
    """
    vm = Machine(builder, roots)
    vm.stop_at = stop_at
    vm.may_begin_again = may_begin_again
    frame = root_frame(vm, code)
    depth = sys.getrecursionlimit()
    sys.setrecursionlimit(max(depth, 20_000))
    try:
        value = vm.run(frame)
        check_deaths(vm, frame)
        return Capture(code, vm, Return(value), None, frame.cells)
    except Stop:
        check_deaths(vm, frame)
        return Capture(code, vm, stopped(frame), None, frame.cells)
    except Break as why:
        why.restart = why.restart if why.restart >= 0 else stop_step(vm, frame)
        raise
    except Raised as raised:
        escaped = Break("uncaught exception", type=raised.value.pytype.__name__)
        escaped.where = frame.position()
        escaped.restart = stop_step(vm, frame, vm.entity(raised.value))
        raise escaped from None
    finally:
        sys.setrecursionlimit(depth)
        vm.put_back()
        builder.numbers.closed()  # what was looked at is free to go as soon as nobody needs the capture


def root_frame(vm: Machine, code: CodeType) -> Frame:
    """The frame as the hook got it: arguments nobody has looked at, and the function's cells."""
    arguments: dict[str, Value] = {name: Opaque(type(obj), local(name)) for name, obj in vm.roots.locals.items()}
    space = Globals(vm.roots.globals, Source("globals"), vm.roots.builtins)
    closure = {name: vm.wrap_cell(cell, Source("closure", None, name)) for name, cell in vm.roots.closure.items()}
    own = [name for name in code.co_varnames if name not in code.co_cellvars]
    frame = Frame(code, space, holding(vm.roots.locals, arguments, own), closure)
    frame.root = True
    return frame


def check_deaths(vm: Machine, frame: Frame) -> None:
    """Nothing may have been made whose death is noticed: such an object is Python's to make."""
    mortal = noticed(vm)
    if mortal is not None:
        end = Break("unsupported type", type=f"{mortal.value.pytype.__name__} (with __del__)")
        end.where, end.restart = mortal.where, stop_step(vm, frame, vm.entity(mortal.value))
        raise end


def stop_step(vm: Machine, frame: Frame, escaped: Entity | None = None) -> int:
    """The root step to stop before: the one that broke, or the beginning of the outermost loop it is in.

    With an exception under way, the one that raised it: Python raises it again, with its traceback and context.
    """
    step = len(vm.path) - 1
    thrown = [vm.entity(exc) for exc in frame.handling]
    thrown += [escaped] if escaped is not None and escaped.fresh else []
    step = min(step, *(entity.born - 1 for entity in thrown)) if thrown else step
    if step < 0:
        return step
    index = vm.path[step]
    for loop in loops(frame.code):
        if index in loop.body:
            while step > 0 and vm.path[step - 1] in loop.body:
                step -= 1
            return step
    return step


def stopped(frame: Frame) -> BreakExit:
    """The frame as it stands before the instruction it stopped at."""
    index = frame.pc
    in_loop = any(index == loop.start or index in loop.body for loop in loops(frame.code))
    if frame.handling:
        raise Restart(-1)
    return BreakExit(index, dict(frame.locals), list(frame.stack), in_loop)
