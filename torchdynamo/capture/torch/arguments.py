"""Convert between values and the arguments of nodes: nodes, constants and containers of them."""

from __future__ import annotations

import cmath
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.fx
from torch.utils._device import _device_constructors

from torchdynamo.capture.speculate import may_raise, tensor_constants, unify_sizes
from torchdynamo.capture.torch import numpy_arrays, overrides, symbols
from torchdynamo.capture.torch.numpy_tables import OF_NUMBERS
from torchdynamo.capture.torch.tensor_subclasses import watch
from torchdynamo.capture.vm import c_fields
from torchdynamo.capture.vm.model import COPY, ITERATE, plain_new
from torchdynamo.capture.vm.scalar_subclasses import plainly
from torchdynamo.capture.vm.wrap import CONSTANTS, cannot_look, identity_of, lift
from torchdynamo.core import policy
from torchdynamo.core.naming import called
from torchdynamo.core.signals import Break
from torchdynamo.core.value import NONE, Known, Lazy, Object, Symbol, TensorNode, Value
from torchdynamo.graph import raising_operators, torch_compat
from torchdynamo.graph.numpy_nodes import np
from torchdynamo.graph.wrappers import is_wrapper

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

GRAPH_CONSTANTS = CONSTANTS - {complex} | {slice}
# Python's number types stand for dtypes where an operator takes one.
NUMBERS: dict[Any, torch.dtype] = {
    bool: torch.bool,
    int: torch.int64,
    float: torch.float64,
    complex: torch.complex128,
}
EMPTY: dict[str, Any] = {}


