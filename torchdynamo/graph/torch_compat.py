"""Facts about versions of torch, and the slow imports of torch's internals.

Making a FakeTensorMode imports a large part of torch (1.5 s), so nothing here is imported before it is needed.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import operator
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
import torch._guards
import torch.fx
import torch.utils.checkpoint

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode

TorchSource = torch._guards.Source
ErrorTypes = tuple[type[Exception], ...]
# Raised by a checkpoint to leave a function that it recomputes, once it has what it needs: no failure.
STOP_RECOMPUTING: type[Exception] = torch.utils.checkpoint._StopRecomputationError
# Before 2.13, Inductor's `frac` keeps the sign of zero, its `asinh` overflows for large numbers, and `gather` and
# `embedding` count negative indices from the end.
INDUCTOR_HAS_OLD_EDGES = bool(torch.__version__ < "2.13")
# Before 2.13, the backwards of a body that is called several times are not told apart.
BODIES_HAVE_BACKWARDS = bool(torch.__version__ >= "2.13")
# Launches kernels of which there is a binary; None in builds of torch for other GPUs than NVIDIA's.
KERNEL_LAUNCHER: Any = None if torch.version.hip else getattr(torch._C, "_StaticCudaLauncher", None)
# Before 2.14, `torch.autograd.Function.apply` is a function in Python.
APPLY_IN_PYTHON: tuple[FunctionType, ...] = tuple(
    filter(None, [getattr(torch.autograd.Function.apply, "__func__", None)])
)


def build() -> str:
    """Return what tells the builds of torch apart."""
    found = torch.version
    return f"{torch.__version__} {found.git_version} {found.cuda} {found.hip} {found.debug}"


def knows_devices() -> bool:
    """Return whether this build of torch knows other devices than the CPU."""
    return any(getattr(torch.version, name, None) for name in ("cuda", "hip", "xpu")) or torch.backends.mps.is_built()


def changed_settings(settings: Any) -> str:
    """Return those settings of a module of torch's settings that differ from their defaults."""
    set_once = {name: entry.default for name, entry in settings._config.items() if not settings._is_default(name)}
    found = ((name, default, getattr(settings, name)) for name, default in set_once.items())
    return repr(
        sorted((name, repr(value)) for name, default, value in found if value is not default and value != default)
    )


def compile_id(number: int, version: int) -> contextlib.AbstractContextManager[object]:
    """Return a context in which torch names what is compiled `[number/version]` in its logs, traces and folders."""
    compile_id = torch._guards.CompileId(frame_id=number, frame_compile_id=version)
    return torch._guards.compile_context(torch._guards.CompileContext(compile_id))


def static_fake(mode: FakeTensorMode, tensor: torch.Tensor) -> torch.Tensor:
    """Return a fake tensor of constant sizes for a tensor."""
    with torch._C._DisableFuncTorch():
        return mode.from_tensor(tensor, static_shapes=True, trace=False)


# Functions that raise if sizes do not fit. Most operators accept any two sizes of which one is 1.
_CHECKS = {torch._check, torch._check_index, torch._check_value, torch._check_type, torch._check_not_implemented}
_SHAPING = (
    "view",
    "reshape",
    "unflatten",
    "matmul",
    "mm",
    "bmm",
    "linear",
    "split",
    "narrow",
    "index_select",
    "select",
    "pad",
    "topk",
    # these require that sizes are not negative
    *("zeros", "ones", "full", "empty", "rand", "randn", "randint", "randperm", "eye", "arange", "repeat"),
    *("new_zeros", "new_ones", "new_full", "new_empty"),
)


def raises_if_wrong(target: Any, args: tuple[Any, ...]) -> bool:
    """Return whether an operation raises if its assumptions about sizes are wrong."""
    if target is operator.getitem:  # slices have a known size; several index tensors are broadcast
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        return sum(isinstance(each, (torch.fx.Node, list)) for each in index) < 2
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    return target in _CHECKS or name in _SHAPING


def takes_symbols(fn: Any) -> Any:
    """Return a function equivalent to `fn` that accepts symbols, where `fn` would ask for their values."""
    if fn is not torch.tensor and fn is not torch.as_tensor:
        return fn
    from torch._refs import tensor

    return tensor


def forget_contents(fakes: Iterable[Any]) -> None:
    """Make torch forget the contents of constant fake tensors: with symbols it cannot compute with them."""
    for fake in fakes:
        if getattr(fake, "constant", None) is not None:
            fake.constant = None


def is_printed_wrongly(base: Any) -> bool:
    """Return whether torch.fx would print a power of this number wrongly: `-1 ** x` is `-(1 ** x)` in Python."""
    return type(base) in (int, float) and math.copysign(1, base) < 0


def is_printed_as_another(number: complex) -> bool:
    """Return whether the Python that torch.fx prints of a complex number is another, or is none: `-0j`, `nanj`."""
    parts = number.real, number.imag
    return not all(map(math.isfinite, parts)) or any(part == 0 and math.copysign(1, part) < 0 for part in parts)


