"""Ends a graph before a loop that would fill it with the same operators over and over.

A graph has every turn of a loop written out. For a loop over layers, each of which brings parameters of its own, that
is what is wanted. But a loop whose turns bring nothing new (time steps of a simulation, a sampler's steps) computes the
same again and again: written out it takes long to capture and compile, and runs no faster than a turn that was compiled
once. So beyond some size it is left to Python, turn by turn; the functions that it calls are compiled by themselves.
"""

from __future__ import annotations

from itertools import dropwhile

import torch.fx

from torchdynamo.capture.frame import Frame
from torchdynamo.capture.vm import interop
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.core.signals import Break
from torchdynamo.core.value import Value

OPERATORS = 3000  # from the second turn on
TURNS = 16
OWN = 0.5  # inputs of the graph that each turn uses first: below, it repeats what turns before it did


class UnrolledLoop:
    """The turns of one loop so far."""

    __slots__ = ("first", "iterator", "operators", "second", "step", "turns")

    def __init__(self, iterator: Value, step: int, last: torch.fx.Node | None) -> None:
        self.iterator = iterator
        self.step = step  # of the frame, at which it began
        self.turns = 0
        self.first = self.second = last  # the graph's last node when the first turn began, and the second
        self.operators = 0  # of the graph, when the second turn began, or they were last looked at


def count_turn(vm: Machine, frame: Frame) -> None:
    """Note that a turn of the loop at the current instruction begins. Raises Break if it repeats itself."""
    iterator = frame.stack[-1]
    loop = frame.loops.get(frame.pc)
    if loop is None or loop.iterator is not iterator:
        loop = frame.loops[frame.pc] = UnrolledLoop(iterator, len(frame.path) - 1, last_node(vm))
    loop.turns += 1
    if loop.turns == 2:
        loop.operators, loop.second = vm.ops, last_node(vm)
    elif loop.turns > TURNS and vm.ops - loop.operators > OPERATORS and vm.builder.may_end:
        if own_inputs(vm, loop) < OWN * loop.turns and not interop.breaks_are_errors(vm.effects):
            end = Break("unrolled loop", name=frame.raw.co_name, what=f"{vm.ops - loop.operators} operators")
            end.restart = (loop.step if frame.root else len(vm.frames[0].path) - 1,)
            raise end
        loop.operators = vm.ops


def last_node(vm: Machine) -> torch.fx.Node | None:
    """Return the newest operator of the graph; None if there is none."""
    node = next(iter(reversed(vm.builder.graph.nodes)), None)
    return node if node is not None and node.op != "placeholder" else None


def own_inputs(vm: Machine, loop: UnrolledLoop) -> int:
    """Return how many inputs of the graph later turns of a loop use that its first turn did not."""
    in_first = inputs_used(vm, loop.first, loop.second) if loop.second is not None else set()
    return len(inputs_used(vm, loop.second, None) - in_first)


def inputs_used(vm: Machine, after: torch.fx.Node | None, last: torch.fx.Node | None) -> set[torch.fx.Node]:
    """Return the inputs that operators use which come after one node, up to another."""
    nodes = iter(vm.builder.graph.nodes)
    if after is not None:
        nodes = dropwhile(lambda node: node is not after, nodes)
        next(nodes, None)
    used: set[torch.fx.Node] = set()
    for node in nodes:
        used.update(each for each in node.all_input_nodes if each.op == "placeholder")
        if node is last:
            break
    return used
