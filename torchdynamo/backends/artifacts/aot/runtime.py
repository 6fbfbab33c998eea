"""Do what AOTAutograd does around the kernels of an inference graph, as far as a graph needs it.

Kernels write to most inputs themselves; the others are copied to, or get other sizes, when the kernels have run.
Results that are inputs, or views of inputs, are made of the inputs of the call. Kernels run without grad mode.

One thing is left out: a mark by which Dynamo, torch's own front end, learns which sizes of a result may vary.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.graph import increment_version

from torchdynamo.backends.artifacts.aot.noting import Wrapped
from torchdynamo.backends.artifacts.artifact import BadArtifact, CannotStore, Run, Value, field
from torchdynamo.backends.artifacts.values import decode_view, encode_view

_functionalization: Any = torch._C._functionalization
ALIAS_NAMES = {"alias_of_input": "view", "is_input": "input"}
OWN_MEMORY = ("non_alias", "unsafe_view_alias", "custom_function_view")
COPY, SIZES, BOTH = "copy", "sizes", "both"  # what is done to an input when kernels have run


def encode_runtime(wrapped: Wrapped) -> Value:
    """Return what is done around the kernels, as data. Raises CannotStore if that is more than this file does."""
    meta = wrapped.metadata
    refuse_effects(meta)
    return {
        "counted": list(meta.mutated_graph_handled_indices_seen_by_autograd) if wrapped.writes_inputs else [],
        "written": [encode_write(at, meta.input_info[at]) for at in meta.mutated_inp_runtime_indices],
        "results": [encode_result(each, meta) for each in meta.output_info],
        "no_autocast": bool(wrapped.no_autocast),
        "grad_mode": meta.grad_enabled_mutation,
    }


def refuse_effects(meta: Any) -> None:
    """Raise CannotStore for a graph with effects or inputs that are no plain tensors."""
    reasons = {
        "tensor subclasses": any(type(each).__name__ == "SubclassCreationMeta" for each in meta.subclass_inp_meta),
        "random numbers by a seed and offset": meta.is_rng_op_functionalized,
        "states of generators": getattr(meta, "num_graphsafe_rng_states", 0),
        "effects in order": meta.tokens or meta.num_backward_tokens,
        "opaque objects": getattr(meta, "num_opaque_objects_saved_for_bw", 0),
        "streams": any(each is not None for each in getattr(meta, "mutated_inp_stream_indices", None) or ()),
    }
    for what, found in reasons.items():
        if found:
            raise CannotStore(f"the graph has {what}")


def encode_write(at: int, info: Any) -> Value:
    """Return [input, what is done to it, whether it is a leaf]."""
    if info.mutates_storage_metadata:
        raise CannotStore("the graph gives an input other memory")
    if not info.mutates_data and not info.mutates_metadata:
        return [at, None, False]
    how = BOTH if info.mutates_data and info.mutates_metadata else SIZES if info.mutates_metadata else COPY
    return [at, how, bool(info.is_leaf)]


def encode_result(info: Any, meta: Any) -> Value:
    """Return None for a result with memory of its own, ["input", which] or ["view", which, requires_grad, steps]."""
    kind = info.output_type.name
    if kind in OWN_MEMORY:
        return None
    if kind not in ALIAS_NAMES:
        raise CannotStore(f"a result is {kind.replace('_', ' ')}")
    if kind == "is_input":
        return [ALIAS_NAMES[kind], info.base_idx]
    return [ALIAS_NAMES[kind], info.base_idx, bool(info.requires_grad), steps_of(info.view_meta_sequence)]


def steps_of(views: Any) -> Value:
    """Return the steps by which a view is made of its base; None if it is made by its sizes and strides."""
    from torch._functorch import config

    replayed: Any = config.view_replay_for_aliased_outputs
    if not replayed or views is None or any(each.has_symbolic_inputs for each in views.sequence):
        return None
    return [encode_view(each) for each in views.sequence]


def decode_runtime(data: dict[str, Value], run: Run) -> Callable[[list[Any]], list[Any]]:
    """Return a callable that runs the kernels of an inference graph, and does what is to be done around them."""
    counted, written = field(data, "counted", list), field(data, "written", list)
    results = [None if each is None else decode_result(each) for each in field(data, "results", list)]
    aliases = [(at, each) for at, each in enumerate(results) if each is not None]
    kept = sorted({at for at, _, _ in written} | {each.base for _, each in aliases})
    grad_mode, count = data["grad_mode"], len(written) + len(results)
    quiet = torch._C._DisableAutocast if data["no_autocast"] else contextlib.nullcontext

    def call(args: list[Any]) -> list[Any]:
        inputs = {at: args[at] for at in kept}
        if counted:
            increment_version([args[at] for at in counted])
        grad = torch.is_grad_enabled()
        try:
            if grad:
                torch._C._set_grad_enabled(False)
            with quiet():
                made = run(args)
        finally:
            if grad:
                torch._C._set_grad_enabled(True)
        if len(made) != count:
            raise BadArtifact(f"a graph has {len(made)} results, and {count} were written")
        found = list(made)
        if written:
            write_inputs(written, inputs, found)
            del found[: len(written)]
        for at, alias in aliases:
            found[at] = alias.of(inputs[alias.base], found[at])
        if grad_mode is not None:
            torch._C._set_grad_enabled(grad_mode)
        return found

    return call


def write_inputs(written: Sequence[Value], inputs: dict[int, Any], results: Sequence[Any]) -> None:
    """Write the first results to inputs."""
    for (at, how, leaf), result in zip(written, results, strict=False):
        if how in (SIZES, BOTH):
            inputs[at].as_strided_(result.size(), result.stride(), result.storage_offset())
        if how in (COPY, BOTH):
            target = inputs[at].detach() if leaf and inputs[at].requires_grad else inputs[at]
            target.copy_(result)


class Alias:
    """Makes a result that is an input, or a view of one, of the input of the call."""

    def __init__(self, base: int, requires_grad: bool | None, steps: list[Any] | None) -> None:
        self.base, self.requires_grad, self.steps = base, requires_grad, steps

    def of(self, base: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """Return the input, or a view of it: by its steps, or with the memory layout of another tensor."""
        if self.requires_grad is None:
            return base
        if self.steps is not None:
            made = _functionalization.apply_view_meta_sequence(base, self.steps)
            if made.shape != like.shape:
                raise BadArtifact("a view of an input has other sizes than when it was written")
            return self.with_gradient(base, made)
        view = self.as_the_view(base, like)
        return self.with_gradient(base, view) if view is not None else self.by_layout(base, like)

    def with_gradient(self, base: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
        """Return a view that requires a gradient as the captured one did."""
        if base.requires_grad and not self.requires_grad:
            return made.detach()
        return made.requires_grad_(True) if self.requires_grad and not base.requires_grad else made

    def as_the_view(self, base: torch.Tensor, like: Any) -> torch.Tensor | None:
        """Return the view that another tensor is of its base; None if that is no view, or has other sizes here."""
        other = like._base
        if other is None:
            return None
        same = (base.size(), base.stride(), base.storage_offset())
        layout = (other.size(), other.stride(), other.storage_offset())
        made: torch.Tensor | None = like._view_func(
            base if base is other or same == layout else base.as_strided(*layout)
        )
        return made if made is not None and made.shape == like.shape else None

    def by_layout(self, base: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """Return the part of the input's memory that has another tensor's sizes, strides and offset."""
        if base.is_complex() and not like.is_complex():
            base_as = torch.view_as_real(base)
        elif like.is_complex() and not base.is_complex():
            base_as = torch.view_as_complex(base)
        else:
            base_as = base
        made = self.with_gradient(base, base_as.as_strided(like.size(), like.stride(), like.storage_offset()))
        return made if made.dtype == like.dtype else made.view(like.dtype)


def decode_result(data: Value) -> Alias:
    """Return how a result is made that is an input or a view of one."""
    if data[0] == ALIAS_NAMES["is_input"]:
        return Alias(data[1], None, None)
    _, base, requires_grad, steps = data
    return Alias(base, requires_grad, None if steps is None else [decode_view(each) for each in steps])