@cache
def fake_tensor_type() -> type[torch.Tensor]:
    """Return the class of fake tensors."""
    from torch._subclasses.fake_tensor import FakeTensor

    return FakeTensor


def in_transform() -> bool:
    """Return whether a torch.func transform or forward-mode differentiation is active."""
    return torch._C._functorch.peek_interpreter_stack() is not None or torch.autograd.forward_ad._current_level >= 0


# Attributes of every fake tensor; all others are None unless a value was read from it or is known.
_STANDING = frozenset({"_fake_device", "fake_device", "fake_mode", "_is_param"})


def is_only_metadata(fake: torch.Tensor) -> bool:
    """Return whether a fake tensor consists of metadata alone."""
    return all(value is None or name in _STANDING for name, value in vars(fake).items())


def state_of(fake: torch.Tensor) -> dict[str, Any]:
    """Return the attributes of a fake tensor as a Python object."""
    return dict(vars(fake))


def make_fake(
    state: dict[str, Any],
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
    dtype: torch.dtype,
    device: torch.device,
    requires_grad: bool,
    memory: torch.UntypedStorage | None,
) -> torch.Tensor:
    """Make a fake tensor, a leaf with these attributes, as its constructor does but without its checks."""
    inner = torch.empty_strided(sizes, strides, dtype=dtype, device="meta")
    if memory is not None:
        inner.set_(memory, offset, sizes, strides)
    fake = torch.Tensor._make_subclass(
        fake_tensor_type(), inner, requires_grad, dispatch_device=True, device_for_backend_keys=device
    )
    torch._C._set_throw_on_mutable_data_ptr(fake)
    vars(fake).update(state)
    return fake


def has_usual_gradient(tensor: torch.Tensor) -> bool:
    """Return whether a leaf's gradient has the leaf's own dtype."""
    return not tensor.requires_grad or getattr(tensor, "grad_dtype", tensor.dtype) is tensor.dtype


def introduce(mode: FakeTensorMode, tensor: torch.Tensor, fake: Any) -> None:
    """Register a tensor's fake tensor and storage with a fake mode, so that its views become views of the fake."""
    known = mode.fake_tensor_converter.meta_converter
    known.tensor_memo[known.describer.get_tensor_id(tensor)] = fake
    known.storage_memo[known.describer.get_storage_id(tensor.untyped_storage())] = fake.untyped_storage()


def remember_fake(mode: FakeTensorMode, tensor: torch.Tensor, fake: Any) -> None:
    """Register a tensor's fake tensor with a fake mode, for tracers that use it."""
    mode.fake_tensor_converter.set_tensor_memo(tensor, fake)


def is_tracing() -> bool:
    """Return whether torch.fx or torch.jit is tracing."""
    by_fx: Any = sys.modules[torch.fx.Tracer.__module__]
    ask = getattr(by_fx, "_get_is_fx_tracing", None)  # since 2.14, when each thread got a flag of its own
    return bool(by_fx._is_fx_tracing_flag if ask is None else ask()) or torch._C._get_tracing_state() is not None


def forget_tensors(mode: FakeTensorMode) -> None:
    """Clear a fake mode's tables of real tensors.

    Their weak references would break `torch.utils.swap_tensors`, and so `module.to()`, while a fake tensor lives.
    """
    describer = mode.fake_tensor_converter.meta_converter.describer
    describer.lookup_tensor.data.clear()
    describer.lookup_storage.data.clear()


def data_dependent_errors() -> ErrorTypes:
    """Return the exceptions raised when Python asks for a value of a fake tensor."""
    from torch._subclasses.fake_tensor import DataDependentOutputException
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    return DataDependentOutputException, GuardOnDataDependentSymNode


def dynamic_shape_errors() -> ErrorTypes:
    """Return the exceptions raised when a shape depends on the contents of a tensor."""
    from torch._subclasses.fake_tensor import DynamicOutputShapeException

    return (DynamicOutputShapeException,)


def unsupported_errors() -> ErrorTypes:
    """Return the exceptions raised for operators without a rule for fake tensors.

    A missing Meta kernel raises NotImplementedError.
    """
    from torch._subclasses.fake_tensor import (
        UnsupportedFakeTensorException,
        UnsupportedOperatorException,
    )

    return UnsupportedOperatorException, UnsupportedFakeTensorException, NotImplementedError


_NO_FAKE_KERNEL = re.compile(r"no fake impl registered for <CustomOpDef\(([\w.]+::[\w.]+)\)>")


def without_fake_kernel(raised: Exception) -> str | None:
    """Return the name of the custom operator whose missing fake kernel raised an error; None if that is not why."""
    from torch._subclasses.fake_tensor import UnsupportedOperatorException

    if isinstance(raised, UnsupportedOperatorException):
        operator = raised.func
        return None if operator.namespace in ("aten", "prims") else operator._schema.name
    found = _NO_FAKE_KERNEL.search(str(raised)) if isinstance(raised, RuntimeError) else None
    return found and found[1]


def internal_errors() -> ErrorTypes:
    """Return the exceptions that fake tensors raise about themselves."""
    from torch._subclasses.fake_tensor import (
        MetadataMismatchError,
        UnsupportedMutationAliasingException,
    )

    return MetadataMismatchError, UnsupportedMutationAliasingException