def emit(vm: Machine, op: str, target: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Put an operator into the graph, and give its result."""
    if vm.watching:
        answer = overrides.handled(vm, target if op == "call_function" else overrides.method(target), args, kwargs)
        if answer is not None:
            return answer
    if vm.devices:
        kwargs = on_device(vm, target, kwargs)
    check_numpys(vm, target, [*args, *kwargs.values()])
    try:
        node_args = tuple([to_node(vm, arg) for arg in args])
        node_kwargs = {name: to_node(vm, arg) for name, arg in kwargs.items()} if kwargs else EMPTY
    except Break:
        run = target if op == "call_function" else overrides.method(target)
        answer = overrides.of_others(vm, run, args, kwargs)
        if answer is None:
            raise
        return answer
    try:
        node, example = vm.builder.call(op, target, node_args, node_kwargs, vm.position())
    except Break as fault:
        if unify_sizes.are_taken_to_fit(vm, fault, [*args, *kwargs.values()]):
            return emit(vm, op, target, args, kwargs)
        asks = fault.reason == "data-dependent value"
        read = with_read(vm, args, kwargs) if asks and policy.in_optimizer(vm.frames) else None
        if read is not None:
            return emit(vm, op, target, *read)
        for known_by in (tensor_constants.as_numbers, symbols.at_entry)[
            not asks :
        ]:  # last of all: it takes none that vary
            known = with_known(vm, known_by, args, kwargs, op == "call_method")
            if known is not None:
                return emit(vm, op, target, *known)
        raise
    if raising_operators.may_raise(node):
        may_raise.be_careful(vm, raising_operators.name_of(target))
    if raising_operators.writes(node):
        may_raise.be_apart(vm, node)
    if symbols.is_of_unknown_size(vm, example):
        known = with_known(vm, tensor_constants.as_numbers, args, kwargs, op == "call_method")
        if known is not None:  # what is read need not be unknown
            vm.builder.erase(node)
            return emit(vm, op, target, *known)
    vm.ops += 1
    for arg in (*args, *kwargs.values()):
        if arg.__class__ is TensorNode:
            if arg.fake is example:
                return arg
            vm.fakes[id(arg.fake)] = arg
    return from_example(vm, node, example)


def check_numpys(vm: Machine, target: Any, given: list[Value]) -> None:
    """Refuse numbers of NumPy's that the graph gives where they may decide a shape: a size, an axis, a slice's end.

    Refuses others where the operator would not take them as `numpy_arrays.as_number` gives them.
    """
    unknown = [each for each in given if each.__class__ is Object and numpy_arrays.flows(vm, each)]
    name = raising_operators.name_of(target)
    for each in given:
        if each.__class__ is Known and np is not None and isinstance(each.obj, np.generic):
            check_number(target, name.strip("_"), each.obj)
    if unknown and (name.strip("_") not in OF_NUMBERS or any(holds_slices(vm, each) for each in unknown)):
        raise Break("data-dependent value", name=name)


def check_number(target: Any, name: str, number: Any) -> None:
    """Raise Break for a number of NumPy's that an operator takes otherwise than Python's of its kind, or refuses.

    Those that derive from Python's numbers, and integers, are taken as they are.
    """
    if name in DATA_MAKERS or isinstance(number, PLAINLY_TAKEN):
        return
    if isinstance(number, np.integer) and number <= MOST_INT64:
        return
    of_schema = isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket))
    if number.dtype.kind not in "bf" or name == "setitem" or of_schema:
        raise Break("unsupported argument", what=name, type=type(number).__name__)


DATA_MAKERS = frozenset({"tensor", "as_tensor", "asarray"})  # whose argument is data of any dtype
PLAINLY_TAKEN: tuple[type, ...] = (float, complex, str, bytes)
MOST_INT64 = (1 << 63) - 1


def holds_slices(vm: Machine, value: Value) -> bool:
    """Return whether an index has a slice that a number of the graph begins or ends."""
    if value.__class__ is Object and value.pytype in (list, tuple):
        return any(holds_slices(vm, item) for item in vm.iterate(value))
    return value.__class__ is Object and value.pytype is slice and numpy_arrays.flows(vm, value)


def with_known(
    vm: Machine, known_by: Callable[[Machine, Value], Value], args: list[Value], kwargs: dict[str, Value], method: bool
) -> tuple[list[Value], dict[str, Value]] | None:
    """Return the arguments with constants for tensors whose numbers are known; None if that changes nothing.

    The tensor that a `method` is called on stays a tensor.
    """
    known = [*args[:method], *(known_by(vm, arg) for arg in args[method:])]
    named = {name: known_by(vm, arg) for name, arg in kwargs.items()}
    return (known, named) if known != args or named != kwargs else None


def with_read(vm: Machine, args: list[Value], kwargs: dict[str, Value]) -> tuple[list[Value], dict[str, Value]] | None:
    """Return the arguments of an update with numbers of the graph in place of tensors; None if there are none.

    Such are a learning rate that is a tensor, and a weight after two lists.
    """
    lists = len(args) > 2 and args[0].pytype in (list, tuple)
    places = [args[2]] if lists else []
    wanted = [*places, *(kwargs[name] for name in ("alpha", "value", "weight") if name in kwargs)]
    read = {id(each): symbols.opaque(vm, torch.Tensor.item, [each], float) for each in wanted if is_rate(each)}
    if not read:
        return None
    return [read.get(id(arg), arg) for arg in args], {name: read.get(id(arg), arg) for name, arg in kwargs.items()}


def is_rate(value: Value) -> bool:
    """Return whether a value is a float in a tensor without dimensions, which has no gradient."""
    if not isinstance(value, TensorNode) or value.fake.dim():
        return False
    return value.fake.is_floating_point() and not value.fake.requires_grad


def on_device(vm: Machine, target: Any, kwargs: dict[str, Value]) -> dict[str, Value]:
    """Return keywords with the device of `with torch.device(d):` for a function that makes a tensor without one."""
    given = kwargs.get("device", NONE)
    if target in _device_constructors() and given.__class__ is Known and given.obj is None:
        return {**kwargs, "device": Known(vm.devices[-1])}
    return kwargs


def to_node(vm: Machine, value: Value) -> Any:
    """Return a value as an argument of a graph node."""
    if value.__class__ is TensorNode or value.__class__ is Symbol:
        return value.node
    if value.__class__ is Lazy:
        raise cannot_look(value)
    if value.__class__ is Known:
        obj = numpy_arrays.as_number(value.obj)
        if type(obj) in GRAPH_CONSTANTS or (type(obj) is tuple and all(type(item) in GRAPH_CONSTANTS for item in obj)):
            return obj
        if isinstance(obj, (int, float, str)) and not isinstance(obj, type):
            return type(obj).__mro__[-2](obj) if type(obj).__mro__[-2] in CONSTANTS else plain_number(obj)
        if type(obj) is type and obj in NUMBERS:
            return NUMBERS[obj]
        if type(obj) is tuple:
            return tuple(to_node(vm, lift(vm, item)) for item in obj)
        if type(obj) is complex:
            return complex_node(vm, obj)
        raise Break("unsupported argument", what=called(obj), type=type(obj).__name__)
    if value.__class__ is Object:
        cls = value.pytype
        if cls in (list, tuple, torch.Size) or issubclass(cls, tuple) or cls in LIST_LIKE:
            items = [to_node(vm, item) for item in vm.iterate(value)]
            return items if not issubclass(cls, tuple) else tuple(items)
        if cls is dict:
            return {vm.known(key, "key"): to_node(vm, item) for key, item in vm.dict_items(value)}
        if cls is slice:
            return slice(*(to_node(vm, bound(vm, part)) for part in vm.entity(value).items))
        if np is not None and cls is np.ndarray:
            return to_node(vm, numpy_arrays.to_tensor(vm, numpy_arrays.array_of(vm, value)))
        known = plainly(vm, value)
        if known is not value:
            return to_node(vm, known)
        given = AS_NODES.get(cls)
        if given is not None:
            return given(vm, value)
    raise Break("unsupported argument", what="argument", type=value.pytype.__name__)


def complex_node(vm: Machine, number: complex) -> Any:
    """Return a complex number as an argument.

    One that torch.fx would print as another number is made by a node; no backend prints one again that is no Python.
    """
    if torch_compat.is_printed_as_another(number):
        if not cmath.isfinite(number):
            vm.builder.keep_as_captured()
        return vm.builder.note(complex, (number.real, number.imag), {}, number, vm.position())
    return number


def bound(vm: Machine, part: Value) -> Value:
    """Return an end or the step of a slice; a tensor there is asked for its number."""
    return vm.call_method(part, "__index__") if part.__class__ is TensorNode else part


AS_NODES: dict[type, Callable[[Any, Any], Any]] = {}  # objects that are nodes themselves
LIST_LIKE: tuple[type, ...] = (torch.nn.ParameterList, set, frozenset)


def plain_number(obj: Any) -> Any:
    """Return the plain number or string that an instance of a subclass is."""
    for base in (bool, int, float, str):
        if isinstance(obj, base):
            return base(obj)
    return obj


def from_example(vm: Machine, node: torch.fx.Node, example: Any) -> Value:
    """Return the value of a node, by what it gave on fakes.

    A result that holds no tensor is a constant: no node stays.
    """
    cls = type(example)
    if isinstance(example, torch.Tensor):
        known = vm.fakes.get(id(example))
        if known is not None:
            return known
        value = TensorNode(node, example, class_of(vm, example))
        vm.fakes[id(example)] = value
        return value
    if example is None:
        return NONE
    if cls in CONSTANTS:
        vm.builder.erase(node)
        return Known(example)
    if isinstance(example, (tuple, list)):
        if cls is torch.Size:
            raise Break("unsupported type", type="torch.Size")
        items = [from_example(vm, *vm.builder.getitem(node, index)) for index in range(len(example))]
        if not any(item.__class__ is not Known for item in items):
            return lift(vm, example)
        return vm.new(cls, items)
    if cls is dict and all(type(key) in CONSTANTS for key in example):
        return vm.make_dict([(Known(key), from_example(vm, *vm.builder.getitem(node, key))) for key in example])
    if cls in symbols.TYPES:
        return symbols.from_node(vm, node, example)
    raise Break("unsupported type", type=cls.__name__)


def class_of(vm: Machine, example: torch.Tensor) -> type:
    """Return of which class the result is that an operation has given on fakes."""
    if is_wrapper(example):
        watch(vm, type(example))
        return type(example)
    return torch.nn.Parameter if isinstance(example, torch.nn.Parameter) else torch.Tensor


def concretely(vm: Machine, value: Value) -> Any:
    """Return the value as a Python object: a constant, or a container of constants (a copy, only to be read)."""
    if value.__class__ is Known:
        return identity_of(vm, value)
    if value.__class__ is Symbol:
        return vm.builder.numbers.settle(value.fake)
    if value.__class__ is Object:
        cls = value.pytype
        maker = COPY.get(cls)
        if maker is not None:
            made = maker(vm, value)
            if isinstance(made, list):
                vm.turns += len(made) >> 4  # which is work, where it is done again and again
            return made
        if issubclass(cls, BaseException):
            given = c_fields.read(vm, value, BaseException, "args") if vm.entity(value).items is None else None
            items = vm.entity(value).items if given is None else list(vm.iterate(given))
            return plain_new(cls)(cls, *(concretely(vm, item) for item in items or ()))
        if issubclass(cls, tuple):
            return plain_new(cls)(cls, [concretely(vm, item) for item in ITERATE[tuple](vm, value)])
    raise Break("unsupported argument", what="argument", type=value.pytype.__name__)


def concrete(vm: Machine, value: Value) -> Any:
    """Return the value as a Python object, or None where it is not a constant."""
    try:
        return concretely(vm, value)
    except Break:
        return None


@COPY.register(list)
def copy_list(vm: Machine, value: Object) -> list[Any]:
    return [concretely(vm, item) for item in vm.iterate(value)]


@COPY.register(tuple)
def copy_tuple(vm: Machine, value: Object) -> tuple[Any, ...]:
    return tuple(concretely(vm, item) for item in vm.iterate(value))


@COPY.register(dict)
def copy_dict(vm: Machine, value: Object) -> dict[Any, Any]:
    return {concretely(vm, key): concretely(vm, item) for key, item in vm.dict_items(value)}


@COPY.register(slice)
def copy_slice(vm: Machine, value: Object) -> slice:
    return slice(*(concretely(vm, part) for part in vm.entity(value).items))
