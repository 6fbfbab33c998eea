"""Guard which objects and tensors are aliases, where the frame or the graph writes to one of them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Any, NamedTuple

import torch

from torchdynamo import _native
from torchdynamo.capture.capture import Capture
from torchdynamo.capture.torch.numpy_arrays import Flowing
from torchdynamo.capture.torch.wrappers import located_leaves
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.core.source import Guard, Source, local
from torchdynamo.graph.mutation import mutated_inputs
from torchdynamo.graph.numpy_nodes import np
from torchdynamo.graph.wrappers import is_wrapper


class Memory(NamedTuple):
    """Memory whose contents the graph or the frame reads or writes: a tensor's, or that of another object."""

    source: Source
    real: Any


class Input(NamedTuple):
    """A tensor or array that is an input of the graph."""

    source: Source
    tensor: Any
    grown: bool  # it requires a gradient at the end of the frame


def alias_guards(captured: Capture, gm: Any) -> list[Guard]:
    """Return guards on shared memory, on views, and on the identity of objects that the frame changed."""
    vm = captured.machine
    made: list[Guard] = []
    if gm is not None:
        written, read = inputs_of(vm, gm)
        stores, others = [*in_memory(written)], [*in_memory(read)]
        if stores and len(stores) + len(others) > 1 and written_apart(vm, gm):
            made.append(Guard(stores[0].source, "NO_OVERLAP", (sources(stores), sources(others))))
        made += memory_guards(vm, gm)
        made += view_guards([each for each in written if each.grown], [*written, *read])
    new = own_keywords(captured.code)
    made += dict_guards(vm, new)
    for entity in captured.changed:
        same = [e.source for e in vm.heap.entities if e.source is not None and e.pytype is entity.pytype]
        if len(same) > 1 and entity.source not in (None, new):
            made.append(Guard(entity.source, "DISTINCT", tuple(same)))
    return made


def own_keywords(code: CodeType) -> Source | None:
    """Return the source of the dict that each call makes for `**kwargs`, which is no alias of another; or None."""
    if not code.co_flags & inspect.CO_VARKEYWORDS:
        return None
    return local(code.co_varnames[code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)])


def dict_guards(vm: Machine, new: Source | None) -> list[Guard]:
    """Guard that all dicts met are different objects, if the frame wrote to any of them.

    new: source of a dict that each call makes, which is left out.
    """
    dicts = [e for e in vm.heap.entities if e.pytype is dict and e.source not in (None, new)]
    if not any(e.touched for e in dicts) and not any(space.written for space in vm.aliased_dicts.values()):
        return []
    found = {id(e.real): e.source for e in dicts}
    found.update((id(space.real), space.source) for space in vm.aliased_dicts.values())
    apart = tuple(source for source in found.values() if source is not None)
    return [Guard(apart[0], "DISTINCT", apart)] if len(apart) > 1 else []


def inputs_of(vm: Machine, gm: Any) -> tuple[list[Input], list[Input]]:
    """Return the inputs that the graph writes to, arrays among them, and all that it, or its capture, only reads."""
    names = () if gm is None else mutated_inputs(gm)
    written: list[Input] = []
    read: list[Input] = []
    for value in vm.inputs:
        if value.source is not None:
            group = written if value.node.name in names else read
            group.append(Input(value.source, vm.input_objects[value.node], value.fake.requires_grad))
    for each in vm.objects_in:
        if isinstance(vm.input_objects[each.node], LENDERS):
            (written if each.node.name in names else read).append(
                Input(each.source, vm.input_objects[each.node], False)
            )
    return written, read


def in_memory(inputs: Iterable[Input]) -> Iterator[Memory]:
    """Yield the tensors whose memory inputs are: those themselves, or those inside of a wrapper."""
    for each in inputs:
        if is_wrapper(each.tensor):
            yield from (Memory(*inside) for inside in located_leaves(each.tensor, each.source))
        else:
            yield Memory(each.source, each.tensor)


def written_apart(vm: Machine, gm: Any) -> bool:
    """Return whether inputs that the graph writes to share no memory with other inputs; backends assume that."""
    written, read = ([*in_memory(group)] for group in inputs_of(vm, gm))
    alone = len(written) + len(read) == 1
    return alone or _native.tensors_apart(tuple(each.real for each in written), tuple(each.real for each in read))


def memories(vm: Machine) -> tuple[list[Memory], list[Memory]]:
    """Return the buffers that the frame writes to after the graph, and the bytearrays and arrays that it only read."""
    written: list[Memory] = []
    read: list[Memory] = []
    for entity in vm.heap.entities:
        in_frame = entity.items is not None and entity.items.__class__ is not Flowing
        if entity.source is not None and in_frame and issubclass(entity.pytype, LENDERS):
            (written if entity.touched else read).append(Memory(entity.source, entity.real))
    return written, read


LENDERS = (bytearray,) if np is None else (bytearray, np.ndarray)


def must_be_apart(vm: Machine, gm: Any) -> list[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Return the pairs of groups that must not share memory.

    What the graph writes must be apart from what the frame read, and the graph's inputs from what the frame writes.
    """
    by_frame, seen = memories(vm)
    if not (by_frame or seen):
        return []
    by_graph, given = inputs_of(vm, gm)
    pairs = [(tuple(in_memory(by_graph)), (*by_frame, *seen)), (tuple(by_frame), tuple(in_memory(given)))]
    return [pair for pair in pairs if all(pair)]


def memory_apart(vm: Machine, gm: Any) -> bool:
    """Return whether neither the graph nor the frame sees the other's writes."""
    return all(
        _native.tensors_apart(*(tuple(each[1] for each in group) for group in pair)) for pair in must_be_apart(vm, gm)
    )


def memory_guards(vm: Machine, gm: Any) -> list[Guard]:
    """Return guards that memory stays unshared between the graph and the frame."""
    pairs = [(sources(written), sources(read)) for written, read in must_be_apart(vm, gm)]
    return [Guard(pair[0][0], "NO_OVERLAP", pair) for pair in pairs]


def view_guards(grown: list[Input], inputs: list[Input]) -> list[Guard]:
    """Guard which inputs are views of what, if the graph gives an input a gradient history.

    A write through a view gives that history to its base and to all other views of the base, which require gradients
    from then on.
    """
    tensors = [each for each in inputs if isinstance(each.tensor, torch.Tensor)]
    given = {each.source: each.tensor for each in tensors if not each.tensor.requires_grad} if grown else {}
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


def sources(inputs: Iterable[Memory]) -> tuple[Source, ...]:
    """Return the sources of these inputs."""
    return tuple(each.source for each in inputs)