# Methods that read a tensor's memory. A fake tensor has none, but some of these would return something.
MEMORY_METHODS = frozenset(
    {"data_ptr", "const_data_ptr", "mutable_data_ptr", "storage", "untyped_storage", "_typed_storage", "numpy"}
    | {"__array__", "__dlpack__", "share_memory_", "is_shared", "pin_memory", "is_pinned", "is_set_to"}
)

# Functions that change how later operations run in this thread. A trace of operators alone would lose them.
MODE_CHANGES = frozenset(
    {torch._C._set_grad_enabled, torch.amp.autocast_mode._enter_autocast, torch.amp.autocast_mode._exit_autocast}
    | {torch.autograd.grad_mode._enter_inference_mode, torch.autograd.grad_mode._exit_inference_mode}
    | {torch.set_autocast_enabled, torch.set_autocast_dtype, torch.set_autocast_cache_enabled}
)

# Functions that enter and leave torch.func transforms.
OPENERS, CLOSERS = (
    frozenset(getattr(torch._C._functorch, f"_{kind}_{way}_nesting") for kind in ("vmap", "grad", "jvp"))
    for way in ("increment", "decrement")
)


def close_layers(depth: int) -> None:
    """Leave torch.func transforms until only `depth` are active, as their own code would have done."""
    functorch = torch._C._functorch
    kinds = functorch.TransformType
    closers = {
        kinds.Vmap: functorch._vmap_decrement_nesting,
        kinds.Grad: functorch._grad_decrement_nesting,
        kinds.Jvp: functorch._jvp_decrement_nesting,
    }
    while count_layers() > depth:
        kind = functorch.peek_interpreter_stack().key()
        if kind == kinds.Jvp:
            with contextlib.suppress(RuntimeError):  # raised if no level is active
                torch._C._exit_dual_level(level=0)
        closers[kind]()


def count_layers() -> int:
    """Return how many torch.func transforms are active."""
    return torch._C._functorch.get_dynamic_layer_stack_depth()


# Operations that make autograd leaves, or compute gradients.
GRADIENTS = inspect.unwrap(torch.autograd.grad)
LEAF_MAKERS = frozenset({"requires_grad_", "detach_", setattr, torch.nn.Parameter, GRADIENTS})


def is_layered(value: Any) -> bool:
    """Return whether there are tensors wrapped by a torch.func transform among these values; nodes count as their
    examples.
    """
    if isinstance(value, torch.fx.Node):
        return is_layered(value.meta.get("example_value"))
    if isinstance(value, (tuple, list)):
        return any(map(is_layered, value))
    return isinstance(value, torch.Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(value)


# Parts of messages that only tensors without memory raise; eager would not have raised these.
_NO_MEMORY = (
    "doesn't have storage",
    "data is not allocated yet",
    "Cannot copy out of meta tensor",
    "data pointer of Tensor",
    "fake tensor",
    "FakeTensor",
    "meta tensor",
    "Meta backend",
    "invalid python storage",
)


def is_fake_limitation(raised: Exception) -> bool:
    """Return whether an error is about a fake tensor's missing memory rather than about arguments."""
    text = str(raised)
    return isinstance(raised, RuntimeError) and any(part in text for part in _NO_MEMORY)


def name_hint(graph: torch.fx.Graph, target: Any) -> str:
    """Return the base of the names that torch.fx gives nodes of this target."""
    return graph._target_to_str(target)


@contextlib.contextmanager
def without_saved_tensor_hooks() -> Iterator[None]:
    """Disable hooks on saved tensors inside of the block: they are the user's and must not see fake tensors."""
    hooks = []
    while (top := torch._C._autograd._top_saved_tensors_default_hooks(False)) is not None:
        hooks.append(top)
        torch._C._autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pack, unpack in reversed(hooks):
            torch._C._autograd._push_saved_tensors_default_hooks(pack, unpack)


def has_fakes(values: Iterable[Any]) -> bool:
    """Return whether any of these values is a fake tensor."""
    fake = fake_tensor_type()
    return any(isinstance(value, fake) for value in values)


def take_inputs_in_a_list(gm: torch.fx.GraphModule) -> Callable[..., Any]:
    """Return the graph as a function of one list, which it empties so that inputs are freed early."""
    from torch.fx.graph import _BoxedCodeGen

    gm.graph.set_codegen(_BoxedCodeGen())
    gm.recompile()
    return gm.forward


def mark_graph(gm: torch.fx.GraphModule) -> None:
    """Tell AOTAutograd and Inductor that placeholders have sources and marks of static inputs."""
    gm.meta["dynamo_compile_id"] = None
    gm._param_name_to_source = {}  # type: ignore[assignment]


def mark_placeholder(node: torch.fx.Node, source: TorchSource, static: bool) -> None:
    """Mark one input of such a graph with its source, and as static or not."""
    node._dynamo_source = source
    node.meta["tensor_dict"] = {"_dynamo_static_input_type": "unguarded"} if static else {}
