"""NumPy's arrays and scalars inside a frame: constants, computed with by NumPy itself while the frame is captured.

An array that existed is guarded by its contents, unless they vary, it is large, or it is written to or shared: then it
is an input of the graph, as arrays that tensors hold are values of it (numpy_memory.py).
"""

from __future__ import annotations

import sys
import types
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.fx

from torchdynamo.capture.torch import numpy_settings
from torchdynamo.capture.vm import model
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.core.call_sites import line_of
from torchdynamo.core.policy import OWN
from torchdynamo.core.signals import Assumption, Break, Retry
from torchdynamo.core.source import Source
from torchdynamo.core.value import Known, Object, TensorNode, Value
from torchdynamo.graph.numpy_nodes import np, of_numpy

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

LARGEST = 1 << 14  # bytes: what is compared before each call, or written into the graph
# Functions of NumPy that do something besides computing, read settings, or draw random numbers.
EFFECTS = frozenset(
    "save savez savez_compressed savetxt load loadtxt fromfile "
    "memmap genfromtxt fromregex seterr seterrcall setbufsize set_printoptions errstate printoptions empty empty_like "
    "geterr geterrcall getbufsize get_printoptions _get_extobj_dict _make_extobj "
    "frombuffer require shares_memory may_share_memory byte_bounds show_config info vectorize nditer".split()
)
SPACES = ("numpy", "numpy.linalg", "numpy.fft", "numpy.core.", "numpy._core.", "numpy.lib.")


def is_function(obj: Any) -> bool:
    """Return whether an object is a function of NumPy that only computes."""
    if np is None:
        return False
    if isinstance(obj, np.ufunc):
        return True
    if issubclass(type(obj), type):
        return issubclass(obj, (np.generic, np.dtype)) and obj.__module__ == "numpy"
    module = getattr(obj, "__module__", None)
    if not isinstance(module, str) or not module.startswith("numpy") or not is_numpys_own(obj):
        return False
    return module.startswith(SPACES) and callable(obj) and getattr(obj, "__name__", "") not in EFFECTS


def is_numpys_own(obj: Any) -> bool:
    """Return whether a function is NumPy's own: a wrapper round one has its module and name."""
    if type(obj) is types.FunctionType:
        return str(obj.__globals__.get("__name__")).startswith("numpy")
    return type(obj) is types.BuiltinFunctionType or type(obj).__module__.startswith("numpy")


class Flowing(NamedTuple):
    """A node of the graph that gives the contents of an array, or a number of NumPy's."""

    node: torch.fx.Node
    lender: Any = None  # the fake tensor that stands for its memory, if tensors or others have that, too
    memory: Any = None  # the array that has all of that memory, to which the lender's first element belongs
    drawn: bool = False  # random numbers

    @property
    def example(self) -> Any:
        """Return an array, or a number, of this type, shape and layout."""
        return self.node.meta["example_value"]


class ArrayContents(NamedTuple):
    """The payload of an array that the frame made and others see: what is in it for good."""

    memory: bytes
    dtype: Any


def contents_of(array: Any) -> ArrayContents:
    return ArrayContents(array.tobytes(), array.dtype)


def flowing(vm: Machine, value: Value) -> Flowing | None:
    """Return the node behind an array, or a number of NumPy's, that the graph gives; None for any other value."""
    if value.__class__ is not Object or np is None or not issubclass(value.pytype, (np.ndarray, np.generic)):
        return None
    entity = vm.entity(value)
    if entity.items is None and entity.source is not None and value.pytype is np.ndarray:
        entity.items = model.FLOWING_INPUT[np.ndarray](vm, entity)
    return entity.items if entity.items.__class__ is Flowing else None


def as_inputs(vm: Machine) -> None:
    """Capture again with arrays that were there as inputs of the graph, unless they are already."""
    if Assumption.ARRAYS not in vm.builder.numbers.dropped:
        raise Retry(Assumption.ARRAYS)


