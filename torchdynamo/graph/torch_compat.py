"""Everything that is a fact about one torch version or another, and the slow imports of torch's own parts.

Making a FakeTensorMode imports a good deal of torch (1.5 s), so nothing here is imported before it is needed.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import operator
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import torch._guards
import torch.fx
import torch.utils.checkpoint

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import StatefulSymbolicContext

TorchSource = torch._guards.Source
ErrorTypes = tuple[type[Exception], ...]
# How a checkpoint that runs a function again leaves it, once it has what it wants: no failure, wherever it comes from.
STOP_RECOMPUTING: type[Exception] = torch.utils.checkpoint._StopRecomputationError
# Until 2.13, Inductor gives `frac` the sign of its argument's zero and an infinite `asinh` of large numbers, and
# counts negative indices of `gather` and `embedding` from the end.
INDUCTOR_HAS_OLD_EDGES = bool(torch.__version__ < "2.13")


def static_fake(mode: FakeTensorMode, tensor: torch.Tensor) -> torch.Tensor:
    """Return a fake tensor for a tensor whose sizes are fixed."""
    with torch._C._DisableFuncTorch():
        return mode.from_tensor(tensor, static_shapes=True, trace=False)


# What raises where sizes do not fit. Most operators go on if one of two sizes is 1.
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
    # of these, that sizes are not negative
    *("zeros", "ones", "full", "empty", "rand", "randn", "randint", "randperm", "eye", "arange", "repeat"),
    *("new_zeros", "new_ones", "new_full", "new_empty"),
)


def insists(target: Any, args: tuple[Any, ...]) -> bool:
    """Return whether what the operation takes for granted of sizes is so, or it raises itself."""
    if target is operator.getitem:  # slices know their sizes; several tensors as indices are broadcast
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        return sum(isinstance(each, (torch.fx.Node, list)) for each in index) < 2
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    return target in _CHECKS or name in _SHAPING


def takes_symbols(fn: Any) -> Any:
    """Return a function that does the same and takes torch's symbolic numbers, which `fn` would ask for their
    values.
    """
    if fn is not torch.tensor and fn is not torch.as_tensor:
        return fn
    from torch._refs import tensor

    return tensor


def forget_contents(fakes: Iterable[Any]) -> None:
    """Forget the contents of fake tensors made of constants, which torch would compute with: with symbols it cannot."""
    for fake in fakes:
        if getattr(fake, "constant", None) is not None:
            fake.constant = None


def is_misprinted(base: Any) -> bool:
    """Return whether torch.fx would write `-1 ** x` for a power of this number, which Python reads as `-(1 ** x)`."""
    return type(base) in (int, float) and math.copysign(1, base) < 0


@cache
def fake_tensor_type() -> type[torch.Tensor]:
    """Return the class of fake tensors."""
    from torch._subclasses.fake_tensor import FakeTensor

    return FakeTensor


def in_transform() -> bool:
    """Return whether a layer of torch.func or of forward-mode differentiation is open."""
    return torch._C._functorch.peek_interpreter_stack() is not None or torch.autograd.forward_ad._current_level >= 0


# What a fake tensor holds besides its metadata; all else is None unless a value was read from it or is known.
_STANDING = frozenset({"_fake_device", "fake_device", "fake_mode", "_is_param"})


def is_mere_metadata(fake: torch.Tensor) -> bool:
    """Return whether there is no more to a fake tensor than its metadata."""
    return all(value is None or name in _STANDING for name, value in vars(fake).items())


def state_of(fake: torch.Tensor) -> dict[str, Any]:
    """Return what a fake tensor holds as a Python object: nothing of its own, if it is mere metadata."""
    return dict(vars(fake))


def stand_in(
    state: dict[str, Any],
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
    dtype: torch.dtype,
    device: torch.device,
    requires_grad: bool,
    memory: torch.UntypedStorage | None,
) -> torch.Tensor:
    """Return what the constructor of fake tensors makes, without its checks: a leaf with this state."""
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
    """Return whether a leaf's gradient would have the leaf's own type."""
    return not tensor.requires_grad or getattr(tensor, "grad_dtype", tensor.dtype) is tensor.dtype


def introduce(mode: FakeTensorMode, tensor: torch.Tensor, fake: Any) -> None:
    """Tell a world which fake tensor a tensor has, and its memory: views of it are then views of the fake tensor."""
    known = mode.fake_tensor_converter.meta_converter
    known.tensor_memo[known.describer.get_tensor_id(tensor)] = fake
    known.storage_memo[known.describer.get_storage_id(tensor.untyped_storage())] = fake.untyped_storage()


def remember_fake(mode: FakeTensorMode, tensor: torch.Tensor, fake: Any) -> None:
    """Have a tracer that makes fake tensors in this mode find this one for the tensor."""
    mode.fake_tensor_converter.set_tensor_memo(tensor, fake)


def is_tracing() -> bool:
    """Return whether torch.fx or torch.jit is making a graph of what runs now."""
    by_fx: Any = sys.modules[torch.fx.Tracer.__module__]
    return bool(by_fx._is_fx_tracing_flag) or torch._C._get_tracing_state() is not None


def forget_tensors(mode: FakeTensorMode) -> None:
    """Drop the tables by which a mode knows real tensors. Their weak references would keep `torch.utils.swap_tensors`,
    and so `module.to()`, from working for as long as something has one of the mode's fake tensors."""
    describer = mode.fake_tensor_converter.meta_converter.describer
    describer.lookup_tensor.data.clear()
    describer.lookup_storage.data.clear()


