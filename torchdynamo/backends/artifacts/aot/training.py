"""Write a graph with its backward, and call both by an autograd function like AOTAutograd's.

Only graphs whose kernels `graph/compiled_calls.py` calls directly are written: no results that are views of inputs, no
inputs to write to after the kernels. The rest is as it is without artifacts: `kernels_only` calls forward and backward,
and `DoubleBackward` does what is rare. What that takes from the captured graph is asked of the graph that is given.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch._C import _functorch

from torchdynamo.backends.artifacts.aot.noting import Notes, Wrapped
from torchdynamo.backends.artifacts.aot.runtime import refuse_effects
from torchdynamo.backends.artifacts.artifact import (
    BadArtifact,
    CannotStore,
    Captured,
    NotReady,
    Run,
    Value,
    field,
)
from torchdynamo.backends.artifacts.values import decode, encode
from torchdynamo.backends.double_backward import DoubleBackward, GradientFacts
from torchdynamo.graph import compiled_calls
from torchdynamo.graph.compiled_calls import CallLayout, in_context

NOT_YET = "its backward has not been compiled yet"
SECOND = "torch.compile with aot_autograd does not currently support double backward"
TRANSFORMED = "a compiled backward runs under no transform of torch.func"
DETERMINISTIC = (
    "This compiled backward function is being run with torch.use_deterministic_algorithms(True), "
    "but it was previously generated during the forward function while "
    "torch.use_deterministic_algorithms(False) was set."
)


def encode_training(notes: Notes, wrapped: Wrapped, encode_code: Callable[[Any], Value]) -> Value:
    """Return forward and backward of a graph as data. Raises CannotStore with a reason.

    encode_code: returns the code of either as data.
    """
    cls = getattr(wrapped.run, "__self__", None)
    facts = notes.gradients
    if facts is None or not (isinstance(cls, type) and issubclass(cls, torch.autograd.Function)):
        raise CannotStore(f"AOTAutograd calls a graph with gradients by a {type(wrapped.run).__name__}")
    trained = None if notes.trained is None else notes.trained()
    if trained is not None and trained.failed:
        raise CannotStore("its backward has failed")
    meta: Any = cls.metadata
    refuse_effects(meta)
    layout = compiled_calls.layout(cls, notes.inputs)
    if compiled_calls.wraps_gradients(cls):
        raise CannotStore("the graph has gradients, and tensors of wrapper subclasses")
    if layout is None:
        raise CannotStore("the graph has gradients, and results that are views of inputs, or writes after its kernels")
    backward = cls.compiled_bw  # type: ignore[attr-defined]
    if backward is None:
        raise NotReady(NOT_YET)
    return {
        "forward": encode_code(cls.compiled_fw),  # type: ignore[attr-defined]
        "backward": encode_code(backward),
        "layout": encode_layout(layout),
        "results": len(meta.output_info),
        "detached": list(wrapped.detached),
        "no_autocast": bool(wrapped.no_autocast),
        "overwritten": list(meta.bw_donated_idxs or ()),
        "deterministic": meta.deterministic,
        "repeatable": facts.repeatable,
        "reached": [[at, sorted(inputs)] for at, inputs in facts.reached.items()],
    }


def after_backward(notes: Notes, call: Callable[[], object]) -> bool:
    """Call a function when a graph's backward has run; return whether that is still to come."""
    trained = None if notes.trained is None else notes.trained()
    if trained is None or trained.proven:
        return False
    trained.when_proven.append(call)
    return True


def encode_layout(layout: CallLayout) -> Value:
    """Return the positions and memory layouts of a call as data."""
    plain = {name: encode_slice(each) if isinstance(each, slice) else each for name, each in layout._asdict().items()}
    plain["expected"] = [[encode(form), *map(encode_dims, dims)] for form, *dims in layout.expected]
    return {name: list(each) if isinstance(each, tuple) else each for name, each in plain.items()}


def encode_slice(part: slice) -> Value:
    return [part.start, part.stop]


def encode_dims(dims: Any) -> Value:
    """Return sizes or strides of a gradient as data. Raises CannotStore for those that are symbols."""
    if dims is None:
        return None
    if any(type(each) is not int for each in dims):
        raise CannotStore("gradients of results are expected to have sizes that are symbols")
    return list(dims)


def decode_layout(data: dict[str, Value]) -> CallLayout:
    """Return the positions and memory layouts of a call. Raises BadArtifact for other data."""
    known = {name: field(data, name, (int, list)) for name in CallLayout._fields}
    for name in ("saved", "unchecked", "numbers"):
        known[name] = slice(*known[name])
    for name in ("constant", "views", "written", "wanted"):
        known[name] = tuple(known[name])
    known["expected"] = tuple(
        (decode(form), None if size is None else tuple(size), None if stride is None else tuple(stride))
        for form, size, stride in known["expected"]
    )
    return CallLayout(**known)


@dataclasses.dataclass
class StoredMetadata:
    """The part of AOTAutograd's metadata that is asked for when a call has a layout."""

    input_info: Sequence[int]
    output_info: Sequence[int]
    bw_donated_idxs: list[int]
    num_mutated_inp_runtime_indices: int = 0
    mutated_inp_runtime_indices: tuple[int, ...] = ()
    num_outputs_aliased: int = 0
    num_intermediate_bases: int = 0


