"""Forward-mode differentiation, as `torch.func.jvp`, `jacfwd` and `hessian` use it: inside of a layer of torch.func."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad

from torchdynamo.capture.functions.functorch import in_a_layer, layer
from torchdynamo.capture.functions.torch_state import setter
from torchdynamo.capture.vm.model import function
from torchdynamo.core.signals import Break
from torchdynamo.core.value import NONE, Known, Value

try:
    from torch._functorch import predispatch
except ImportError:  # not every torch has something round the C functions
    WRAPPED: Any = forward_ad
else:
    WRAPPED = predispatch

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

C = torch._C
layer("jvp")
setter(C._set_fwd_grad_enabled, lambda enabled: (C._is_fwd_grad_enabled(),))


def known_as(name: str) -> list[Any]:
    """The C function of this name, and what torch's Python wraps it in."""
    found = [getattr(space, name, None) for space in (C, torch._VF, WRAPPED)]
    return [fn for fn in found if fn is not None]


@function(*known_as("_enter_dual_level"))
def enter_level(vm: Machine) -> Value:
    """What a break leaves open is closed when capture ends."""
    in_a_layer("_enter_dual_level")
    _, level = vm.state_node(C._enter_dual_level, ())
    vm.effects.open_layer(("dual level", level), lambda: C._exit_dual_level(level=level))
    return Known(level)


@function(*known_as("_exit_dual_level"))
def exit_level(vm: Machine, *, level: Value) -> Value:
    number = vm.known(level, "level")
    if number not in vm.effects.layers("dual level"):  # it was open when the frame began
        raise Break("unknown call", name="_exit_dual_level")
    vm.state_node(exit_dual_level, (number,))
    vm.effects.close_layer(("dual level", number))
    return NONE


def exit_dual_level(level: int) -> None:
    """The C function takes its argument by name only."""
    C._exit_dual_level(level=level)


def operator(name: str) -> Callable[..., Value]:
    """A C function of tensors that is a node like any other."""
    fn = getattr(torch._VF, name)

    def row(vm: Machine, *args: Value, **kwargs: Value) -> Value:
        return vm.emit("call_function", fn, list(args), kwargs)

    return row


for _name in ("_make_dual", "_unpack_dual"):
    function(*known_as(_name))(operator(_name))


@function(forward_ad._maybe_load_decompositions)
def load_decompositions(vm: Machine) -> Value:
    """Registers rules, once in a process: what it does does not depend on the program."""
    forward_ad._maybe_load_decompositions()
    return NONE
