"""Nodes of autograd's history that run backwards compiled by AOTAutograd, as versions of torch have them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch._guards
import torch.fx

from torchdynamo import config
from torchdynamo.hook.install import Compiled


def compiled_node(outputs: Any) -> Any:
    """Return the node of autograd's history that stands for a graph compiled by AOTAutograd; None if there is none."""
    for output in outputs if isinstance(outputs, (tuple, list)) else (outputs,):
        node = getattr(output, "grad_fn", None) if isinstance(output, torch.Tensor) else None
        if hasattr(getattr(node, "_forward_cls", None), "_double_backward"):
            return node
    return None


def compiled_class(node: Any) -> Any:
    """Return the autograd function of such a node."""
    return node._forward_cls


def hide_frames(cls: Any) -> None:
    """Have errors of such a backward come from autograd itself, as eager's do, and not out of a compiler's Python."""
    nodes = cls._backward_cls
    for name in ("apply", "apply_boxed"):  # the second is torch 2.13's
        own = getattr(nodes, name, None)
        if own is not None:
            setattr(nodes, name, Compiled(own, None, way=_forget_frames))


def _forget_frames(error: BaseException) -> None:
    if not config.verbose:
        error.__traceback__ = None


def writes_to_what_is_saved(cls: Any) -> bool:
    """Return whether the backward that runs now is to be kept, and has kernels that use up what it has saved."""
    given_away: Any = getattr(getattr(cls, "metadata", None), "bw_donated_idxs", None)
    return bool(given_away) and torch._C._autograd._get_current_graph_task_keep_graph()


@contextlib.contextmanager
def nothing_given_away(cls: Any) -> Iterator[None]:
    """Patch the backward so that it refuses to be kept, as if it had no such kernels."""
    known, cls.metadata.bw_donated_idxs = cls.metadata.bw_donated_idxs, []
    try:
        yield
    finally:
        cls.metadata.bw_donated_idxs = known


def given_gradients(cls: Any, grads: tuple[Any, ...]) -> Sequence[Any]:
    """Return what autograd hands to its backward, which from torch 2.13 on may come in a list that it may empty."""
    return grads[0] if _takes_a_list(cls, grads) else grads


def as_given(cls: Any, grads: tuple[Any, ...], other: list[Any]) -> tuple[Any, ...]:
    """Return other gradients as these were handed over."""
    return (other,) if _takes_a_list(cls, grads) else tuple(other)


def _takes_a_list(cls: Any, grads: tuple[Any, ...]) -> bool:
    return getattr(cls, "boxed_grads_call", False) and len(grads) == 1 and isinstance(grads[0], list)


def leaves_out_inputs(node: Any, args: Sequence[Any]) -> bool:
    """Return whether AOTAutograd detached an input with a gradient that the graph does not use.

    node: of a call with these arguments.
    """
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    steps = [step for step, _ in node.next_functions]
    return len(tensors) != len(steps) or any(
        step is None and arg.requires_grad for step, arg in zip(steps, tensors, strict=True)
    )


def first_result(cls: Any, inputs: int) -> int | None:
    """Return where the captured graph's results begin among its own, after inputs that were written to. None, if it has
    views among them, or inputs that it has merged, or has written to one that has a gradient.
    """
    meta = cls.metadata
    written = [meta.input_info[at] for at in meta.mutated_inp_runtime_indices]
    if meta.num_outputs_aliased or meta.num_intermediate_bases or len(meta.input_info) != inputs:
        return None
    return None if any(each.requires_grad for each in written) else len(written)


def hooked_leaves(node: Any, count: int) -> set[int]:
    """Return the places of inputs with hooks, which autograd calls whether or not there is a gradient."""
    leaves = [getattr(step, "variable", None) for step, _ in node.next_functions]
    found = {at for at, leaf in enumerate(leaves) if getattr(leaf, "_backward_hooks", 0) or _after_gradients(leaf)}
    return found if len(leaves) == count or not found else set(range(count))  # numbers among the inputs have no step


def _after_gradients(leaf: Any) -> Any:
    return getattr(leaf, "_post_accumulate_grad_hooks", None)


def zeros_for(node: Any, at: int) -> torch.Tensor:
    """Return what autograd hands over where a result has no gradient."""
    like = node._input_metadata[at]
    return torch.zeros(like.shape, dtype=like.dtype, device=like.device)


def returns_as_captured(cls: Any, count: int) -> bool:
    """Return whether its `count` results are the captured graph's, one for one: no inputs written to, no views among
    them.
    """
    meta = cls.metadata
    return (
        count == len(meta.output_info)
        and not meta.num_mutated_inp_runtime_indices
        and not meta.num_outputs_aliased
        and not meta.num_intermediate_bases
    )
