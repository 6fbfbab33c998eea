"""Arrays made of what tensors hold, in whole graphs: nodes that call NumPy itself when the graph runs.

What an operation gives is tried on an array of the same type, shape and layout with other contents. So there are only
operations whose result's type and shape do not depend on contents of what the tables let be unknown (numpy_tables.py);
all others end the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.fx

from torchdynamo.capture.functions import warnings
from torchdynamo.capture.speculate import may_raise
from torchdynamo.capture.torch import arguments, histories, numpy_arrays, numpy_memory, numpy_numbers
from torchdynamo.capture.torch.numpy_arrays import Flowing, flowing, flows
from torchdynamo.capture.torch.numpy_tables import (
    FUNCTIONS,
    IN_PLACE,
    METHODS,
    PARTS,
    READ,
    Operands,
    of_ufunc,
)
from torchdynamo.capture.vm.emitted_calls import push_call
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import (
    COPY,
    FLOWING_ATTRIBUTE,
    FLOWING_BINARY,
    FLOWING_CALL,
    FLOWING_INPUT,
    FLOWING_ITEMS,
    FLOWING_TENSOR,
    models,
    rebuilds,
)
from torchdynamo.core.policy import NUMPYS, OWN
from torchdynamo.core.signals import Break
from torchdynamo.core.value import FALSE, NONE, Known, Object, Symbol, TensorNode, Value
from torchdynamo.graph.numpy_nodes import called, np

BASE = torch._C.TensorBase


def unknown(name: str) -> Break:
    return Break("data-dependent value", name=f"numpy.{name}")


# -- in ---------------------------------------------------------------------------------------------------------------
@models(BASE, "numpy")
def numpy(vm: Machine, self: TensorNode, /, *, force: Value = FALSE) -> Value:
    """Return a tensor's memory as an array."""
    if np is None:
        raise Break("data-dependent value", name="numpy")
    if vm.truth(force):
        for step in ("detach", "cpu", "resolve_conj", "resolve_neg"):
            self = vm.call_method(self, step)  # type: ignore[assignment]
    fake = self.fake
    if vm.grad_mode_unknown or torch.is_grad_enabled():
        histories.refuse_unknown(vm, self, "numpy")
    if fake.requires_grad and vm.grad_mode_unknown:
        raise Break("data-dependent value", name="numpy")
    if fake.requires_grad and torch.is_grad_enabled():
        text = "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
        raise vm.error(RuntimeError, text)
    plain = (
        all(type(size) is int for size in (*fake.shape, *fake.stride())) and not fake.is_conj() and not fake.is_neg()
    )
    if fake.device.type != "cpu" or fake.dtype not in DTYPES or not plain or self.pytype is not torch.Tensor:
        raise Break("data-dependent value", name="numpy")
    like = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype).numpy()
    like[...] = np.random.RandomState(0).rand(*like.shape) + 0.5
    node = vm.builder.note(torch.Tensor.numpy, (self.node,), {}, like, vm.position())
    vm.ops += 1
    return vm.new(np.ndarray, Flowing(node, fake, like))


DTYPES = frozenset(
    {torch.float32, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool}
)


