"""Make backends with AOTAutograd, which turns one compiler of ATen graphs into a backend that also trains.

When a graph is compiled with grad mode on and an input that needs gradients, AOTAutograd traces forward and backward
together, splits them, and wraps the pair as one autograd function; otherwise it makes one inference graph.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
import torch.fx
from torch._guards import TracingContext

from torchdynamo.backends.artifacts.aot.noting import Wrapped, keep_notes, noting
from torchdynamo.backends.bindings import call_directly
from torchdynamo.backends.cut_backward import cutting
from torchdynamo.backends.ddp_buckets import by_buckets
from torchdynamo.backends.exact_numerics import as_eager, keep_unused_draws
from torchdynamo.backends.handoff import Handoff, handoff
from torchdynamo.backends.in_place import write_in_place
from torchdynamo.backends.partition import without_extra_draws
from torchdynamo.backends.preserve import is_for_eager, leaves_inputs_alone
from torchdynamo.backends.registry import Backend
from torchdynamo.backends.split_backward import split_into_parts
from torchdynamo.graph import torch_compat
from torchdynamo.graph.modules import graph_module
from torchdynamo.hook.install import Compiled

Compiler: TypeAlias = Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any] | None]
Finish: TypeAlias = Callable[[Callable[..., Any], Handoff, list[Wrapped]], Callable[..., Any]]
Decompositions: TypeAlias = Mapping[Any, Callable[..., Any]]


def aot_autograd(
    fw_compiler: Compiler,
    bw_compiler: Compiler | None = None,
    partition_fn: Callable[..., Any] | None = None,
    decompositions: Decompositions | Callable[[], Decompositions] | None = None,
    *,
    keep_inference_input_mutations: bool = False,
    finish: Finish | None = None,
) -> Backend:
    """Return a backend whose compilers get functional graphs of ATen operators, forward and backward.

    `bw_compiler` defaults to `fw_compiler`. `partition_fn` splits the joint graph: AOTAutograd's default saves what the
    backward reads, `min_cut` recomputes what is cheap. `decompositions` maps operators to functions that compute them
    from simpler ones; a function that returns such a map is called when it is first needed. If a compiler returns None,
    its graph runs operator by operator. With `keep_inference_input_mutations`, an inference graph writes to its inputs
    itself, by `copy_`; otherwise it returns the new contents. `finish` gets what AOTAutograd has made, with its parts,
    and returns what is called instead. The backend declines graphs that make leaves of autograd and graphs with fused
    optimizer updates.
    """

    @leaves_inputs_alone
    @split_into_parts
    @by_buckets
    def backend(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any] | None:
        if is_for_eager(gm, example_inputs):
            return None
        from torch._functorch.aot_autograd import aot_module_simplified
        from torch._functorch.partitioners import default_partition

        table = decompositions() if callable(decompositions) else decompositions
        rounding = contextlib.nullcontext() if table else as_eager()
        ready_for = handoff(gm, example_inputs, exact=not table)
        with rounding, keep_unused_draws(), ready_for as ready, noting() as found:
            compiled = aot_module_simplified(
                ready.module,
                ready.inputs,
                fw_compiler=boxed(fw_compiler),
                bw_compiler=cutting(boxed(bw_compiler or fw_compiler), ready.order),
                partition_fn=without_extra_draws(partition_fn or default_partition),
                decompositions=dict(table or {}),
                keep_inference_input_mutations=keep_inference_input_mutations,
            )
        compiled = compiled if finish is None else finish(compiled, ready, found)
        return keep_notes("aten", ready.as_captured(compiled), ready, found)

    backend.__name__ = backend.__qualname__ = f"aot_autograd({getattr(fw_compiler, '__name__', 'compiler')})"
    return backend


def boxed(compiler: Compiler) -> Callable[..., Any]:
    """Wrap a compiler so that its results take their inputs as one list, which they may empty to free memory early.

    Frames are not captured inside of those results: autograd calls a backward wherever the user calls `backward()`.
    """

    def boxing(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        function = compiler(gm, example_inputs)
        if function is None:
            function = operator_by_operator(gm, example_inputs)
        return function if getattr(function, "_boxed_call", False) else uncaptured(_Boxed(function))

    return boxing


def operator_by_operator(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Return a function that runs the graph operator by operator and frees each input after its last use."""
    own = graph_module(gm, copy.deepcopy(gm.graph))  # the other is the caller's, who may look at it
    for node in own.graph.find_nodes(op="call_function", target=torch.ops.aten.bernoulli.p):
        node.target = bernoulli_in_memory_order
    if own.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default):
        count_writes_once()
    write_in_place(own.graph)
    call_directly(own.graph)
    return uncaptured(torch_compat.take_inputs_in_a_list(own))


def count_writes_once() -> None:
    """Tell AOTAutograd that the graph in hand counts its writes to inputs, as operators do and kernels do not."""
    context = TracingContext.try_get()
    if context is not None and context.fw_metadata is not None:
        context.fw_metadata.mutated_graph_handled_indices_seen_by_autograd = []


def bernoulli_in_memory_order(like: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Draw Bernoulli samples in the order of memory, as `bernoulli_` does; `aten.bernoulli.p` draws in the order of
    dimensions, which gives other samples for tensors that are not contiguous.
    """
    return torch.empty_like(like).bernoulli_(*args, **kwargs).contiguous()


def uncaptured(function: Callable[[list[Any]], Any]) -> Any:
    """Wrap a function of a list of inputs so that frames that it runs are not captured."""
    quiet: Any = Compiled(function, None)
    quiet._boxed_call = True
    return quiet


class _Boxed:
    """Adapts a function of positional arguments to the calling convention of one list, which is emptied."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, args: list[Any]) -> Any:
        unboxed = tuple(args)
        args.clear()
        return self.function(*unboxed)
