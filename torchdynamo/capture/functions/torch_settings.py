"""Process state that programs switch: grad mode, autocast, flags. Set for real while capturing, and in the graph.

Reading it answers at once. What the guard on global state compares needs no guard of its own; any other flag that was
read gets one, which asks again before each call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.accelerator
import torch.amp
import torch.backends.mps
import torch.cuda

from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import FUNCTIONS, ends_graph, function, run_for_real
from torchdynamo.capture.vm.wrap import CONSTANTS
from torchdynamo.core.policy import reads_torch_state
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Pinned, Source
from torchdynamo.core.value import NONE, Known, Value
from torchdynamo.graph.torch_compat import knows_devices

C = torch._C


# setter -> how to read what it sets, from the setter's own arguments
SETTERS: dict[Any, Callable[..., tuple[Any, ...]]] = {
    C._set_grad_enabled: lambda enabled: (torch.is_grad_enabled(),),
    torch.set_autocast_enabled: lambda device, enabled: (device, torch.is_autocast_enabled(device)),
    torch.set_autocast_dtype: lambda device, dtype: (device, torch.get_autocast_dtype(device)),
    torch.set_autocast_cache_enabled: lambda enabled: (torch.is_autocast_cache_enabled(),),
    C._set_fp32_precision_setter: lambda backend, op, _: (backend, op, C._get_fp32_precision_getter(backend, op)),
}


# Flags of one value that choose among kernels: setter -> getter, by name, since not every torch has all of them.
FLAG_NAMES = {
    "_set_sdp_use_flash": "_get_flash_sdp_enabled",
    "_set_sdp_use_mem_efficient": "_get_mem_efficient_sdp_enabled",
    "_set_sdp_use_math": "_get_math_sdp_enabled",
    "_set_sdp_use_cudnn": "_get_cudnn_sdp_enabled",
    "_set_sdp_use_overrideable": "_get_overrideable_sdp_enabled",
    "_set_cudnn_enabled": "_get_cudnn_enabled",
    "_set_cudnn_benchmark": "_get_cudnn_benchmark",
    "_cuda_set_cudnn_benchmark_limit": "_cuda_get_cudnn_benchmark_limit",
    "_set_cudnn_deterministic": "_get_cudnn_deterministic",
    "_set_cudnn_allow_tf32": "_get_cudnn_allow_tf32",
    "_set_cudnn_depthwise_kernel": "_get_cudnn_depthwise_kernel",
    "_set_mkldnn_enabled": "_get_mkldnn_enabled",
    "_set_mkldnn_deterministic": "_get_mkldnn_deterministic",
    "_set_onednn_allow_tf32": "_get_onednn_allow_tf32",
    "_set_cublas_allow_tf32": "_get_cublas_allow_tf32",
}
FLAGS: dict[Any, Callable[[], Any]] = {
    getattr(C, setter): getattr(C, getter) for setter, getter in FLAG_NAMES.items() if hasattr(C, setter)
}


def one_flag(read: Callable[[], Any]) -> Callable[..., tuple[Any, ...]]:
    return lambda value: (read(),)


SETTERS.update({fn: one_flag(read) for fn, read in FLAGS.items()})


def model_setter(fn: Any, read: Callable[..., tuple[Any, ...]]) -> None:
    """Model a function that sets process state; `read` returns, from its arguments, those that set it back."""

    def row(vm: Machine, *args: Value) -> Value:
        real = [vm.concretely(arg) for arg in args]
        before = read(*real)
        if before[-1] is None:  # never set yet: there would be no way back
            raise Break("builtin with effects", name=fn.__name__)
        try:
            vm.state_node(fn, tuple(real))
        except (TypeError, ValueError, RuntimeError) as error:
            raise vm.refused(error) from None
        vm.effects.switch((fn, before[:-1]), before, tuple(real), lambda: fn(*before))
        return NONE

    function(fn)(row)


for _fn, _read in SETTERS.items():
    model_setter(_fn, _read)


@function(torch.autocast_increment_nesting)
def increment_nesting(vm: Machine) -> Value:
    return step_nesting(vm, torch.autocast_increment_nesting, torch.autocast_decrement_nesting, 1)


@function(torch.autocast_decrement_nesting)
def decrement_nesting(vm: Machine) -> Value:
    return step_nesting(vm, torch.autocast_decrement_nesting, torch.autocast_increment_nesting, -1)


def step_nesting(vm: Machine, step: Callable[[], int], back: Callable[[], int], by: int) -> Value:
    """Step a level of autocast in or out. A frame left inside of a block that it entered steps for real."""
    depth = step()
    if not vm.effects.switch_back((back, depth - by)):
        vm.effects.switch((step, depth), ("not yet",), (), back)
    return Known(depth)


@function(torch.clear_autocast_cache)
def clear_autocast_cache(vm: Machine) -> Value:
    """Clear the cache as a node of the graph: it holds parameters as they were when first cast."""
    vm.state_node(torch.clear_autocast_cache, ())
    return NONE


@function(C._log_api_usage_once)
def ignore_log(vm: Machine, *args: Value) -> Value:
    """Ignore a note in torch's log, which is not the program's."""
    return NONE


# State that outlives the call, or that stand-ins cannot have: switched between graphs, for real.
OUTSIDE = (
    *(torch.set_default_dtype, torch.set_default_device, torch.seed, torch.initial_seed),
    *(torch.use_deterministic_algorithms, torch.set_num_threads),
)


for _fn in OUTSIDE:
    function(_fn)(ends_graph("builtin with effects", name=f"torch.{_fn.__name__}"))


# -- reading ----------------------------------------------------------------------------------------------------------
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


def model_reader(fn: Any) -> None:
    """Model a function that reads process state: the answer is a constant, guarded unless other guards compare it."""
    lasting = fn.__name__ in COMPARED or fn.__name__.startswith(BUILT)

    def row(vm: Machine, /, *args: Value, **kwargs: Value) -> Value:
        if vm.grad_mode_unknown and fn is torch.is_grad_enabled:
            raise Break("unknown call", name=fn.__name__)
        answer = vm.run_pure(fn, list(args), dict(kwargs))
        given = tuple(vm.concretely(arg) for arg in args)
        if vm.backwards and fn.__name__ in COMPARED:
            rests = is_read_later(vm, fn)
        else:
            rests = not (lasting and is_guarded_anyway(fn, given))
        if rests and not was_set_by_frame(vm, fn, given):
            read = answer.obj if answer.__class__ is Known else vm
            if type(read) not in CONSTANTS or kwargs:
                raise Break("unknown call", name=fn.__name__)
            vm.guard(Source("call", Source("pinned", None, Pinned(fn)), given), "EQUALS_MATCH", read)
        return answer

    function(fn)(row)


# Of these, what a program may switch between a forward and its backward; for the grad mode, there are two backwards.
SWITCHED_LATER = ("is_autocast", "get_autocast", "_is_any_autocast", "get_default_dtype", "is_inference_mode")
ENTER = torch.autocast.__enter__.__code__


def is_read_later(vm: Machine, fn: Any) -> bool:
    """Return whether a backward rests on the state that it reads; `autocast` itself reads what it will put back."""
    if not fn.__name__.startswith(SWITCHED_LATER):
        return False
    frame = vm.frames[-1]
    own = frame.globals.real is vars(torch.amp.autocast_mode)
    return not own or (fn is torch.get_autocast_dtype and frame.code.code is not ENTER)


def is_guarded_anyway(fn: Any, given: tuple[Any, ...]) -> bool:
    """Return whether the guard on global state compares this answer: dtypes of autocast for usual devices only."""
    return fn is not torch.get_autocast_dtype or given in USUAL_DEVICES


USUAL_DEVICES = (("cpu",), ("cuda",))


def was_set_by_frame(vm: Machine, fn: Any, given: tuple[Any, ...]) -> bool:
    """Return whether the frame itself has set the flag: then its value at entry does not matter."""
    if fn is torch.get_autocast_dtype:
        return vm.effects.was_switched(torch.set_autocast_dtype, given)
    return vm.effects.was_switched(SWITCHED.get(id(fn)))


for _space in (torch._C, torch):
    for _fn in list(vars(_space).values()):
        if reads_torch_state(_fn) and id(_fn) not in FUNCTIONS:
            model_reader(_fn)


# -- facts of the machine and the build -------------------------------------------------------------------------------
run_for_real(
    *(torch.backends.cuda.is_built, torch.backends.mkldnn.is_available, torch.backends.cudnn.is_available),
    *(torch._C._infer_size,),  # of two shapes
    *(torch.backends.openmp.is_available, torch.distributed.is_available, torch.cuda._is_compiled),
    torch.backends.mps.is_built,
)


def model_device(fn: Any) -> None:
    """Answer what there is of a device: once for a process, but not for a build of torch."""

    def row(vm: Machine, /, *args: Value, **kwargs: Value) -> Value:
        if knows_devices():
            vm.of_process["which devices there are"] = None
        return vm.run_pure(fn, list(args), dict(kwargs))

    function(fn)(row)


for _fn in (
    *(torch.cuda.is_available, torch.cuda.device_count, torch.cuda.is_bf16_supported),
    *(torch.cuda.get_device_capability, torch.cuda.get_device_name, torch.cuda.get_arch_list),
    *(torch.xpu.is_available, torch.xpu.device_count, torch.backends.mps.is_available),
    *(torch.accelerator.current_accelerator, torch.accelerator.device_count, torch.accelerator.is_available),
):
    model_device(_fn)
