"""Check what a checkpoint reads: if it changes before the backward runs the function again, the graph ends.

The graph runs the same nodes again, on the same tensors. The program runs its function again, which then reads its
variables, lists and dictionaries, and the memory of tensors that it found in them, as they are by that time.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch.fx

from torchdynamo.bytecode.flow import reachable, successors
from torchdynamo.bytecode.instruction import Code
from torchdynamo.capture.frame import MadeFunction
from torchdynamo.capture.vm.heap import Entity, RunAgain
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.core.signals import Restart
from torchdynamo.core.value import Known, Object, Value
from torchdynamo.graph.fake_execution import memories_of
from torchdynamo.graph.generators import is_generator

READ = (types.CellType, list, dict)
REASON = "something that a checkpoint reads again"


def draws_from_outside(nodes: Iterable[torch.fx.Node]) -> bool:
    """Return whether some of these nodes take a generator of random numbers that was there before them."""
    return any(is_generator(each.meta.get("example_value")) for each in taken(nodes))


def taken(nodes: Iterable[torch.fx.Node]) -> list[torch.fx.Node]:
    """Return what nodes take from outside of them."""
    inside = set(nodes)
    return [each for node in inside for each in node.all_input_nodes if each not in inside]


def note_run(vm: Machine, read: Iterable[Value], nodes: list[torch.fx.Node]) -> None:
    """Note what a function has read that a backward calls again. read: the function, its arguments."""
    objects: set[int] = set()
    for value in read:
        find_objects(vm, value, objects)
    memory = memories_of([each.meta.get("example_value") for each in taken(nodes)])
    vm.effects.watch()
    addresses = frozenset(0 if each is None else each._cdata for each in memory)
    vm.run_again.append(RunAgain(vm.step, frozenset(objects), addresses, so_far(vm)))


def so_far(vm: Machine) -> tuple[int, int]:
    return len(vm.effects.changes()), len(vm.builder.record.writes)


def note_backward(vm: Machine) -> None:
    """Note that a backward runs now what it has to run again."""
    vm.run_again[:] = [each if each.ends else each._replace(ends=so_far(vm)) for each in vm.run_again]


def find_objects(vm: Machine, value: Value, found: set[int]) -> None:
    """Add the cells and containers that a function reads when it is called, and those in them."""
    if value.__class__ is Known:
        real = value.obj
        cells = real.__closure__ or () if type(real) is types.FunctionType else ()
        for cell in filter(None, (vm.heap.by_id.get(id(each)) for each in cells)):
            find_objects(vm, cell, found)
    elif value.__class__ is Object and value.ref not in found:
        entity = vm.entity(value)
        if entity.pytype in READ:
            found.add(value.ref)
        for each in parts(entity):
            find_objects(vm, each, found)


def parts(entity: Entity) -> Iterator[Any]:
    """Yield what lies in an object, as far as it has been looked at."""
    made = entity.payload_if(MadeFunction)
    if made is not None:
        yield from made.parts.closure.values()
        yield from made.given.values()
    elif entity.pytype in (list, tuple) and isinstance(entity.items, list):
        yield from entity.items
    elif entity.pytype is dict and isinstance(entity.items, dict):
        yield from (value for _, value in entity.items.values())
    elif entity.pytype in (types.CellType, types.MethodType, functools.partial):
        yield from (*entity.loaded.values(), *entity.attrs.values())


def check_runs_again(vm: Machine, code: Code, left_at: int | None) -> None:
    """Raise Restart if the frame has written to what a checkpoint reads again, or may do so after a graph break.

    left_at: the instruction of the break.
    """
    for each in vm.run_again:
        begins, ends = each.begins, each.ends or (None, None)
        changes = vm.effects.changes()[begins[0] : ends[0]]
        changed = {change.owner.ref for change in changes if change.owner is not None}
        written = vm.builder.record.writes[begins[1] : ends[1]]  # 0: anything
        known = 0 not in written and not (written and 0 in each.memory)
        later = each.ends is None and left_at is not None and may_be_rebound(vm, each, code, left_at)
        if later or not known or not each.objects.isdisjoint(changed) or not each.memory.isdisjoint(written):
            raise Restart(each.step - 1, REASON)


def may_be_rebound(vm: Machine, run: RunAgain, code: Code, left_at: int) -> bool:
    """Return whether what comes after an instruction of the root frame sets a variable that is read again."""
    entities = (vm.heap.entities[ref] for ref in run.objects)
    names = {each.payload for each in entities if each.pytype is types.CellType and each.payload is not None}
    rest = reachable([left_at], successors(code).__getitem__) if names else ()
    return any(is_write(code.instructions[at], names) for at in rest)


def is_write(instruction: Any, names: set[Any]) -> bool:
    return instruction.op in ("STORE_DEREF", "DELETE_DEREF") and instruction.arg in names
