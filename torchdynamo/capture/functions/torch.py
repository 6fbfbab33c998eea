"""torch: functions that check or shape, and classes of tensors, where eager's own do not run on fake tensors."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import inspect
from typing import Any

import torch
import torch.overrides

from torchdynamo.capture.speculate.alike import equality
from torchdynamo.capture.torch import symbols
from torchdynamo.capture.torch.symbols import unknown
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import FUNCTIONS, Model, function, models, run_for_real
from torchdynamo.core.naming import called
from torchdynamo.core.policy import OWN
from torchdynamo.core.signals import Break
from torchdynamo.core.value import NONE, ONE, Known, Object, Symbol, TensorNode, Value, boolean
from torchdynamo.graph.numpy_nodes import np


def is_tensor(vm: Machine, obj: Any) -> Value:
    return boolean(issubclass(obj.pytype, torch.Tensor))


function(torch.is_tensor)(is_tensor)
run_for_real(torch.device, torch.finfo, torch.iinfo)


# -- where ------------------------------------------------------------------------------------------------------------
BOOL = Known(torch.bool)


def as_mask(vm: Machine, condition: Value) -> Value:
    if condition.__class__ is TensorNode and condition.fake.dtype is torch.uint8:
        return vm.emit("call_method", "to", [condition, BOOL], {})
    return condition


@function(torch.where)
def where(vm: Machine, condition: Value, /, *args: Value, **kwargs: Value) -> Value:
    if args or kwargs:
        condition = as_mask(vm, condition)
    return vm.emit("call_function", OWN.where, [condition, *args], kwargs)


@models(torch._C.TensorBase, "where")
def where_of(vm: Machine, self: Value, condition: Value, /, *args: Value, **kwargs: Value) -> Value:
    return vm.emit("call_method", "where", [self, as_mask(vm, condition), *args], kwargs)


# -- tensor_split -----------------------------------------------------------------------------------------------------
@function(torch.tensor_split, torch.Tensor.tensor_split)
def tensor_split(
    vm: Machine, input: Value, by: Value | None = None, dim: Value | None = None, **kwargs: Value
) -> Value:
    for name in ("tensor_indices_or_sections", "indices", "sections"):
        by = kwargs.pop(name, by)
    if by.__class__ is TensorNode:
        by = vm.call_method(by, "tolist")
    given = [input, *(each for each in (by, dim) if each is not None)]
    return vm.emit("call_function", OWN.tensor_split, given, kwargs)


# -- broadcast_shapes -------------------------------------------------------------------------------------------------


@function(torch.broadcast_shapes)
def broadcast_shapes(vm: Machine, /, *shapes: Value, **kwargs: Value) -> Value:
    given = [sizes_of(vm, shape) for shape in shapes]
    varying = any(isinstance(size, Symbol) for sizes in given if sizes for size in sizes)
    if varying and not kwargs and all(sizes is not None for sizes in given):
        found = broadcast(vm, [sizes for sizes in given if sizes is not None])
        if found is not None:
            return vm.new(torch.Size, found)
    return vm.inline(Known(torch.broadcast_shapes), list(shapes), dict(kwargs))


def sizes_of(vm: Machine, shape: Value) -> list[Value] | None:
    """Return the sizes in a shape, or a single size as a list; None unless all are sizes."""
    constant = shape.__class__ is Known and shape.pytype in (tuple, torch.Size)
    made = shape.__class__ is Object and shape.pytype in (tuple, list, torch.Size)
    sizes: list[Value] = list(vm.iterate(shape)) if constant or made else [shape]
    return sizes if all(map(is_size, sizes)) else None


def is_size(value: Value) -> bool:
    return isinstance(value, Symbol) or (value.__class__ is Known and type(value.obj) is int and value.obj >= 0)


def broadcast(vm: Machine, shapes: list[list[Value]]) -> list[Value] | None:
    """Return the common shape; None where torch has to say what does not fit, or a size is unknown."""
    if any(unknown(vm, size) for sizes in shapes for size in sizes):
        return None
    found: list[Value] = []
    for at in range(1, 1 + max(map(len, shapes))):
        common: Value = ONE
        for size in (sizes[-at] for sizes in shapes if len(sizes) >= at):
            if is_one(common):
                common = size
            elif not is_one(size) and not alike(vm, common, size):
                return None
        found.insert(0, common)
    return found


def is_one(value: Value) -> bool:
    return value.__class__ is Known and value.obj == 1


def alike(vm: Machine, a: Value, b: Value) -> bool:
    return vm.truth(vm.binary("==", a, b))


# -- istft ------------------------------------------------------------------------------------------------------------
MIN_ENVELOPE = 1e-11
BY_ROOT_N, BY_N = 1, 2


def istft_steps(input, n_fft, hop, width, window, center, normalized, half, length, return_complex):
    if width != n_fft:
        left = (n_fft - width) // 2
        window = torch.ops.aten.constant_pad_nd(window, [left, n_fft - width - left], 0)
    parts = torch.view_as_real(input.resolve_conj())
    if input.dim() == 2:
        parts = parts.unsqueeze(0)
    spectrum = torch.view_as_complex(parts.transpose(1, 2))
    norm = BY_ROOT_N if normalized else BY_N
    if return_complex:
        pieces = torch.ops.aten._fft_c2c(spectrum, [2], norm, False)
    else:
        spectrum = spectrum if half else spectrum[..., : n_fft // 2 + 1]
        pieces = torch.ops.aten._fft_c2r(spectrum, [2], norm, n_fft)
    frames = input.shape[-1]
    whole = n_fft + hop * (frames - 1)
    weighted = pieces * window.view([1, 1, n_fft])
    signal = torch.ops.aten.unfold_backward(weighted, [weighted.shape[0], whole], 1, n_fft, hop)
    squares = window.pow(2).expand([1, frames, n_fft])
    envelope = torch.ops.aten.unfold_backward(squares, [1, whole], 1, n_fft, hop)
    start = n_fft // 2 if center else 0
    end = whole - start if length is None else start + length
    signal, envelope = signal[:, start:end], envelope[:, start:end]
    if envelope.abs().min() < MIN_ENVELOPE:
        raise RuntimeError("window overlap add min: 1")
    signal = signal / envelope
    return signal.squeeze(0) if input.dim() == 2 else signal


ISTFT_DEFAULTS: dict[str, Any] = {"hop_length": None, "win_length": None, "window": None, "center": True}


ISTFT_DEFAULTS |= {"normalized": False, "onesided": None, "length": None, "return_complex": False}


ISTFT_ORDER = [
    inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("input", "n_fft", *ISTFT_DEFAULTS)
]
ISTFT_SIGNATURE = inspect.Signature(
    [
        each.replace(default=Known(ISTFT_DEFAULTS[each.name])) if each.name in ISTFT_DEFAULTS else each
        for each in ISTFT_ORDER
    ]
)


@models(torch._C.TensorBase, "istft")
@function(torch.istft)
def istft(vm: Machine, /, *args: Value, **kwargs: Value) -> Value:
    """Inline `istft_steps` if the arguments are plain. What torch would warn of or refuse ends the graph."""
    try:
        bound = ISTFT_SIGNATURE.bind(*args, **kwargs)
        bound.apply_defaults()
        input, *rest = bound.arguments.values()
        size, hop, width, window, center, normalized, half, length, is_complex = (
            given if issubclass(given.pytype, torch.Tensor) else vm.known(given, "istft") for given in rest
        )
    except (TypeError, AttributeError):
        raise Break("unknown call", name="istft") from None
    hop = size // 4 if hop is None else hop
    width = size if width is None else width
    spectrum, weights = getattr(input, "fake", None), getattr(window, "fake", None)
    if spectrum is None or weights is None or not spectrum.is_complex() or spectrum.dim() not in (2, 3):
        raise Break("unknown call", name="istft")
    bins, frames = spectrum.shape[-2:]
    half = bins != size if half is None else half
    fits = 0 < hop <= width <= size and weights.shape == (width,) and bins == (size // 2 + 1 if half else size)
    there = size + hop * (frames - 1) - (size // 2 if center else 0)
    if not fits or weights.is_complex() or (is_complex and half) or (length is not None and length > there):
        raise Break("unknown call", name="istft")
    given = [Known(each) for each in (size, hop, width)]
    how = [Known(each) for each in (center, normalized, half, length, is_complex)]
    return vm.inline(Known(istft_steps), [input, *given, window, *how], {})


# -- _check and its kin -----------------------------------------------------------------------------------------------
def model_check(fn: Any) -> None:
    """Model a check of a condition; the function that words its error stays outside of the graph."""

    def row(vm: Machine, cond: Value, message: Value = NONE) -> Value:
        if cond.__class__ is Symbol:
            return vm.emit("call_function", fn, [cond], {})
        return vm.inline(Known(fn), [cond, message], {})

    function(fn)(row)


for _check in (
    *(torch._check, torch._check_index, torch._check_value),
    *(torch._check_type, torch._check_not_implemented),
):
    model_check(_check)


BY_ERROR = {
    RuntimeError: torch._check,
    IndexError: torch._check_index,
    ValueError: torch._check_value,
    TypeError: torch._check_type,
    NotImplementedError: torch._check_not_implemented,
}


@function(torch._check_with)
def check_with(vm: Machine, error_type: Value, cond: Value, message: Value = NONE) -> Value:
    fn = BY_ERROR.get(error_type.obj) if error_type.__class__ is Known else None
    if fn is None or cond.__class__ is not Symbol:
        return vm.inline(Known(torch._check_with), [error_type, cond, message], {})
    return vm.call(Known(fn), [cond, message], {})


@function(torch._check_is_size)
def check_is_size(vm: Machine, size: Value, message: Value = NONE, *, max: Value = NONE) -> Value:
    """Check that a number is a size, at most `max`. Deprecated: torch warns where it is called."""
    if size.__class__ is not Symbol:
        return vm.inline(Known(torch._check_is_size), [size, message], {"max": max})
    for cond in (vm.binary(">=", size, Known(0)), *([] if max is NONE else [vm.binary("<=", size, max)])):
        vm.call(Known(torch._check), [cond], {})
    return NONE


@function(torch._assert)
def assert_(vm: Machine, condition: Value, message: Value) -> Value:
    """Model `torch._assert(condition, message)`: a condition on symbols becomes a node, and is a fact from then on."""
    if condition.__class__ is Symbol:
        vm.builder.numbers.learn(condition.fake)
        given = symbols.given(condition), vm.known(message, "message")
        vm.builder.note(torch._assert, given, {}, None, vm.position())
        vm.ops += 1
        return NONE
    return vm.inline(Known(torch._assert), [condition, message], {})


# -- comparing whole tensors ------------------------------------------------------------------------------------------
def model_comparison(fn: Any) -> None:
    def row(vm: Machine, *args: Value, **kwargs: Value) -> Value:
        """Compare two tensors as wholes; the answer is an unknown number of the graph, unless it can be expected."""
        if fn is torch.equal and len(args) == 2 and not kwargs:
            a, b = args
            answer = equality(vm, a, b) if isinstance(a, TensorNode) and isinstance(b, TensorNode) else None
            if answer is not None:
                return answer
        if not vm.builder.numbers.scalars:
            raise Break("data-dependent value", name=fn.__name__)
        if not all(arg.__class__ is TensorNode for arg in args[:2]):
            raise Break("unsupported argument", what=fn.__name__, type=args[0].pytype.__name__)
        return symbols.opaque(vm, fn, list(args), bool, kwargs)

    function(fn)(row)
    models(torch._C.TensorBase, fn.__name__)(row)


model_comparison(torch.equal)
model_comparison(torch.allclose)


# -- torch.Tensor, torch.FloatTensor, ... -----------------------------------------------------------------------------
CPU = Known(torch.device("cpu"))
CLASSES = [each for each in torch._tensor_classes if each.__module__ == "torch"]
HOLDING: dict[type, Any] = {list: torch.tensor, tuple: torch.tensor, range: torch.tensor}


if np is not None:
    HOLDING[np.ndarray] = torch.as_tensor  # shares the array's memory where the dtype is the same


def tensor_maker(cls: Any) -> Model:
    def row(vm: Machine, *args: Value, device: Value = CPU) -> Value:
        """Make a tensor by calling a class: integers are its sizes; one sequence is its contents."""
        options = {"dtype": dtype_of(vm, cls), "device": device}
        kinds = [each.pytype for each in args]
        if torch._C._get_default_device() != "cpu":
            raise Break("unknown call", name=called(cls))
        if all(kind is int for kind in kinds):
            return vm.emit("call_function", OWN.empty, [*args] or [Known(0)], options)
        if len(args) == 1 and kinds[0] is torch.Size:
            return vm.emit("call_function", OWN.empty, [*args], options)
        way = HOLDING.get(kinds[0]) if len(args) == 1 else None
        if way is None:
            raise Break("unknown call", name=called(cls))
        given = FUNCTIONS.get(id(way))
        return given(vm, *args, **options) if given else vm.emit("call_function", way, [*args], options)

    return row


def dtype_of(vm: Machine, cls: Any) -> Value:
    return FUNCTIONS[id(torch.get_default_dtype)](vm) if cls is torch.Tensor else Known(cls.dtype)


@models(torch._C.TensorBase, "type")
def of_type(vm: Machine, self: Value, /, *args: Value, **kwargs: Value) -> Value:
    """Convert a tensor by `type()`: a class of tensors says dtype and device, a dtype keeps the device."""
    cls = args[0].obj if args and args[0].__class__ is Known else None
    if cls in CLASSES and not kwargs:
        return vm.emit("call_method", "to", [self, CPU, Known(cls.dtype), *args[1:]], {})
    return vm.emit("call_method", "type", [self, *args], kwargs)


for _cls in (torch.Tensor, *CLASSES):
    function(_cls)(tensor_maker(_cls))
