"""Writes make it matter what is the same: objects the frame changed, and tensors the graph writes to."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from types import CodeType
from typing import Any, NamedTuple

import torch

from torchdynamo import _native
from torchdynamo.capture.capture import Capture
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.core.source import Guard, Source, local
from torchdynamo.graph.mutation import mutated_inputs
from torchdynamo.graph.numpy_nodes import np


class Input(NamedTuple):
    """A tensor the graph is given."""

    source: Source
    tensor: torch.Tensor
    grown: bool  # it requires a gradient when the frame is done


def alias_guards(captured: Capture, gm: Any) -> list[Guard]:
    """Return which tensors share memory, which are views of which, which objects are one."""
    vm = captured.machine
    made: list[Guard] = []
    if gm is not None:
        written, read = inputs_of(vm, gm)
        if written and len(written) + len(read) > 1 and written_apart(vm, gm):
            made.append(Guard(written[0].source, "NO_OVERLAP", (sources(written), sources(read))))
        made += memory_guards(vm, gm)
        made += view_guards([each for each in written if each.grown], [*written, *read])
    new = own_keywords(captured.code)
    made += space_guards(vm, new)
    for entity in captured.changed:
        same = [e.source for e in vm.heap.entities if e.source is not None and e.pytype is entity.pytype]
        if len(same) > 1 and entity.source not in (None, new):
            made.append(Guard(entity.source, "DISTINCT", tuple(same)))
    return made


def own_keywords(code: CodeType) -> Source | None:
    """Return the dictionary that the call makes for `**kwargs`: when the frame begins, nobody else has it."""
    if not code.co_flags & inspect.CO_VARKEYWORDS:
        return None
    return local(code.co_varnames[code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)])


def space_guards(vm: Machine, new: Source | None) -> list[Guard]:
    """Return where the frame wrote to a dictionary, by whatever way, it is guarded that all it met are different ones.

    Not of what is `new` in each call.
    """
    dicts = [e for e in vm.heap.entities if e.pytype is dict and e.source not in (None, new)]
    if not any(e.touched for e in dicts) and not any(space.written for space in vm.aliased_dicts.values()):
        return []
    found = {id(e.real): e.source for e in dicts}
    found.update((id(space.real), space.source) for space in vm.aliased_dicts.values())
    apart = tuple(source for source in found.values() if source is not None)
    return [Guard(apart[0], "DISTINCT", apart)] if len(apart) > 1 else []


def inputs_of(vm: Machine, gm: Any) -> tuple[list[Input], list[Input]]:
    """Return the inputs that the graph writes to, and the others."""
    names = mutated_inputs(gm)
    written: list[Input] = []
    read: list[Input] = []
    for value in vm.inputs:
        if value.source is not None:
            group = written if value.node.name in names else read
            group.append(Input(value.source, vm.input_objects[value.node], value.fake.requires_grad))
    return written, read


def written_apart(vm: Machine, gm: Any) -> bool:
    """Return whether what the graph writes to shares no memory with its other inputs, as backends take for granted."""
    written, read = inputs_of(vm, gm)
    alone = len(written) + len(read) == 1
    return alone or _native.tensors_apart(tuple(each.tensor for each in written), tuple(each.tensor for each in read))


class Memory(NamedTuple):
    """Something else than a tensor that has memory, of which the frame saw the contents."""

    source: Source
    real: Any


def memories(vm: Machine) -> tuple[list[Memory], list[Memory]]:
    """Return the bytearrays that the frame writes to, when the graph has run; and those, and arrays of NumPy's, that it
    read.
    """
    written: list[Memory] = []
    read: list[Memory] = []
    for entity in vm.heap.entities:
        if entity.source is not None and entity.items is not None and issubclass(entity.pytype, LENDERS):
            (written if entity.touched else read).append(Memory(entity.source, entity.real))
    return written, read


LENDERS = (bytearray,) if np is None else (bytearray, np.ndarray)


def in_each_others_way(vm: Machine, gm: Any) -> list[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Return what must be apart: what the graph writes from what the frame read, what it gets from what the frame
    writes.
    """
    by_frame, seen = memories(vm)
    if gm is None or not (by_frame or seen):
        return []
    by_graph, given = inputs_of(vm, gm)
    pairs = [(tuple(by_graph), (*by_frame, *seen)), (tuple(by_frame), tuple(given))]
    return [pair for pair in pairs if all(pair)]


def memory_apart(vm: Machine, gm: Any) -> bool:
    """Return whether the graph and the frame see each other's writes nowhere."""
    return all(
        _native.tensors_apart(*(tuple(each[1] for each in group) for group in pair))
        for pair in in_each_others_way(vm, gm)
    )


def memory_guards(vm: Machine, gm: Any) -> list[Guard]:
    """Return guards that memory stays shared as it is."""
    pairs = [(sources(written), sources(read)) for written, read in in_each_others_way(vm, gm)]
    return [Guard(pair[0][0], "NO_OVERLAP", pair) for pair in pairs]


def view_guards(grown: list[Input], inputs: list[Input]) -> list[Guard]:
    """Record that a write through a view gives its history to its base and all views of that, which then require
    gradients.

    So where something written to requires one, it is guarded which of the tensors that did not are views of what.
    """
    given = {each.source: each.tensor for each in inputs if not each.tensor.requires_grad} if grown else {}
    given.update((each.source, each.tensor) for each in grown)
    known = {id(tensor): source for source, tensor in given.items()}
    made: list[Guard] = []
    for source, tensor in given.items():
        base, place = tensor._base, Source("attr", source, "_base")
        if base is None:
            made.append(Guard(place, "EQUALS_MATCH", None))
        elif id(base) in known:
            made.append(Guard(place, "SAME_OBJECT", known[id(base)]))
        else:
            known[id(base)] = place
    apart = tuple(known.values())
    return [*made, Guard(apart[0], "DISTINCT", apart)] if len(apart) > 1 else made


def sources(inputs: Iterable[Input | Memory]) -> tuple[Source, ...]:
    """Return where they come from."""
    return tuple(each.source for each in inputs)
