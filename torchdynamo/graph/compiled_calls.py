"""Call graphs compiled by AOTAutograd with less overhead in the usual case.

AOTAutograd's autograd functions support inputs to write to after the kernels, results that are views, effects, and
generators on a device. That costs 30 to 60 us for a call and its backward, more than a small graph computes. A graph
whose metadata shows none of these gets an autograd function that just runs its kernels, which may write to inputs
themselves, and saves the tensors they return for the backward. Rare calls (under a transform, with `create_graph`, with
gradients in another memory layout) take AOTAutograd's own path, and so do backwards of graphs with wrapper subclasses,
whose gradients it wraps.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch._C import _functorch
from torch.autograd.graph import increment_version

INPUTS = "_torchdynamo_inputs"  # attribute of an autograd node: the inputs of its call, with their versions
unsafe_view = torch.ops.aten._unsafe_view.default._op
IN_MEMORY_OF_THEIR_OWN = ("non_alias", "unsafe_view_alias")  # the second is the only view of fresh memory
Expected: TypeAlias = tuple[Any, Any, Any]  # layout of a gradient: memory format, or size and strides


class CallLayout(NamedTuple):
    """Positions of results and saved tensors in what a compiled forward returns, and what its backward expects."""

    returned: int
    saved: slice  # saved tensors whose version counters are checked
    unchecked: slice  # other saved tensors
    numbers: slice  # saved sizes
    constant: tuple[int, ...]  # results without gradients
    views: tuple[int, ...]  # results that are the only view of fresh memory, and no views to autograd
    written: tuple[int, ...]  # inputs that kernels write to without counting it
    wanted: tuple[int, ...]  # results whose gradients the backward reads
    expected: tuple[Expected, ...]  # memory layouts of these gradients


def wraps_gradients(cls: Any) -> bool:
    """Return whether a compiled graph has inputs or results of wrapper subclasses.

    Its forward takes and returns them, its backward what is inside of them.
    """
    return getattr(cls, "maybe_subclass_metadata", None) is not None


def layout(cls: Any, inputs: int) -> CallLayout | None:
    """Return how a compiled graph with this many inputs is called; None if it needs AOTAutograd's own path.

    cls: the autograd function that AOTAutograd made for it.
    """
    meta = cls.metadata
    if (
        not getattr(cls.compiled_fw, "_boxed_call", False)
        or len(meta.input_info) != inputs
        or meta.num_mutated_inp_runtime_indices
        or any(each.mutates_metadata or each.mutates_storage_metadata for each in meta.input_info)
        or meta.num_outputs_aliased
        or meta.num_intermediate_bases
        or meta.is_rng_op_functionalized
        or meta.tokens
        or meta.num_backward_tokens
        or getattr(meta, "num_graphsafe_rng_states", 0)
        or (getattr(meta, "num_opaque_objects_saved_for_bw", 0) and not wraps_gradients(cls))
        or meta.indices_of_inputs_that_requires_grad_with_mutations_in_bw
        or not hasattr(meta, "tensors_saved_for_backwards_with_vc_check_slice")  # older versions of torch
        or any(each.output_type.name not in IN_MEMORY_OF_THEIR_OWN for each in meta.output_info)
    ):
        return None
    written, views = meta.mutated_graph_handled_indices_seen_by_autograd, meta.unsafe_view_out_indices
    if wraps_gradients(cls) and (written or views):
        return None
    wanted = tuple(
        at
        for at, each in enumerate(meta.output_info)
        if issubclass(each.raw_type, torch.Tensor) and _has_gradient(each)
    )
    expected = tuple(_expected(each) for each in meta.subclass_tangent_meta)
    if len(wanted) != len(expected) or None in expected or meta.num_forward_returns != len(meta.output_info):
        return None
    return CallLayout(
        meta.num_forward_returns,
        meta.tensors_saved_for_backwards_with_vc_check_slice,
        meta.tensors_saved_for_backwards_no_vc_check_slice,
        meta.symints_saved_for_backwards_slice,
        tuple(at for at, each in enumerate(meta.output_info) if not each.requires_grad),
        tuple(views),
        tuple(written),
        wanted,
        tuple(each for each in expected if each is not None),
    )


def _has_gradient(result: Any) -> bool:
    return bool(getattr(result, "requires_grad_for_backward", result.requires_grad))


def _expected(meta: Any) -> Expected | None:
    form = getattr(meta, "memory_format", None)
    if form is None:
        return None
    if form.memory_format is None and (form.size is None or form.stride is None):
        return None
    return form.memory_format, form.size, form.stride


def has_layout(grad: Any, expected: Expected) -> bool:
    """Return whether a gradient is given and has the memory layout that the compiled backward expects."""
    if type(grad) is not torch.Tensor:
        return False
    form, size, stride = expected
    if form is not None:
        return grad.is_contiguous(memory_format=form)
    return bool(grad.shape == size and grad.stride() == stride)


def weak_inputs(args: Sequence[Any]) -> list[tuple[Any, int | None]]:
    """Return the inputs of a call as (weak reference, version) for tensors and (value, None) for numbers."""
    return [(weakref.ref(arg), arg._version) if isinstance(arg, torch.Tensor) else (arg, None) for arg in args]


def kernels_only(cls: Any, parts: CallLayout, materialize: bool, autocast: bool = False) -> Any:
    """Return an autograd function that calls the kernels directly; `apply_short` is its `apply` without torch.func.

    cls: AOTAutograd's autograd function, whose backward handles rare cases. materialize: gradients that are not given
    are zeros. autocast: the forward is called under autocast, which kernels know nothing of.
    """
    forward_code: Callable[[list[Any]], Any] = without_autocast(cls.compiled_fw) if autocast else cls.compiled_fw
    returned, saved, unchecked, numbers, constant, views, written, wanted, expected = parts
    has_unchecked = unchecked != slice(0, 0)
    has_numbers = numbers != slice(0, 0)
    pairs = tuple(zip(wanted, expected, strict=True))
    own_backward = wraps_gradients(cls)
    opaque = cls.metadata.opaque_objects_saved_for_backwards_slice if own_backward else slice(0, 0)
    has_opaque = opaque != slice(0, 0)

    class CompiledFunction(cls):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            if written:
                increment_version([args[at] for at in written])
            made = forward_code(list(args))
            if not isinstance(made, (list, tuple)):
                made = [made]
            ctx.save_for_backward(*[each.detach() if each._is_view() else each for each in made[saved]])
            if has_unchecked:
                ctx._tensors_no_vc_check = [each.detach() if each._is_view() else each for each in made[unchecked]]
            if has_numbers:
                ctx.symints = made[numbers]
            if has_opaque:
                ctx.opaque_objects = made[opaque]
            results = list(made[:returned])
            for at in views:
                results[at] = unsafe_view(results[at], results[at].shape)
            if constant:
                ctx.mark_non_differentiable(*[results[at] for at in constant if isinstance(results[at], torch.Tensor)])
                ctx._materialize_non_diff_grads = False
            if not materialize:
                ctx.set_materialize_grads(False)
            setattr(ctx, INPUTS, weak_inputs(args))
            return tuple(results)

        @staticmethod
        def arguments(ctx: Any, grads: tuple[Any, ...]) -> list[Any] | None:
            """Return what the backward's kernels get; None if AOTAutograd's own path is to be taken."""
            given = grads[0] if len(grads) == 1 and isinstance(grads[0], list) else grads
            if (
                own_backward
                or cls.compiled_bw is None
                or not all(has_layout(given[at], form) for at, form in pairs)
                or needs_own_backward()
            ):
                return None
            args = [*ctx.symints, *ctx.saved_tensors, *ctx._tensors_no_vc_check, *(given[at] for at in wanted)]
            if isinstance(given, list):  # autograd's own list: emptied, so that each gradient is freed after its use
                given.clear()
            ctx.maybe_clear_saved_tensors()
            return args

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            args = CompiledFunction.arguments(ctx, grads)
            return cls.backward(ctx, *grads) if args is None else tuple(in_context(cls.compiled_bw, args))

    save_nothing_more(CompiledFunction)
    CompiledFunction.own_backward = staticmethod(cls.backward)
    CompiledFunction.apply_short = super(torch.autograd.Function, CompiledFunction).apply  # type: ignore[misc]
    return CompiledFunction


def save_nothing_more(cls: Any) -> None:
    """Let the autograd nodes of a function be read as AOTAutograd's, whatever their forward has not saved."""
    nodes: Any = cls._backward_cls
    nodes.symints = nodes.opaque_objects = nodes._tensors_no_vc_check = ()


def without_autocast(compiled: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Wrap compiled kernels so that operators which they call do not cast."""

    def run(args: list[Any]) -> Any:
        with torch._C._DisableAutocast():
            return compiled(args)

    return run


def in_context(compiled: Callable[[Any], Any], args: Any) -> Any:
    """Call a compiled backward with the context variables of the thread that called `backward()`."""
    context = torch._C._get_obj_in_tls("context") if torch._C._is_key_in_tls("context") else None
    return compiled(args) if context is None else context.run(compiled, args)


def needs_own_backward() -> bool:
    """Return whether a backward must take AOTAutograd's own path.

    It keeps its history, is to be run again, runs under torch.func, or may have to raise for deterministic algorithms.
    """
    return bool(
        torch.is_grad_enabled()
        or torch._C._autograd._get_current_graph_task_keep_graph()
        or _functorch.peek_interpreter_stack() is not None
        or torch.are_deterministic_algorithms_enabled()
    )
