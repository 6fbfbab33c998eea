"""Looking at the process's flags: the answer is a constant, and asked again before each call if it can change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from torchdynamo.capture.functions.torch_state import FLAGS
from torchdynamo.capture.vm.model import FUNCTIONS, function
from torchdynamo.capture.vm.wrap import CONSTANTS
from torchdynamo.core.policy import reads_torch_state
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Pinned, Source
from torchdynamo.core.value import Known, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

# What the guard on global state compares anyway.
COMPARED = frozenset(
    "is_grad_enabled is_inference_mode_enabled is_autocast_enabled is_autocast_cpu_enabled is_autocast_cache_enabled "
    "get_autocast_dtype get_autocast_cpu_dtype get_autocast_gpu_dtype _is_any_autocast_enabled get_default_dtype "
    "_is_torch_function_enabled _is_torch_function_all_disabled _is_torch_function_mode_enabled "
    "_len_torch_function_stack _len_torch_dispatch_stack _are_functorch_transforms_active".split()
)
# What was decided when torch was built, or is so on this machine.
BUILT = (
    *("has_", "_has_", "_is_autocast_available", "_get_cpu_capability", "_is_flash_attention_available"),
    "_get_privateuse1_backend_name",
)
SWITCHED = {id(getter): setter for setter, getter in FLAGS.items()}


def reader(fn: Any) -> None:
    lasting = fn.__name__ in COMPARED or fn.__name__.startswith(BUILT)

    def row(vm: Machine, /, *args: Value, **kwargs: Value) -> Value:
        if vm.grad_mode_unknown and fn is torch.is_grad_enabled:
            raise Break("unknown call", name=fn.__name__)
        answer = vm.run_pure(fn, list(args), dict(kwargs))
        given = tuple(vm.concretely(arg) for arg in args)
        if not (lasting and is_compared(fn, given)) and not switched(vm, fn, given):
            read = answer.obj if answer.__class__ is Known else vm
            if type(read) not in CONSTANTS or kwargs:
                raise Break("unknown call", name=fn.__name__)
            vm.guard(Source("call", Source("pinned", None, Pinned(fn)), given), "EQUALS_MATCH", read)
        return answer

    function(fn)(row)


def is_compared(fn: Any, given: tuple[Any, ...]) -> bool:
    """Dtypes of autocast are compared of the usual devices only."""
    return fn is not torch.get_autocast_dtype or given in USUAL


USUAL = (("cpu",), ("cuda",))


def switched(vm: Machine, fn: Any, given: tuple[Any, ...]) -> bool:
    """Whether the frame itself has set the flag: then what it was at entry does not matter."""
    if fn is torch.get_autocast_dtype:
        return vm.effects.was_switched(torch.set_autocast_dtype, given)
    return vm.effects.was_switched(SWITCHED.get(id(fn)))


for _space in (torch._C, torch):
    for _fn in list(vars(_space).values()):
        if reads_torch_state(_fn) and id(_fn) not in FUNCTIONS:
            reader(_fn)
