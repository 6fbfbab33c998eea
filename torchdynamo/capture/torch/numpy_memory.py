"""The memory of the graph's arrays: which tensors share it, arrays that existed as inputs, and writes.

The graph runs NumPy on real memory, so what shares memory sees each other's writes by itself. Here is what capture has
to know of that. The arrays that nodes were tried on share memory as the real ones do, and memory that tensors or others
have as well has a *lender*: a fake tensor whose storage stands for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.fx

from torchdynamo.capture.torch import numpy_arrays
from torchdynamo.capture.torch.numpy_arrays import LARGEST, Flowing
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.state import input_name
from torchdynamo.core.signals import Assumption, Break
from torchdynamo.core.source import Source
from torchdynamo.core.value import Object
from torchdynamo.graph.numpy_nodes import np
from torchdynamo.graph.recording import storage_of

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

NUMERIC = "biufc"  # kinds of dtypes


class InputArray(NamedTuple):
    """An array that is an input of the graph."""

    node: torch.fx.Node
    source: Source


def enter(vm: Machine, entity: Entity) -> Flowing | None:
    """Make an array that existed an input of the graph, where it is not to be a constant; else return None."""
    real, source = entity.real, entity.source
    assert source is not None
    dropped = Assumption.ARRAYS in vm.builder.numbers.dropped
    varies = Source("method", source, "tobytes") in vm.builder.numbers.varying
    if not (dropped or varies or real.nbytes > LARGEST) or real.dtype.kind not in NUMERIC:
        return None
    numpy_arrays.guard_layout(vm, real, source)
    like = like_it(real)
    like[...] = np.random.RandomState(0).rand(*like.shape) + 0.5
    with vm.builder.fake_mode:
        lender = torch.empty(max(like.base.nbytes // like.itemsize, 1), dtype=torch_dtype(like.dtype))
    node = vm.builder.object_input(input_name(source), like, source, lender)
    vm.input_objects[node] = real
    vm.objects_in.append(InputArray(node, source))
    return Flowing(node, lender, like)


def torch_dtype(dtype: Any) -> torch.dtype:
    """Return torch's dtype of an array; bytes for those that torch has none for."""
    try:
        return torch.from_numpy(np.zeros(1, dtype)).dtype
    except TypeError:
        return torch.uint8


def like_it(real: Any) -> Any:
    """Return an array of the same type, shape and strides, in memory of its own."""
    low, high = bounds(real)
    memory = np.zeros(max(high - low, 0), np.uint8)
    return np.ndarray(real.shape, real.dtype, memory, address(real) - low, real.strides)


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def bounds(array: Any) -> tuple[int, int]:
    """Return the address of an array's first byte, and of the byte after its last."""
    begin = address(array)
    steps = [step * (size - 1) for step, size in zip(array.strides, array.shape, strict=True)]
    if not array.size:
        return begin, begin
    return begin + sum(min(step, 0) for step in steps), begin + sum(max(step, 0) for step in steps) + array.itemsize


def constant(vm: Machine, array: Any) -> Flowing:
    """Return a node that makes an array of these contents, which lies as this one does."""
    kind, memory = array.dtype.str, array
    if array.size > 1 and array.nbytes > LARGEST and array.tobytes() == array[(0,) * array.ndim].tobytes() * array.size:
        return numpy_arrays.made(vm, "full", (array.shape, array.flat[0].item()), {"dtype": kind})
    if not array.flags.c_contiguous:
        memory = like_it(array)
        memory[...] = array
        memory = memory.base
    aligned = all(step % array.itemsize == 0 for step in array.strides)
    if memory.nbytes > LARGEST or array.dtype.kind not in NUMERIC or not aligned:
        raise Break("unsupported argument", what="array", type="ndarray")
    if not array.size:
        return numpy_arrays.made(vm, "zeros", (array.shape,), {"dtype": kind})
    if memory is array:
        return numpy_arrays.made(vm, "array", (array.tolist(),), {"dtype": kind})
    flat = numpy_arrays.made(vm, "array", (memory.view(array.dtype).tolist(),), {"dtype": kind})
    offset = address(array) - bounds(array)[0]
    return numpy_arrays.made(vm, "ndarray", (array.shape, kind, flat.node, offset, array.strides), {})


# -- who shares memory ------------------------------------------------------------------------------------------------
def lenders(vm: Machine, example: Any) -> list[Flowing]:
    """Return the arrays with a lender whose memory an array may share."""
    known = [each.items for each in vm.heap.entities if each.items.__class__ is Flowing]
    return [each for each in known if each.lender is not None and np.may_share_memory(each.memory, example)]


def lent(vm: Machine, entity: Entity, real: torch.Tensor) -> Any:
    """Return the fake tensor of a tensor that shares an array's memory. real: such a tensor of the array's example."""
    example = entity.items.example
    found = lenders(vm, example)
    with vm.builder.fake_mode, torch.no_grad():
        if not found:
            whole = example
            while isinstance(whole.base, np.ndarray):
                whole = whole.base
            lender = torch.empty(max(whole.nbytes // real.itemsize, 1), dtype=real.dtype)
            entity.items = entity.items._replace(lender=lender, memory=whole)
            found = [entity.items]
        root, lender = found[0], found[0].lender
        if lender.dtype is not real.dtype:
            raise Break("unsupported argument", what="tensor", type="ndarray of another type")
        offset = (real.data_ptr() - bounds(root.memory)[0]) // real.itemsize + lender.storage_offset()
        return lender.detach().as_strided(real.shape, real.stride(), offset).detach()


# -- writes -----------------------------------------------------------------------------------------------------------
def note_written(vm: Machine, value: Object, name: str) -> None:
    """Note that NumPy writes to an array when the graph runs. Ends the graph where that cannot be told."""
    known = in_graph(vm, value)
    vm.builder.record.writes.append(0)
    found = lenders(vm, known.example)
    memory = {storage._cdata for storage in (storage_of(each.lender) for each in found) if storage is not None}
    for node in vm.builder.graph.nodes if memory else ():
        example = node.meta.get("example_value")
        if isinstance(example, torch.Tensor) and example.requires_grad:
            storage = storage_of(example)
            if storage is None or storage._cdata in memory:  # a backward would have to see it
                raise Break("side effect not replayable", what=f"numpy.{name}, which writes into what has gradients,")
    if found:
        vm.builder.record.unknown_effects = True  # no run of this graph can be undone
        vm.builder.record.write([each.lender for each in found])


def in_graph(vm: Machine, value: Object) -> Flowing:
    """Have the graph make an array that the frame has made of constants, since the graph will write to it."""
    known = numpy_arrays.flowing(vm, value)
    if known is not None:
        return known
    array, entity = numpy_arrays.array_of(vm, value), vm.entity(value)
    if entity.source is not None or entity.payload is not None:
        numpy_arrays.as_inputs(vm)
        raise Break("side effect not replayable", what="a write into an array that others see")
    others = [each for each in numpy_arrays.arrays(vm) if each is not entity and np.shares_memory(each.items, array)]
    if others or array.dtype.kind not in NUMERIC or not array.flags.c_contiguous or not array.flags.writeable:
        raise Break("side effect not replayable", what="a write into an array that others see")
    entity.items = constant(vm, array)
    return entity.items