class Kernels(NamedTuple):
    """Kernels of a graph, and what must hold when they run."""

    forward: Run
    backward: Run
    layout: CallLayout
    deterministic: bool | None  # the setting that the backward was compiled under


def autograd_function(kernels: Kernels, about: Any) -> Any:
    """Return an autograd function for a stored graph, whose backward does in full what a direct call leaves out."""
    pairs = tuple(zip(kernels.layout.wanted, kernels.layout.expected, strict=True))

    class StoredFunction(torch.autograd.Function):
        compiled_fw = staticmethod(kernels.forward)
        compiled_bw = staticmethod(kernels.backward)
        metadata = about
        boxed_grads_call = True

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            if _functorch.peek_interpreter_stack() is not None:
                raise RuntimeError(TRANSFORMED)
            if kernels.deterministic is False and torch.are_deterministic_algorithms_enabled():
                raise RuntimeError(DETERMINISTIC)
            given = grads[0] if len(grads) == 1 and isinstance(grads[0], list) else grads
            wanted = [in_layout(given[at], form) for at, form in pairs]
            args = [*ctx.symints, *ctx.saved_tensors, *ctx._tensors_no_vc_check, *wanted]
            if isinstance(given, list):
                given.clear()

            def run(_: Any = None) -> Any:
                ctx.maybe_clear_saved_tensors()
                return tuple(in_context(kernels.backward, args))

            return StoredFunction._double_backward(ctx, run, args) if torch.is_grad_enabled() else run()

        @staticmethod
        def _double_backward(ctx: Any, run: Callable[..., Any], args: Sequence[Any]) -> Any:
            class SecondBackward(torch.autograd.Function):
                @staticmethod
                def forward(inner: Any, *_: Any) -> Any:
                    return run(inner)

                @staticmethod
                def backward(inner: Any, *_: Any) -> Any:
                    raise RuntimeError(SECOND)

            if not any(isinstance(each, torch.Tensor) and each.requires_grad for each in args):
                args = [torch.empty(0, requires_grad=True), *args]
            return SecondBackward.apply(*args)

    return StoredFunction


def in_layout(grad: torch.Tensor, expected: compiled_calls.Expected) -> torch.Tensor:
    """Return a gradient in the memory layout that a compiled backward expects."""
    form, size, stride = expected
    if form is not None:
        return grad if grad.is_contiguous(memory_format=form) else grad.contiguous(memory_format=form)
    if grad.shape == size and grad.stride() == stride:
        return grad
    made = torch.empty_strided(size, stride, dtype=grad.dtype, device=grad.device, requires_grad=grad.requires_grad)
    return made.copy_(grad)


def decode_training(
    data: dict[str, Value], inputs: int, decode_code: Callable[[dict[str, Value]], Run], captured: Captured | None
) -> DoubleBackward:
    """Return a callable for a graph with gradients. Raises BadArtifact for what `encode_training` did not write."""
    quiet = bool(data["no_autocast"])
    forward, backward = (decode_code(field(data, name, dict)) for name in ("forward", "backward"))
    layout = decode_layout(field(data, "layout", dict))
    kernels = Kernels(
        without_autocast(forward) if quiet else forward,
        without_autocast(backward) if quiet else backward,
        layout,
        data["deterministic"],
    )
    about = StoredMetadata(range(inputs), range(data["results"]), list(data["overwritten"]))
    cls = autograd_function(kernels, about)
    repeatable = bool(data["repeatable"]) and captured is not None
    facts = GradientFacts(inputs, repeatable, {at: frozenset(reached) for at, reached in data["reached"]})
    made = DoubleBackward(none_yet, lambda *args: run_captured(captured, args), facts)
    made.take_over(cls)
    direct = made.shorten(cls, layout)
    made.compiled = with_gradients(direct, field(data, "detached", list))
    if data["detached"]:
        made.short = None
    return made


def none_yet(*args: Any) -> Any:
    raise AssertionError("a graph is called before it is complete")


def run_captured(captured: Captured | None, args: Sequence[Any]) -> Any:
    """Run the captured graph. Raises BadArtifact if it was not given."""
    if captured is None:
        raise BadArtifact("the captured graph is not known")
    return captured().forward(*args)


def without_autocast(run: Run) -> Run:
    """Return kernels that run without autocast, as they were compiled."""

    def quietly(args: list[Any]) -> Any:
        with torch._C._DisableAutocast():
            return run(args)

    return quietly


def with_gradients(function: Any, detached: Sequence[int]) -> Callable[..., Any]:
    """Return a callable of an autograd function; inputs at some positions need no gradient."""

    def run(*args: Any) -> Any:
        given = list(args)
        for at in detached:
            if isinstance(given[at], torch.Tensor):
                given[at] = given[at].detach()
        with contextlib.nullcontext() if torch.is_grad_enabled() else torch.enable_grad():
            return function.apply(*given)

    return run