def made(vm: Machine, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Flowing:
    """Add a node that calls NumPy, after a trial on arrays of other contents, and return it."""
    examples = torch.fx.node.map_arg((args, kwargs), trial_of)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            example = of_numpy(name, tuple(examples[0]), dict(examples[1]))
    except Exception as error:  # perhaps only of these contents: Python will say
        raise Break("data-dependent value", name=f"numpy.{name}") from error
    vm.ops += 1
    found = line_of(vm.frames)
    given = (name, args, kwargs) if found is None else (name, args, kwargs, tuple(found[0]))
    return Flowing(vm.builder.note(of_numpy, given, {}, example, vm.position()))


def as_index(vm: Machine, key: Value) -> Value:
    """Return the index of a tensor with tensors in place of arrays of the graph, and of an array of one dimension."""
    if key.__class__ is not Object or np is None:
        return key
    if key.pytype is tuple and flows(vm, key):
        return vm.new(
            tuple, [as_tensor(vm, part) if flowing(vm, part) is not None else part for part in vm.iterate(key)]
        )
    if key.pytype is np.ndarray:
        known = flowing(vm, key)
        if (array_of(vm, key) if known is None else known.example).ndim == 1:  # rows of others are indices each
            return as_tensor(vm, key)
    return key


def as_tensor(vm: Machine, array: Value) -> Value:
    return vm.call(Known(torch.as_tensor), [array], {})


def trial_of(node: torch.fx.Node) -> Any:
    """Return what a call is tried with in place of a node: an array, or a tensor, of other contents."""
    example = node.meta["example_value"]
    if isinstance(example, torch.Tensor):
        return torch.empty_strided(example.shape, example.stride(), dtype=example.dtype).fill_(1)
    return example


def flowing_type(value: Value) -> bool:
    """Return whether a value is a number of NumPy's that a graph gives."""
    return value.__class__ is Object and np is not None and issubclass(value.pytype, np.generic)


def is_numpys(value: Value) -> bool:
    """Return whether a value is an array, or a number of NumPy's that a graph gives."""
    return flowing_type(value) or is_array(value)


def meets_tensor(a: Value, b: Value) -> bool:
    """Return whether one of two operands is an array and the other a tensor: NumPy computes what they give."""
    return (a.__class__ is TensorNode and is_array(b)) or (b.__class__ is TensorNode and is_array(a))


def with_tensor(vm: Machine, fn: Any, a: Value, b: Value) -> Value:
    return model.FLOWING_BINARY[np.ndarray](vm, fn, a, b)


def is_array(value: Value) -> bool:
    return value.__class__ is Object and np is not None and value.pytype is np.ndarray


def flows(vm: Machine, value: Value) -> bool:
    """Return whether a value is an array of the graph, or a list, tuple or slice with one."""
    if value.__class__ is Object and value.pytype in (list, tuple):
        return any(flows(vm, item) for item in vm.iterate(value))
    if value.__class__ is Object and value.pytype is slice:
        return any(flows(vm, part) for part in vm.entity(value).items)
    return flowing(vm, value) is not None


def call(vm: Machine, fn: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call a function of NumPy with constants.

    Arrays that the frame made are real ones, with their views and writes.
    """
    name = getattr(fn, "__name__", repr(fn))
    if any(flows(vm, arg) for arg in (*args, *kwargs.values())):
        return model.FLOWING_CALL[np.ndarray](vm, fn, args, kwargs)
    if any(map(holds_tensors, (*args, *kwargs.values()))):
        raise Break("data-dependent value", name=f"numpy.{name}")
    real = [vm.concretely(arg) for arg in args]
    named = {key: vm.concretely(arg) for key, arg in kwargs.items()}
    before = [(entity, entity.items.tobytes()) for entity in arrays(vm)] if vm.effects.is_watched else []
    try:
        result = numpy_settings.computed(vm, fn, real, named)
    except Break:
        raise
    except Exception as error:
        raise vm.refused(error) from None
    for entity, held in before:
        if entity.items.tobytes() != held:
            vm.effects.items(entity)
    for entity in arrays(vm):
        fixed = entity.payload_if(ArrayContents) if entity.source is None else contents_of(entity.real)
        if fixed is not None and fixed != contents_of(entity.items):
            as_inputs(vm)
            raise Break("side effect not replayable", what=f"numpy.{name}, which writes into an array that others see,")
    given = zip((*args, *kwargs.values()), (*real, *named.values()), strict=True)
    same = (value for value, each in given if each is result and value.__class__ is Object)  # `a += 1`, `asarray(a)`
    return next(same, None) or lift(vm, result)


def arrays(vm: Machine) -> list[Entity]:
    """Return the arrays that the frame has looked at."""
    looked_at = [each for each in vm.heap.entities if each.pytype is np.ndarray and each.items is not None]
    return [each for each in looked_at if each.items.__class__ is not Flowing]


def holds_tensors(value: Value) -> bool:
    return value.__class__ is TensorNode


def lift(vm: Machine, obj: Any) -> Value:
    """Return the value of what NumPy computed."""
    if isinstance(obj, np.ndarray):
        if obj.dtype.hasobject:
            raise Break("unsupported type", type="ndarray of objects")
        return vm.new(np.ndarray, items=obj) if type(obj) is np.ndarray else unknown(obj)
    if isinstance(obj, (np.generic, np.dtype)):
        return Known(obj)
    if type(obj) in (tuple, list):
        return vm.new(type(obj), [lift(vm, item) for item in obj])
    return vm.constant(obj) if "numpy" not in type(obj).__module__ else unknown(obj)


def unknown(obj: Any) -> Value:
    raise Break("unsupported type", type=type(obj).__name__)


def array_of(vm: Machine, value: Object) -> Any:
    """Return the real array; of one that existed, a copy, guarded by its contents."""
    entity = vm.entity(value)
    if entity.items is None and flowing(vm, value) is None:
        source, real = entity.source, entity.real
        assert source is not None
        if real.nbytes > LARGEST or real.dtype.hasobject:
            raise Break("unsupported type", type="large ndarray" if real.nbytes > LARGEST else "ndarray of objects")
        guard_layout(vm, real, source)
        contents = Source("method", source, "tobytes")
        if contents in vm.builder.numbers.varying:
            raise Break("changing value", type="ndarray")
        vm.guard(contents, "EQUALS_MATCH", real.tobytes())
        entity.items = real.copy(order="K")  # what is computed of it lies as what is computed of the real one
    if entity.items.__class__ is Flowing:
        raise Break("data-dependent value", name="numpy")
    return entity.items


def guard_layout(vm: Machine, real: Any, source: Source) -> None:
    """Guard the type, shape and strides of an array that existed."""
    vm.guard(Source("attr", Source("attr", source, "dtype"), "str"), "EQUALS_MATCH", real.dtype.str)
    vm.guard(Source("attr", source, "shape"), "EQUALS_MATCH", real.shape)
    vm.guard(Source("attr", source, "strides"), "EQUALS_MATCH", real.strides)


def to_tensor(vm: Machine, array: Any) -> Value:
    """Return the array as a tensor of the graph, which makes it anew whenever it runs."""
    if array.nbytes > LARGEST or array.dtype.byteorder == ">" or array.dtype.kind not in "biufc":
        raise Break("unsupported argument", what="tensor", type="ndarray")
    dtype = torch.from_numpy(np.zeros(1, array.dtype)).dtype
    made = vm.emit("call_function", OWN.tensor, [vm.constant(array.ravel().tolist())], {"dtype": Known(dtype)})
    return vm.call_method(made, "view", Known(tuple(array.shape)))


def share(vm: Machine, value: Object) -> Value:
    """Return a tensor that shares memory with an array of the frame's own, to which nobody writes from now on."""
    array = array_of(vm, value)
    for entity in arrays(vm):
        if np.may_share_memory(entity.items, array):
            if entity.source is not None:
                as_inputs(vm)
                raise Break("unsupported argument", what="tensor", type="ndarray that existed before")
            entity.payload = contents_of(entity.items)
    made = laid_out(vm, array)
    if made is None:
        raise Break("unsupported argument", what="tensor", type="ndarray with gaps")
    return made


def laid_out(vm: Machine, array: Any) -> Value | None:
    """Return the array as a tensor that lies as it does; None for one with gaps, or that goes backwards."""
    if array.flags.c_contiguous or array.dtype.kind not in "biufc":
        return to_tensor(vm, array)
    flat = array.ravel(order="K")  # in the order of memory
    strides = [step // array.itemsize for step in array.strides]
    if any(step < 0 for step in strides) or not np.shares_memory(flat, array):
        return None
    return vm.call_method(to_tensor(vm, flat), "as_strided", Known(array.shape), Known(tuple(strides)))


def plain(obj: Any) -> Any:
    """Return a NumPy scalar as Python's own number, also in slices and tuples; anything else as it is."""
    if type(obj) is tuple:
        return tuple(map(plain, obj))
    if type(obj) is slice:
        return slice(plain(obj.start), plain(obj.stop), plain(obj.step))
    return obj.item() if "numpy" in sys.modules and isinstance(obj, np.generic) else obj


def as_number(obj: Any) -> Any:
    """Return a NumPy scalar as the number that an operator of torch's takes it for: a truth is a float to it."""
    return float(obj) if np is not None and type(obj) is np.bool_ else plain(obj)


def rows() -> None:
    """Register the methods and attributes of arrays."""
    for name, found in vars(np.ndarray).items():
        if callable(found) and not isinstance(found, (type, staticmethod)) and name not in NOT_METHODS:
            model.models(np.ndarray, name)(method(name))
        elif not callable(found) and name != "__doc__":
            model.models(np.ndarray, "." + name)(attribute(name))


OF_THE_MEMORY = frozenset({"strides", "flags", "base", "data", "ctypes", "flat"})
NOT_METHODS = frozenset(
    {"__new__", "__init__", "__getattribute__", "__array_function__", "__array_ufunc__", "__hash__"}
)


def method(name: str) -> model.Model:
    def row(vm: Machine, self: Value, *args: Value, **kwargs: Value) -> Value:
        return call(vm, getattr(np.ndarray, name), [self, *args], kwargs)

    return row


def attribute(name: str) -> model.Model:
    def row(vm: Machine, self: Object) -> Value:
        if flowing(vm, self) is not None:
            return model.FLOWING_ATTRIBUTE[np.ndarray](vm, self, name)
        array, real = array_of(vm, self), vm.entity(self).real
        if vm.entity(self).source is not None and name in OF_THE_MEMORY:
            if name != "strides":
                raise Break("unsupported attribute", name=name, type="ndarray")
            array = real
        return lift(vm, getattr(array, name))

    return row
