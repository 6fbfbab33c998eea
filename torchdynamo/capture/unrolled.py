"""Ends a graph before a loop that would fill it with the same operators over and over.

A graph has every turn of a loop written out. For a loop over layers, each of which brings parameters of its own, that
is what is wanted. But a loop whose turns bring nothing new (time steps of a simulation, a sampler's steps) computes the
same again and again: written out it takes long to capture and compile, and runs no faster than a turn that was compiled
once. So beyond some size it is left to Python, turn by turn; the functions that it calls are compiled by themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchdynamo.capture import interop
from torchdynamo.capture.signals import Break
from torchdynamo.capture.value import Value

if TYPE_CHECKING:
    from torchdynamo.capture.frame import Frame
    from torchdynamo.capture.machine import Machine

OPERATORS = 3000  # from the second turn on
TURNS = 16
OWN = 0.5  # inputs of the graph that each turn brings: below, it repeats what turns before it did


class Loop:
    """The turns of one loop so far."""

    __slots__ = ("inputs", "iterator", "operators", "step", "turns")

    def __init__(self, iterator: Value, step: int) -> None:
        self.iterator = iterator
        self.step = step  # of the frame, at which it began
        self.turns = 0
        self.operators = self.inputs = 0  # of the graph, when the second turn began


def count_turn(vm: Machine, frame: Frame) -> None:
    """Note that a turn of the loop at the current instruction begins. Raises Break if it repeats itself."""
    iterator = frame.stack[-1]
    loop = frame.loops.get(frame.pc)
    if loop is None or loop.iterator is not iterator:
        loop = frame.loops[frame.pc] = Loop(iterator, len(frame.path) - 1)
    loop.turns += 1
    if loop.turns == 2:
        loop.operators, loop.inputs = vm.ops, len(vm.inputs)
    elif loop.turns > TURNS and vm.builder.may_end and repeats_itself(vm, loop) and not interop.breaks_are_errors():
        end = Break("unrolled loop", name=frame.raw.co_name, what=f"{vm.ops - loop.operators} operators")
        end.restart = (loop.step if frame.root else len(vm.frames[0].path) - 1,)
        raise end


def repeats_itself(vm: Machine, loop: Loop) -> bool:
    """Return whether a loop has filled the graph with operators, but brought few inputs."""
    return vm.ops - loop.operators > OPERATORS and len(vm.inputs) - loop.inputs < OWN * loop.turns