def static_context(tensor: torch.Tensor, source: TorchSource) -> StatefulSymbolicContext:
    """Say, in torch's terms, that every size of this tensor is fixed."""
    from torch.fx.experimental.symbolic_shapes import (
        DimDynamic,
        StatefulSymbolicContext,
    )

    rank = tensor.dim()
    base = tensor._base
    return StatefulSymbolicContext(
        dynamic_sizes=[DimDynamic.STATIC] * rank,
        dynamic_strides=[DimDynamic.INFER_STRIDE] * rank,
        constraint_sizes=[None] * rank,
        constraint_strides=[None] * rank,
        view_base_context=None if base is None else static_context(base, source),
        tensor_source=source,
        shape_env_to_source_to_symbol_cache={},
    )


def data_dependent_errors() -> ErrorTypes:
    """Return the errors raised where a Python value was asked of a tensor."""
    from torch._subclasses.fake_tensor import DataDependentOutputException
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    return DataDependentOutputException, GuardOnDataDependentSymNode


def dynamic_shape_errors() -> ErrorTypes:
    """Return the errors raised where the numbers in a tensor decide a shape."""
    from torch._subclasses.fake_tensor import DynamicOutputShapeException

    return (DynamicOutputShapeException,)


def unsupported_errors() -> ErrorTypes:
    """Return the errors raised where an operator has no rule for metadata. A missing Meta kernel is a
    NotImplementedError.
    """
    from torch._subclasses.fake_tensor import (
        UnsupportedFakeTensorException,
        UnsupportedOperatorException,
    )

    return UnsupportedOperatorException, UnsupportedFakeTensorException, NotImplementedError


def internal_errors() -> ErrorTypes:
    """Return the errors that fake tensors raise about themselves."""
    from torch._subclasses.fake_tensor import (
        MetadataMismatchError,
        UnsupportedMutationAliasingException,
    )

    return MetadataMismatchError, UnsupportedMutationAliasingException


# Methods that answer from a tensor's memory. A fake tensor has none; some of these would answer all the same.
MEMORY_METHODS = frozenset(
    {"data_ptr", "const_data_ptr", "mutable_data_ptr", "storage", "untyped_storage", "_typed_storage", "numpy"}
    | {"__array__", "__dlpack__", "share_memory_", "is_shared", "pin_memory", "is_pinned", "is_set_to"}
)

# Functions that change how the operations after them run, in this thread. A trace of tensors alone would lose them.
MODE_CHANGES = frozenset(
    {torch._C._set_grad_enabled, torch.amp.autocast_mode._enter_autocast, torch.amp.autocast_mode._exit_autocast}
    | {torch.autograd.grad_mode._enter_inference_mode, torch.autograd.grad_mode._exit_inference_mode}
    | {torch.set_autocast_enabled, torch.set_autocast_dtype, torch.set_autocast_cache_enabled}
)

# What opens and closes layers of torch.func.
OPENERS, CLOSERS = (
    frozenset(getattr(torch._C._functorch, f"_{kind}_{way}_nesting") for kind in ("vmap", "grad", "jvp"))
    for way in ("increment", "decrement")
)


def close_layers(depth: int) -> None:
    """Close the layers of torch.func above this many, in the way of what opened them and never came to its end."""
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
            with contextlib.suppress(RuntimeError):  # it says that none is open
                torch._C._exit_dual_level(level=0)
        closers[kind]()


def count_layers() -> int:
    """Return how many layers of torch.func are open."""
    return torch._C._functorch.get_dynamic_layer_stack_depth()


# Operations on the leaves of autograd's history, and what asks for gradients.
LEAF_MAKERS = frozenset({"requires_grad_", "detach_", setattr, torch.nn.Parameter, inspect.unwrap(torch.autograd.grad)})


def is_layered(value: Any) -> bool:
    """Return whether fake tensors wrapped for a layer of torch.func are among these (nodes count as their examples)."""
    if isinstance(value, torch.fx.Node):
        return is_layered(value.meta.get("example_value"))
    if isinstance(value, (tuple, list)):
        return any(map(is_layered, value))
    return isinstance(value, torch.Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(value)


# Parts of messages that only a tensor without memory gives: eager would not have raised these.
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
    """Return whether the message speaks of missing memory rather than of the user's arguments."""
    text = str(raised)
    return isinstance(raised, RuntimeError) and any(part in text for part in _NO_MEMORY)


def name_hint(graph: torch.fx.Graph, target: Any) -> str:
    """Return what torch.fx calls a node after."""
    return graph._target_to_str(target)


@contextlib.contextmanager
def nobody_saves() -> Iterator[None]:
    """Switch hooks on saved tensors off: they are the user's, and see no fake tensors."""
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
    """Return whether any of these is a fake tensor."""
    fake = fake_tensor_type()
    return any(isinstance(value, fake) for value in values)


def take_inputs_in_a_list(gm: torch.fx.GraphModule) -> Callable[..., Any]:
    """Return the graph as a function of one list, which it empties: what is not needed any more goes while it runs."""
    from torch.fx.graph import _BoxedCodeGen

    gm.graph.set_codegen(_BoxedCodeGen())
    gm.recompile()
    return gm.forward


def mark_graph(gm: torch.fx.GraphModule) -> None:
    """Tell AOTAutograd and Inductor that the graph's placeholders say where they come from and which are static."""
    gm.meta["dynamo_compile_id"] = None
    gm._param_name_to_source = {}  # type: ignore[assignment]


def mark_placeholder(node: torch.fx.Node, source: TorchSource, static: bool) -> None:
    """Mark one input of an exported graph."""
    node._dynamo_source = source
    node.meta["tensor_dict"] = {"_dynamo_static_input_type": "unguarded"} if static else {}
