"""Access the autograd nodes of graphs compiled by AOTAutograd, which differ between versions of torch."""

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
    """Return the autograd node of a graph compiled by AOTAutograd, found by its outputs; None if there is none."""
    for output in outputs if isinstance(outputs, (tuple, list)) else (outputs,):
        node = getattr(output, "grad_fn", None) if isinstance(output, torch.Tensor) else None
        if hasattr(getattr(node, "_forward_cls", None), "_double_backward"):
            return node
    return None


def compiled_class(node: Any) -> Any:
    """Return the autograd function of a compiled graph's node."""
    return node._forward_cls


def hide_frames(cls: Any) -> None:
    """Make errors of a compiled backward show autograd's own traceback, without frames of a compiler."""
    nodes = cls._backward_cls
    for name in ("apply", "apply_boxed"):  # the second is torch 2.13's
        own = getattr(nodes, name, None)
        if own is not None:
            setattr(nodes, name, Compiled(own, None, way=_forget_frames))


def _forget_frames(error: BaseException) -> None:
    if not config.verbose:
        error.__traceback__ = None


def overwrites_saved_tensors(cls: Any) -> bool:
    """Return whether the running backward is to be kept, but its kernels overwrite saved tensors."""
    given_away: Any = getattr(getattr(cls, "metadata", None), "bw_donated_idxs", None)
    return bool(given_away) and torch._C._autograd._get_current_graph_task_keep_graph()


@contextlib.contextmanager
def donated_buffers_hidden(cls: Any) -> Iterator[None]:
    """Pretend inside of the block that the backward's kernels overwrite no saved tensors, so that AOTAutograd does not
    refuse to keep it.
    """
    known, cls.metadata.bw_donated_idxs = cls.metadata.bw_donated_idxs, []
    try:
        yield
    finally:
        cls.metadata.bw_donated_idxs = known


def saved_without_hooks(node: Any) -> Sequence[torch.Tensor]:
    """Return the tensors that a node has saved; none if they are freed, or if hooks would see that they are read."""
    try:
        if any(getattr(each, "unpack_hook", each) is not None for each in node._raw_saved_tensors):
            return ()
        saved: Sequence[torch.Tensor] = node.saved_tensors
        return saved
    except RuntimeError:  # freed, or written to: the node's own backward raises it, where it runs
        return ()


def given_gradients(cls: Any, grads: tuple[Any, ...]) -> Sequence[Any]:
    """Return the gradients that autograd passes to a backward; from torch 2.13 on they may come in one list."""
    return grads[0] if _takes_a_list(cls, grads) else grads


def as_given(cls: Any, grads: tuple[Any, ...], other: list[Any]) -> tuple[Any, ...]:
    """Return other gradients in the form in which `grads` were passed."""
    return (other,) if _takes_a_list(cls, grads) else tuple(other)


def _takes_a_list(cls: Any, grads: tuple[Any, ...]) -> bool:
    return getattr(cls, "boxed_grads_call", False) and len(grads) == 1 and isinstance(grads[0], list)


def leaves_out_inputs(node: Any, args: Sequence[Any]) -> bool:
    """Return whether AOTAutograd detached an input that needs a gradient but that the graph does not use.

    node: the autograd node of a call with these arguments.
    """
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    steps = [step for step, _ in node.next_functions]
    return len(tensors) != len(steps) or any(
        step is None and arg.requires_grad for step, arg in zip(steps, tensors, strict=True)
    )


def first_result(cls: Any, inputs: int) -> int | None:
    """Return the position of the captured graph's first result; inputs that were written to come before it.

    None if there are views among the results, merged inputs, or a write to an input that needs a gradient.
    """
    meta = cls.metadata
    written = [meta.input_info[at] for at in meta.mutated_inp_runtime_indices]
    if meta.num_outputs_aliased or meta.num_intermediate_bases or len(meta.input_info) != inputs:
        return None
    return None if any(each.requires_grad for each in written) else len(written)


def hooked_leaves(inputs: Sequence[Any]) -> set[int]:
    """Return the positions of leaves with hooks, which autograd calls even without a gradient."""
    leaves = [each if isinstance(each, torch.Tensor) and each.is_leaf else None for each in inputs]
    return {at for at, leaf in enumerate(leaves) if getattr(leaf, "_backward_hooks", 0) or _after_gradients(leaf)}


def _after_gradients(leaf: Any) -> Any:
    return getattr(leaf, "_post_accumulate_grad_hooks", None)


def zeros_for(node: Any, at: int) -> torch.Tensor:
    """Return the zeros that autograd passes for a result without a gradient."""
    like = node._input_metadata[at]
    return torch.zeros(like.shape, dtype=like.dtype, device=like.device)


def returns_as_captured(cls: Any, count: int) -> bool:
    """Return whether the compiled graph's `count` results are the captured graph's, without additions."""
    meta = cls.metadata
    return (
        count == len(meta.output_info)
        and not meta.num_mutated_inp_runtime_indices
        and not meta.num_outputs_aliased
        and not meta.num_intermediate_bases
    )
