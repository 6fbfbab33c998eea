"""numpy.ndarray, NumPy's scalars and functions: how they enter, and how an array is made again."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

from torchdynamo.capture.torch import numpy_arrays, numpy_memory, numpy_numbers, stacked_numbers
from torchdynamo.capture.vm.emitted_calls import push_call
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import (
    COPY,
    FLOWING_CALL,
    FLOWING_ITEMS,
    FLOWING_TENSOR,
    enters,
    function,
    iterates,
    rebuilds,
)
from torchdynamo.capture.vm.wrap import CONSTANTS, enter_singleton
from torchdynamo.core.naming import class_name
from torchdynamo.core.policy import OWN
from torchdynamo.core.signals import Assumption, Break, Restart
from torchdynamo.core.source import Source
from torchdynamo.core.value import Known, Object, TensorNode, Value
from torchdynamo.graph.numpy_nodes import np


def enter_scalar(vm: Machine, obj: Any, source: Source) -> Value:
    """Wrap a number or string of NumPy's, guarded by type and value. Ends the graph at others, such as dates: what
    `item` gives does not tell them apart.
    """
    kept = obj.item()
    if obj.dtype.kind not in "biufcSU" or type(kept) not in CONSTANTS:
        raise Break("unsupported type", type=class_name(type(obj)))
    vm.guard(source, "TYPE_MATCH", type(obj))
    varying = numpy_numbers.enter(vm, obj, source)
    if varying is not None:
        return varying
    vm.guard(numpy_numbers.place_of(obj, source), "EQUALS_MATCH", kept)
    return Known(obj, source)


def items(vm: Machine, value: Object) -> Iterator[Value]:
    """Yield the items along the first dimension of an array."""
    if numpy_arrays.flowing(vm, value) is not None:
        return FLOWING_ITEMS[np.ndarray](vm, value)
    return (numpy_arrays.lift(vm, item) for item in numpy_arrays.array_of(vm, value))


def rebuild(emit: Any, entity: Entity) -> None:
    """Materialize a copy in each call, or take an array out of the graph.

    Ends the graph where two arrays share memory.
    """
    if entity.items.__class__ is numpy_arrays.Flowing:
        emit.computed(TensorNode(entity.items.node, None, entity.pytype))
        return
    arrays = numpy_arrays.arrays(emit.capture.machine)
    shared = [each for each in arrays if each.ref in emit.made or each.payload is not None or each.source is not None]
    lies_otherwise = np.array(entity.items).strides != entity.items.strides
    if any(each.source is not None and np.may_share_memory(entity.items, each.items) for each in shared):
        numpy_arrays.as_inputs(emit.capture.machine)
    if lies_otherwise or any(np.may_share_memory(entity.items, other.items) for other in shared):
        raise Restart(entity.born - 1)
    push_call(emit, functools.partial(np.array, entity.items))


def sharing(fn: Any) -> None:
    """Register a function that makes a tensor of an array's own memory."""

    def row(vm: Machine, data: Value, *args: Value, **kwargs: Value) -> Value:
        if data.__class__ is Object and data.pytype is np.ndarray and Assumption.ARRAYS in vm.builder.numbers.dropped:
            numpy_memory.in_graph(vm, data)
        if numpy_arrays.flowing(vm, data) is not None and not args:
            return FLOWING_TENSOR[np.ndarray](vm, fn, data, kwargs)
        if data.__class__ is Object and data.pytype is np.ndarray:
            data = numpy_arrays.share(vm, data)
            if fn is torch.from_numpy:
                return data
        if not args:
            kwargs = with_dtype(vm, data, kwargs)
        return vm.emit("call_function", fn, [data, *args], kwargs)

    function(fn)(row)


def with_dtype(vm: Machine, data: Value, kwargs: dict[str, Value]) -> dict[str, Value]:
    """Return the keywords with the dtype that NumPy's numbers in the data give a tensor: a graph has plain ones.

    Raises the program's error for numbers of which torch makes no tensor.
    """
    if "dtype" in kwargs or not has_scalars(vm, data):
        return kwargs
    try:
        made = torch.tensor(like(vm, data))
    except (TypeError, ValueError, RuntimeError) as error:
        raise vm.refused(error) from None
    return {**kwargs, "dtype": Known(made.dtype)}


def has_scalars(vm: Machine, value: Value) -> bool:
    if value.__class__ is Object and value.pytype in (list, tuple):
        items = list(vm.iterate(value))
        return any(has_scalars(vm, item) for item in items) and not any(map(numpy_arrays.holds_tensors, items))
    return issubclass(value.pytype, np.generic) if value.__class__ in (Known, Object) else False


def like(vm: Machine, value: Value) -> Any:
    """Return real data of the types that a value has, in the same lists, to see which dtype they make."""
    if value.__class__ is Object and value.pytype in (list, tuple):
        return [like(vm, item) for item in vm.iterate(value)]
    return numpy_numbers.example(value)


def copied(vm: Machine, data: Value, *args: Value, **kwargs: Value) -> Value:
    """Model `torch.tensor`, which copies."""
    if numpy_arrays.flowing(vm, data) is not None and not args:
        return FLOWING_TENSOR[np.ndarray](vm, torch.tensor, data, kwargs)
    if data.__class__ is not Object or data.pytype is not np.ndarray:
        stacked = None if args else stacked_numbers.stacked(vm, data, kwargs)
        return stacked or vm.emit("call_function", OWN.tensor, [data, *args], with_dtype(vm, data, kwargs))
    if args or not kwargs.keys() <= {"dtype", "device"}:
        raise Break("unsupported argument", what="tensor", type="ndarray")
    array = numpy_arrays.array_of(vm, data)
    made = numpy_arrays.laid_out(vm, array) or numpy_arrays.to_tensor(vm, array)
    return vm.emit("call_method", "to", [made], kwargs) if kwargs else made


def empty(vm: Machine, *args: Value, **kwargs: Value) -> Value:
    """Model `np.empty`, whose array has no particular contents, by zeros."""
    return numpy_arrays.call(vm, np.zeros, list(args), kwargs)


def empty_like(vm: Machine, prototype: Value, /, *args: Value, **kwargs: Value) -> Value:
    """Model `np.empty_like` by zeros."""
    return numpy_arrays.call(vm, np.zeros_like, [prototype, *args], kwargs)


def through_an_array(fn: Any) -> None:
    """Register a function that takes a tensor for the array that `numpy()` gives."""

    def row(vm: Machine, first: Value, *args: Value, **kwargs: Value) -> Value:
        if first.__class__ is TensorNode:
            array = vm.call_method(first, "numpy")
            if fn is np.array and "copy" not in kwargs:  # which warns, of a tensor
                return FLOWING_CALL[np.ndarray](vm, fn, [first, *args], kwargs)
            first = array
        return numpy_arrays.call(vm, fn, [first, *args], kwargs)

    function(fn)(row)


if np is not None:
    numpy_arrays.rows()
    function(np.empty)(empty)
    function(np.empty_like)(empty_like)
    for _fn in (np.array, np.asarray, np.asanyarray, np.ascontiguousarray):
        through_an_array(_fn)
    enters(np.generic)(enter_scalar)
    enters(np.dtype, np.ufunc, type(np.linalg.norm))(enter_singleton)
    iterates(np.ndarray)(items)
    rebuilds(np.ndarray)(rebuild)
    COPY[np.ndarray] = numpy_arrays.array_of
    for _fn in (torch.from_numpy, torch.as_tensor, torch.asarray):
        sharing(_fn)
    function(torch.tensor)(copied)