# -- through ----------------------------------------------------------------------------------------------------------
def call(vm: Machine, fn: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call a function of NumPy with arguments of which some are arrays of the graph."""
    name, operands = row_of(fn, args)
    short = name.rpartition(".")[2]
    if name == "ndarray.__len__" and args[0].__class__ is Object:
        return Known(len(node_of(vm, args[0]).meta["example_value"]))
    outs = []
    for rule, value in operands.rules(args, kwargs):
        if rule[0] == "-" or (rule == "." and flows(vm, value)):
            raise unknown(short)
        if value.__class__ is TensorNode and fn is not np.array:
            raise unknown(short)
        if rule[0] == ">":
            outs.append(value)
    if short == "where" and len(args) != 3:
        raise unknown(short)
    if short in ("__getitem__", "__setitem__"):
        check_index(vm, args[1], writes=short == "__setitem__")
    for value in written(vm, outs):
        numpy_memory.note_written(vm, value, short)
    node_args = tuple(to_arg(vm, arg) for arg in args)
    node_kwargs = {key: to_arg(vm, arg) for key, arg in kwargs.items()}
    return operation(vm, name, node_args, node_kwargs, [*args, *kwargs.values()])


def with_tensor(vm: Machine, fn: Any, a: Value, b: Value) -> Value:
    """Return what an operator of an array and a tensor gives: a tensor that NumPy has computed."""
    tensor = a if a.__class__ is TensorNode else b
    if f"__{fn.__name__}__" in IN_PLACE:
        raise unknown(fn.__name__)
    vm.call_method(tensor, "numpy")  # as it does
    flow = made(vm, f"operator.{fn.__name__}", (to_arg(vm, a), to_arg(vm, b)), {})
    real = flow.example
    if type(real) is not torch.Tensor:
        raise unknown(fn.__name__)
    layout = tuple(real.shape), tuple(real.stride())
    like = vm.builder.example("call_function", OWN.empty_strided, layout, {"dtype": real.dtype})
    flow.node.meta["example_value"] = like
    value = vm.fakes[id(like)] = TensorNode(flow.node, like, torch.Tensor)
    return value


def written(vm: Machine, outs: list[Value]) -> list[Object]:
    """Return the arrays that a call writes to, of its arguments for them."""
    values: list[Value] = []
    for out in outs:
        values += vm.iterate(out) if out.__class__ is Object and out.pytype is tuple else [out]
    values = [each for each in values if each is not NONE]
    if any(each.__class__ is not Object or each.pytype is not np.ndarray for each in values):
        raise unknown("out")
    return values  # type: ignore[return-value]


def row_of(fn: Any, args: list[Value]) -> tuple[str, Operands]:
    """Return the path of a function of NumPy's that may be in a graph, and its row.

    Methods of numbers are those of the type of the first argument, which do not work, nor warn, as arrays' do.
    """
    short = getattr(fn, "__name__", "")
    found, path = None, short
    is_method = getattr(fn, "__objclass__", None) in (np.ndarray, np.generic)
    if is_method:
        owner = np.ndarray if fn.__objclass__ is np.ndarray else args[0].pytype
        found, path = METHODS.get(short), f"{owner.__name__}.{short}"
    elif isinstance(fn, np.ufunc):
        found = of_ufunc(fn) if hasattr(np, short) else None
    else:
        path = f"{fn.__module__.removeprefix('numpy').strip('.')}.{short}".strip(".")
        found = FUNCTIONS.get(path)
    if found is None or not (is_method or called(path) is fn):  # another may have been put under its name
        raise unknown(short)
    return path, found


def check_index(vm: Machine, index: Value, *, writes: bool) -> None:
    """Refuse an index whose result has a size that contents decide: a mask, or a slice that an array ends."""
    parts = list(vm.iterate(index)) if index.__class__ is Object and index.pytype is tuple else [index]
    for part in parts:
        known = flowing(vm, part)
        mask = known is not None and known.example.dtype.kind == "b"
        if (mask and not writes) or (known is None and flows(vm, part)):
            raise unknown("ndarray.__getitem__")


def to_arg(vm: Machine, value: Value) -> Any:
    """Return a value as an argument of a node."""
    known = flowing(vm, value)
    if known is not None or value.__class__ is TensorNode:
        return value.node if known is None else known.node  # type: ignore[union-attr]
    if value.__class__ is Known and (
        isinstance(value.obj, np.dtype) or (isinstance(value.obj, type) and value.obj in TYPES)
    ):
        return np.dtype(value.obj).str
    if value.__class__ is Known and isinstance(value.obj, np.generic):
        return made(vm, value.obj.dtype.name, (numpy_arrays.plain(value.obj),), {}).node
    if value.__class__ is Object and value.pytype is np.ndarray:
        array = numpy_arrays.array_of(vm, value)
        return numpy_memory.constant(vm, array).node
    if value.__class__ is Object and value.pytype in (list, tuple):
        return value.pytype(to_arg(vm, item) for item in vm.iterate(value))
    if value.__class__ is Object and value.pytype is slice:
        return slice(*(to_arg(vm, part) for part in vm.entity(value).items))
    if value.__class__ is Known or (value.__class__ is Object and value.pytype is dict):
        return arguments.to_node(vm, value)
    raise unknown("ndarray")


TYPES = (bool, int, float, complex, *NUMPYS)


def made(vm: Machine, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Flowing:
    """Add a node that calls NumPy and may warn or raise."""
    if warnings.are_deferred(vm):
        raise unknown(name)  # it may warn, before the others are given and the filters are changed for real
    may_raise.be_careful(vm, f"numpy.{name}")
    return numpy_arrays.made(vm, name, args, kwargs)


def operation(vm: Machine, name: str, args: Any, kwargs: Any, given: list[Value]) -> Value:
    """Add a node that calls NumPy and return its value."""
    flow = made(vm, name, args, kwargs)
    if flow.example is NotImplemented:
        vm.builder.erase(flow.node)
        return Known(NotImplemented)
    for at, value in enumerate(given):
        known = flowing(vm, value)
        if known is not None and known.example is flow.example:
            if at and value.__class__ is Object:  # where the result was to be written
                numpy_memory.note_written(vm, value, name)
            return value
    if any(each.meta["example_value"] is flow.example for each in flow.node.all_input_nodes):
        raise unknown(name)  # it writes into a copy of what it is to write into
    return result(vm, flow, name)


def result(vm: Machine, flow: Flowing, name: str) -> Value:
    if flow.example is None:
        return NONE
    if type(flow.example) is np.ndarray and not flow.example.dtype.hasobject:
        return vm.new(np.ndarray, flow)
    if isinstance(flow.example, np.generic):
        return vm.new(type(flow.example), flow)
    if isinstance(flow.example, (list, tuple)):
        parts = [Flowing(vm.builder.getitem(flow.node, at)[0]) for at in range(len(flow.example))]
        return vm.new(type(flow.example), [result(vm, part, name) for part in parts])
    raise unknown(name)


def attribute(vm: Machine, self: Object, name: str) -> Value:
    """Return an attribute like `a.shape` or `a.T` of an array of the graph."""
    known = flowing(vm, self)
    assert known is not None
    if name in READ:
        return numpy_arrays.lift(vm, getattr(known.example, name))
    if name in PARTS:
        owner = "ndarray" if self.pytype is np.ndarray else "generic"
        return operation(vm, f"{owner}.{name}.__get__", (known.node,), {}, [])
    raise unknown(f"ndarray.{name}")


# -- out --------------------------------------------------------------------------------------------------------------
def to_tensor(vm: Machine, fn: Any, value: Value, kwargs: dict[str, Value]) -> Value:
    """Model `torch.from_numpy(a)` and `torch.tensor(a)` of an array of the graph."""
    known = flowing(vm, value)
    assert known is not None and value.__class__ is Object
    named = {key: arguments.to_node(vm, arg) for key, arg in kwargs.items()}
    try:
        real = fn(known.example, **named)
    except Exception as error:
        raise unknown(fn.__name__) from error
    shape, stride = tuple(real.shape), tuple(real.stride())
    if real.device.type == "cpu" and np.may_share_memory(real.detach().numpy(), known.example):
        like = numpy_memory.lent(vm, vm.entity(value), real)
    else:
        like = vm.builder.example("call_function", OWN.empty_strided, (shape, stride), {"dtype": real.dtype})
    vm.ops += 1
    node = vm.builder.note(fn, (known.node,), named, like, vm.position())
    if real.requires_grad or not isinstance(like, torch.Tensor):
        raise unknown(fn.__name__)
    value = vm.fakes[id(like)] = TensorNode(node, like, torch.Tensor)
    return value


def rebuild(emit: Any, entity: Entity) -> None:
    """Push a number that the graph gives, or NumPy's number of a plain one."""
    if entity.payload.__class__ is numpy_numbers.NumberPayload:
        push_call(emit, entity.pytype, entity.payload.number)
        return
    emit.computed(TensorNode(entity.items.node, None, entity.pytype))


def scalar_method(fn: Any) -> Any:
    """Return the model of a method of NumPy's numbers: run at once on constants, a node for numbers of the graph."""

    def row(vm: Machine, self: Value, *args: Value, **kwargs: Value) -> Value:
        if any(arg.__class__ is TensorNode for arg in args):
            return Known(NotImplemented)
        if any(flows(vm, each) for each in (self, *args)):
            return call(vm, fn, [self, *args], kwargs)
        return vm.run_pure(fn, [self, *args], kwargs)

    return row


# Methods that give one of Python's numbers -> its type; None: that which holds what NumPy's does.
READS: dict[str, type | None] = {"__int__": int, "__index__": int, "__float__": float, "item": None}
HELD: dict[str, type] = {"i": int, "u": int, "f": float}  # kinds of NumPy's numbers


def plain_number(vm: Machine, flow: Flowing, name: str) -> Value:
    """Return one of Python's numbers, read from a number of NumPy's that the graph gives."""
    dtype = flow.example.dtype
    kept = HELD.get(dtype.kind)
    wanted = READS[name] or kept
    may_be = vm.builder.numbers.scalars or flow.drawn
    if not may_be or wanted is None or kept not in (int, wanted) or dtype == np.uint64:
        raise unknown(name)
    number = vm.builder.numbers.fresh(wanted)
    if wanted is int and dtype.itemsize < 8:
        limits = np.iinfo(dtype)
        vm.builder.numbers.learn(number >= int(limits.min))
        vm.builder.numbers.learn(number <= int(limits.max))
    vm.ops += 1
    return Symbol(vm.builder.note(wanted, (flow.node,), {}, number, vm.position()), number, wanted)


def asked(name: str) -> Any:
    """Return the model of a method that a number of the graph can answer; NumPy answers for other numbers."""
    answer = numpy_numbers.ASKED[name]

    def row(vm: Machine, self: Value, *args: Value, **kwargs: Value) -> Value:
        if not args and not kwargs and numpy_numbers.held(vm, self) is not None:
            known = answer(vm, self)  # type: ignore[arg-type]
            if known is not None:
                return known
        flow = flowing(vm, self)
        if flow is not None and name in READS and not args and not kwargs:
            return plain_number(vm, flow, name)
        if flow is not None and name not in METHODS:
            raise unknown(name)
        fn = vars(np.generic).get(name) or getattr(self.pytype, name)
        return scalar_method(fn)(vm, self, *args, **kwargs)

    return row


def scalar_attribute(name: str) -> Any:
    def row(vm: Machine, self: Value) -> Value:
        if flowing(vm, self) is not None:
            return attribute(vm, self, name)  # type: ignore[arg-type]
        if numpy_numbers.held(vm, self) is not None:
            of_type = name in READ  # which all of the type have
            number = numpy_numbers.example(self) if of_type else numpy_numbers.settled(vm, self)  # type: ignore[arg-type]
            return numpy_arrays.lift(vm, getattr(number, name))
        return numpy_arrays.lift(vm, getattr(vm.known(self, "number"), name))

    return row


def items(vm: Machine, value: Object) -> Iterator[Value]:
    """Yield the items along the first dimension of an array of the graph."""
    known = flowing(vm, value)
    assert known is not None
    if not known.example.ndim:
        raise vm.error(TypeError, "iteration over a 0-d array")
    parts = (Flowing(vm.builder.getitem(known.node, at)[0], drawn=known.drawn) for at in range(len(known.example)))
    return (result(vm, part, "ndarray.__iter__") for part in parts)


def node_of(vm: Machine, value: Object) -> Any:
    number = numpy_numbers.held(vm, value)
    if number is not None:
        return arguments.to_node(vm, number)
    known = flowing(vm, value)
    assert known is not None
    return known.node


def constant_of(vm: Machine, value: Object) -> Any:
    """Return the number as a constant. Ends the graph if a tensor holds it."""
    if numpy_numbers.held(vm, value) is None:
        raise unknown(value.pytype.__name__)
    return numpy_numbers.settled(vm, value)


if np is not None:
    FLOWING_CALL[np.ndarray] = call
    FLOWING_BINARY[np.ndarray] = with_tensor
    FLOWING_INPUT[np.ndarray] = numpy_memory.enter
    FLOWING_ATTRIBUTE[np.ndarray] = attribute
    FLOWING_ITEMS[np.ndarray] = items
    FLOWING_TENSOR[np.ndarray] = to_tensor
    rebuilds(np.generic)(rebuild)
    for _name in METHODS.keys() & vars(np.generic).keys():
        models(np.generic, _name)(scalar_method(vars(np.generic)[_name]))
    for _name in numpy_numbers.ASKED:
        models(np.generic, _name)(asked(_name))
    for _name in READ | PARTS:
        models(np.generic, "." + _name)(scalar_attribute(_name))
    for _cls in NUMPYS:
        arguments.AS_NODES[_cls] = node_of
        COPY[_cls] = constant_of
