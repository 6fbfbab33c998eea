"""torch.func: vmap, grad and their kin are Python over layers that are opened and closed; the graph does the same.

Each operator inside runs on stand-ins wrapped for its layer, and the graph holds the wrapping as nodes, so that what
runs later meets the layers where capture met them. Capture begins with no layer open (global state is guarded), hence
the numbers of the layers are constants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.func
from torch._functorch import eager_transforms, vmap
from torch.autograd import forward_ad

from torchdynamo.capture.functions.torch_settings import model_setter
from torchdynamo.capture.torch.symbols import unknown
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import function
from torchdynamo.core.signals import Break
from torchdynamo.core.value import NONE, Known, Symbol, TensorNode, Value, boolean

try:
    from torch._functorch import predispatch
except ImportError:  # not every torch has something round the C functions
    WRAPPED: Any = forward_ad
else:
    WRAPPED = predispatch

C = torch._C._functorch
LAYERS = (C, vmap, eager_transforms)  # where the functions of layers are, in C and as torch's Python wraps them
FORWARD = (torch._VF, torch._C, WRAPPED)  # and those of forward mode


def named(name: str, spaces: tuple[Any, ...] = LAYERS) -> list[Any]:
    """Return the functions of this name: that in C, and those that torch's Python wraps it in."""
    found = [getattr(space, name, None) for space in spaces]
    return [fn for fn in found if fn is not None]


def model_layer(kind: str) -> None:
    """Model the functions that open and close a layer. One that a graph break leaves open is closed at the end."""
    opener, closer = getattr(C, f"_{kind}_increment_nesting"), getattr(C, f"_{kind}_decrement_nesting")

    def enter(vm: Machine, *args: Value) -> Value:
        _, level = vm.state_node(opener, tuple(layer_argument(vm, arg) for arg in args))
        vm.effects.open_layer(("layer", level), closer)
        return Known(level)

    def leave(vm: Machine) -> Value:
        if not vm.effects.layers("layer"):  # it was open when the frame began
            raise Break("unknown call", name=closer.__name__)
        _, level = vm.state_node(closer, ())
        vm.effects.close_layer(("layer", level))
        return Known(level)

    function(*named(opener.__name__))(enter)
    function(*named(closer.__name__))(leave)


def layer_argument(vm: Machine, arg: Value) -> Any:
    """Return an argument with which a layer is opened, as a constant or, for sizes that vary, a node."""
    return arg.node if isinstance(arg, Symbol) and not unknown(vm, arg) else vm.concretely(arg)


for _kind in ("vmap", "grad"):
    model_layer(_kind)


def model_operator(name: str, spaces: tuple[Any, ...] = LAYERS) -> None:
    """Model a C function of tensors, which is a node like any other."""
    fn = getattr(spaces[0], name)

    def row(vm: Machine, *args: Value, **kwargs: Value) -> Value:
        return vm.emit("call_function", fn, list(args), kwargs)

    function(*named(name, spaces))(row)


for _name in ("_remove_batch_dim", "_wrap_for_grad", "_unwrap_for_grad"):
    model_operator(_name)


@function(*named("_add_batch_dim"))
def add_batch_dim(vm: Machine, tensor: Value, dim: Value, level: Value) -> Value:
    """Wrap a tensor in a layer of vmap; the dimension is counted from the front."""
    at = vm.known(dim, "dim")
    if at < 0:
        at += vm.known(vm.getattr(tensor, "ndim"), "ndim")
    return vm.emit("call_function", C._add_batch_dim, [tensor, Known(at), level], {})


def model_predicate(name: str) -> None:
    """Model a question about a tensor's layers, which its fake tensor answers; other values have none."""
    fn = getattr(C, name)

    def row(vm: Machine, value: Value, *args: Value) -> Value:
        if value.__class__ is not TensorNode:
            return boolean(False)
        return Known(fn(value.fake, *(vm.concretely(arg) for arg in args)))

    function(fn)(row)


for _name in ("is_batchedtensor", "is_gradtrackingtensor", "is_functorch_wrapped_tensor", "is_dead_tensor_wrapper"):
    if hasattr(C, _name):
        model_predicate(_name)


@function(C.unwrap_if_dead)
def unwrap_if_dead(vm: Machine, tensor: Value) -> Value:
    if tensor.__class__ is TensorNode and C.is_functorch_wrapped_tensor(tensor.fake):
        return vm.emit("call_function", C.unwrap_if_dead, [tensor], {})
    return tensor


def model_loading(fn: Callable[[], None]) -> None:
    """Model a function that registers rules with the dispatcher, once in a process, whatever the program is."""

    def row(vm: Machine) -> Value:
        fn()
        return NONE

    function(fn)(row)


model_loading(vmap.lazy_load_decompositions)  # type: ignore[attr-defined]
model_loading(forward_ad._maybe_load_decompositions)


# -- state that goes with the layers ----------------------------------------------------------------------------------
@function(C.get_inplace_requires_grad_allowed)
def inplace_allowed(vm: Machine) -> Value:
    """Return whether `requires_grad_` is allowed in the innermost layer."""
    require_layer("requires_grad_")
    return Known(C.get_inplace_requires_grad_allowed())


@function(C.set_inplace_requires_grad_allowed)
def allow_inplace(vm: Machine, allowed: Value) -> Value:
    """Allow `requires_grad_` in the innermost layer, or forbid it; that goes with the layer."""
    require_layer("requires_grad_")
    vm.state_node(C.set_inplace_requires_grad_allowed, (vm.concretely(allowed),))
    return NONE


def require_layer(name: str) -> None:
    """Raise Break outside of all layers."""
    if not torch._C._are_functorch_transforms_active():
        raise Break("unknown call", name=name)


@function(torch._C._autograd._saved_tensors_hooks_get_disabled_error_message)
def hooks_disabled(vm: Machine) -> Value:
    return Known(torch._C._autograd._saved_tensors_hooks_get_disabled_error_message())


@function(torch._C._autograd._saved_tensors_hooks_disable, torch._C._autograd._saved_tensors_hooks_enable)
def switch_hooks(vm: Machine, *message: Value) -> Value:
    """Ignore the switch that forbids hooks of saved tensors: capture would end the graph at such a hook anyway."""
    return NONE


# -- forward mode, as jvp, jacfwd and hessian use it ------------------------------------------------------------------
model_layer("jvp")
model_setter(torch._C._set_fwd_grad_enabled, lambda enabled: (torch._C._is_fwd_grad_enabled(),))


@function(*named("_enter_dual_level", FORWARD))
def enter_level(vm: Machine) -> Value:
    """Enter a level of forward mode. One that a graph break leaves open is closed at the end."""
    require_layer("_enter_dual_level")
    _, level = vm.state_node(torch._C._enter_dual_level, ())
    vm.effects.open_layer(("dual level", level), lambda: torch._C._exit_dual_level(level=level))
    return Known(level)


@function(*named("_exit_dual_level", FORWARD))
def exit_level(vm: Machine, *, level: Value) -> Value:
    number = vm.known(level, "level")
    if number not in vm.effects.layers("dual level"):  # it was open when the frame began
        raise Break("unknown call", name="_exit_dual_level")
    vm.state_node(exit_dual_level, (number,))
    vm.effects.close_layer(("dual level", number))
    return NONE


def exit_dual_level(level: int) -> None:
    """Leave a level of forward mode. The C function takes its argument by name only."""
    torch._C._exit_dual_level(level=level)


for _name in ("_make_dual", "_unpack_dual"):
    model_operator(_name, FORWARD)
