"""NumPy's arrays and scalars inside a frame: constants, computed with by NumPy itself while the frame is captured.

An array that existed is guarded by its contents, and may not be written to. What a tensor holds is not known at
capture, so an array made of one ends the graph.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.fx

from torchdynamo.capture.torch import numpy_settings
from torchdynamo.capture.vm import model
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Source
from torchdynamo.core.value import Known, Object, TensorNode, Value
from torchdynamo.graph.numpy_nodes import np

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

LARGEST = 1 << 14  # bytes: what is compared before each call, or written into the graph
# Functions of NumPy that do something besides computing, read settings, or draw random numbers.
EFFECTS = frozenset(
    "copyto put place putmask fill_diagonal put_along_axis save savez savez_compressed savetxt load loadtxt fromfile "
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
    borrowed: bool = False  # a tensor's own memory
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
    items = vm.entity(value).items
    return items if items.__class__ is Flowing else None


def flowing_type(value: Value) -> bool:
    """Return whether a value is a number of NumPy's that a graph gives."""
    return value.__class__ is Object and np is not None and issubclass(value.pytype, np.generic)


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
        raise vm.error(type(error), *error.args) from None
    for entity, held in before:
        if entity.items.tobytes() != held:
            vm.effects.items(entity)
    for entity in arrays(vm):
        fixed = entity.payload_if(ArrayContents) if entity.source is None else contents_of(entity.real)
        if fixed is not None and fixed != contents_of(entity.items):
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
    if entity.items is None:
        source, real = entity.source, entity.real
        assert source is not None
        if real.nbytes > LARGEST or real.dtype.hasobject:
            raise Break("unsupported type", type="large ndarray" if real.nbytes > LARGEST else "ndarray of objects")
        vm.guard(Source("attr", Source("attr", source, "dtype"), "str"), "EQUALS_MATCH", real.dtype.str)
        vm.guard(Source("attr", source, "shape"), "EQUALS_MATCH", real.shape)
        vm.guard(Source("attr", source, "strides"), "EQUALS_MATCH", real.strides)
        contents = Source("method", source, "tobytes")
        if contents in vm.builder.numbers.varying:
            raise Break("changing value", type="ndarray")
        vm.guard(contents, "EQUALS_MATCH", real.tobytes())
        entity.items = real.copy(order="K")  # what is computed of it lies as what is computed of the real one
    if entity.items.__class__ is Flowing:
        raise Break("data-dependent value", name="numpy")
    return entity.items


def to_tensor(vm: Machine, array: Any) -> Value:
    """Return the array as a tensor of the graph, which makes it anew whenever it runs."""
    if array.nbytes > LARGEST or array.dtype.byteorder == ">" or array.dtype.kind not in "biufc":
        raise Break("unsupported argument", what="tensor", type="ndarray")
    dtype = torch.from_numpy(np.zeros(1, array.dtype)).dtype
    made = vm.emit("call_function", torch.tensor, [vm.constant(array.ravel().tolist())], {"dtype": Known(dtype)})
    return vm.call_method(made, "view", Known(tuple(array.shape)))


def share(vm: Machine, value: Object) -> Value:
    """Return a tensor that shares memory with an array of the frame's own, to which nobody writes from now on."""
    array = array_of(vm, value)
    for entity in arrays(vm):
        if np.may_share_memory(entity.items, array):
            if entity.source is not None:
                raise Break("unsupported argument", what="tensor", type="ndarray that existed before")
            entity.payload = contents_of(entity.items)
    return to_tensor(vm, array)


def plain(obj: Any) -> Any:
    """Return a NumPy scalar as Python's own number, also in slices and tuples; anything else as it is."""
    if type(obj) is tuple:
        return tuple(map(plain, obj))
    if type(obj) is slice:
        return slice(plain(obj.start), plain(obj.stop), plain(obj.step))
    return obj.item() if "numpy" in sys.modules and isinstance(obj, np.generic) else obj


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
