"""Compute backwards that AOTAutograd does not support: gradients of gradients, and gradients of some results only.

Where only some results of a graph get gradients, AOTAutograd fills in zeros for the others, so inputs that eager would
not reach would get zero gradients. They get None here, as in eager (an optimizer would decay them otherwise).

AOTAutograd's backward cannot be differentiated and does not keep the inputs it came from, so a second derivative could
come out as zero. When a backward is to keep its own history (`create_graph=True`), the captured graph runs again on the
inputs, under eager autograd; where that is impossible, differentiating once more raises. A backward that is kept
(`retain_graph=True`) and whose kernels overwrite saved tensors works on copies.

A backward is compiled when it is first called. If its compilation or run fails, gradients are computed in eager from
the captured graph, provided that the inputs are alive and unchanged; the graph runs eagerly from then on.

Inputs are held weakly, so that a model that is differentiated once keeps nothing alive for this. Those that have died
are found again (`dead_inputs.py`).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.fx
from torch.utils import _pytree as pytree

from torchdynamo import config
from torchdynamo.backends.cut_backward import parts_of
from torchdynamo.backends.dead_inputs import RUNS, connections, found_inputs, live_inputs
from torchdynamo.core.reasons import explained
from torchdynamo.errors import FallbackWarning
from torchdynamo.graph import compiled_calls, compiled_nodes, compiled_parts
from torchdynamo.graph.compiled_calls import INPUTS
from torchdynamo.graph.history import History
from torchdynamo.graph.modes import Modes
from torchdynamo.graph.mutation import effects_of
from torchdynamo.graph.overlap import is_dense
from torchdynamo.graph.torch_compat import STOP_RECOMPUTING
from torchdynamo.hook.install import Compiled
from torchdynamo.hook.user_warnings import warn_user

# Beginnings of autograd's errors about saved tensors that were freed or modified.
REFUSALS = ("Trying to backward through the graph a second time", "has been modified by an inplace operation")
CALLED_DIRECTLY = ("cpu", "cuda")  # devices on which kernels are called without AOTAutograd's own path


class GradientFacts(NamedTuple):
    """Facts that backwards of a captured graph rest on."""

    inputs: int
    repeatable: bool  # the graph may run again: it writes to no input, and draws no random numbers
    reached: Mapping[int, frozenset[int]]  # result -> inputs it is computed from; empty if all results reach the same


def facts_of(gm: torch.fx.GraphModule) -> GradientFacts:
    """Return what backwards of a captured graph rest on."""
    effects = effects_of(gm)
    reached = History(gm).reached
    return GradientFacts(
        len(gm.graph.find_nodes(op="placeholder")),
        not (effects.mutated or effects.random),
        reached if len(set(reached.values())) > 1 else {},
    )


class DoubleBackward:
    """Runs a compiled graph, and prepares its autograd node for second and partial backwards.

    eager: runs the captured graph.
    """

    def __init__(
        self, compiled: Callable[..., Any], eager: Callable[..., Any], facts: GradientFacts, cut: bool = False
    ) -> None:
        self.compiled = compiled
        self.eager: Callable[..., Any] = Compiled(eager, None)  # frames are not captured in there
        self.modes = Modes.now()
        self.facts = facts
        self.cut = cut  # the backward may come in parts
        self.count, self.repeatable, self.reached = facts
        self.first: int | None = None  # position of the first result's gradient, if partial backwards are possible
        self.autocast = torch._C._is_any_autocast_enabled()
        self.short: Callable[..., Any] | None = None  # calls the kernels directly, in the usual case
        self.proven = False  # the backward has run once
        self.when_proven: list[Callable[[], object]] = []  # called at that moment
        self.failed = False  # the backward has failed: the graph runs eagerly

    def __call__(self, *args: Any) -> Any:
        if self.short is not None and torch.is_grad_enabled() and not torch._C._are_functorch_transforms_active():
            return self.short(*args)
        if self.failed:
            return self.eager(*args)
        outputs = self.compiled(*args)
        if torch.is_grad_enabled():
            node = compiled_nodes.compiled_node(outputs)
            if node is not None:
                setattr(node, INPUTS, compiled_calls.weak_inputs(args))
                self.prepare(node, args)
                if self.first is not None:
                    node.set_materialize_grads(False)
        return outputs

    def prepare(self, node: Any, args: Sequence[Any]) -> None:
        """Patch the class of the graph's autograd nodes, once, and find out how calls can be shorter."""
        cls = compiled_nodes.compiled_class(node)
        if hasattr(cls, RUNS):
            return
        self.take_over(cls)
        parts = compiled_calls.layout(cls, self.count)
        if parts is None or compiled_nodes.leaves_out_inputs(node, args):
            return
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        if all(arg.device.type in CALLED_DIRECTLY for arg in tensors) and not self.autocast:
            self.shorten(cls, parts)
        if self.cut and not compiled_calls.wraps_gradients(cls):
            device = next(arg.device for arg in tensors if arg.requires_grad)
            self.when_proven.append(functools.partial(self.chain, cls, parts, device))

    def chain(self, cls: Any, parts: compiled_calls.CallLayout, device: torch.device) -> None:
        """Give autograd a node for each part from now on, if the backward was compiled in parts."""
        cut = parts_of(cls.compiled_bw)
        if cut is not None and not self.failed:
            base = compiled_calls.kernels_only(cls, parts, self.first is None, self.autocast)
            self.short = compiled_parts.chained(base, cut, device, self.autocast)

    def shorten(self, cls: Any, parts: compiled_calls.CallLayout) -> Any:
        """Call the kernels directly from now on; return the autograd function that does."""
        made = compiled_calls.kernels_only(cls, parts, materialize=self.first is None)
        compiled_nodes.hide_frames(made)
        self.short = made.apply_short
        return made

    def take_over(self, cls: Any) -> None:
        """Patch the class of a compiled graph's autograd nodes so that their backward is asked here first."""
        setattr(cls, RUNS, self)
        own, double = cls.backward, cls._double_backward
        if self.reached:
            self.first = compiled_nodes.first_result(cls, self.count)

        def first(ctx: Any, *grads: Any) -> Any:
            given = compiled_nodes.given_gradients(cls, grads)
            if self.proven:
                return asked(ctx, grads, given)
            kept = list(given)  # autograd's own list is emptied as it is used up
            try:
                found = asked(ctx, grads, given)
            except Exception as error:
                found = self.in_eager(ctx, kept, error)
                if found is None:
                    raise
            else:
                self.proven = True
                for each in self.when_proven:
                    each()
                self.when_proven.clear()
            return found

        def asked(ctx: Any, grads: tuple[Any, ...], given: Sequence[Any]) -> Any:
            if torch.is_grad_enabled():
                inputs = found_inputs(ctx) if self.repeatable else None
                if inputs is not None and compiled_nodes.returns_as_captured(cls, len(given)):
                    return self.differentiable(inputs, given)
            backward = protect_saved_tensors(cls, own) if compiled_nodes.overwrites_saved_tensors(cls) else own
            if self.first is None or all(given[self.first + at] is not None for at in self.reached):
                return backward(ctx, *grads)
            there = [at for at in self.reached if given[self.first + at] is not None]
            filled = list(given)
            for at in self.reached.keys() - there:
                filled[self.first + at] = compiled_nodes.zeros_for(ctx, self.first + at)
            wanted = frozenset[int]().union(*(self.reached[at] for at in there))
            found = backward(ctx, *compiled_nodes.as_given(cls, grads, filled))
            known = [ref() if version is not None else None for ref, version in getattr(ctx, INPUTS, ())]
            hooked = compiled_nodes.hooked_leaves(known)
            return tuple(grad if at in wanted or at in hooked else None for at, grad in enumerate(found))

        def connected(ctx: Any, run: Any, args: list[Any]) -> Any:
            """Connect further derivatives to the inputs, so that they raise AOTAutograd's error and are not just
            missing.
            """
            return double(ctx, run, [*args, *connections(ctx)])

        compiled_nodes.hide_frames(cls)
        cls.backward = staticmethod(first)
        cls._double_backward = staticmethod(connected)

    def in_eager(self, ctx: Any, given: Sequence[Any], error: Exception) -> tuple[Any, ...] | None:
        """Compute in eager the gradients of a backward that failed; None if impossible or if the error is the
        program's.
        """
        inputs = live_inputs(ctx) if self.repeatable and is_of_compilers(error) else None
        if inputs is None or not compiled_nodes.returns_as_captured(compiled_nodes.compiled_class(ctx), len(given)):
            return None
        if not config.suppress_errors:
            return None
        self.failed, self.short = True, None
        what = f"{type(error).__name__}: {error}"
        text = f"the backward of a graph raised {what}; the graph runs eagerly from now on"
        warn_user(explained(text, "graph failed"), FallbackWarning)
        return self.differentiable(inputs, given, keep=torch.is_grad_enabled())

    def differentiable(self, inputs: Sequence[Any], grads: Sequence[Any], keep: bool = True) -> tuple[Any, ...]:
        """Compute the inputs' gradients by running the captured graph again in eager; `keep`: with a history."""
        with self.as_captured():
            # Aliases, because one input may have been computed from another.
            own = [each.view_as(each) if wants_gradient(each) else each for each in inputs]
            outputs = pytree.tree_leaves(self.eager(*own))
            pairs = [(out, grad) for out, grad in zip(outputs, grads, strict=True) if differentiable(out, grad)]
            wanted = [each for each in own if wants_gradient(each)]
            found = iter(
                torch.autograd.grad(
                    [out for out, _ in pairs],
                    wanted,
                    [grad for _, grad in pairs],
                    create_graph=keep,
                    allow_unused=True,
                )
            )
        return tuple(next(found) if wants_gradient(each) else None for each in inputs)

    def run_again(self, inputs: Sequence[Any]) -> list[Any]:
        """Run the captured graph in eager; return its results, with a history."""
        with self.as_captured():
            return pytree.tree_leaves(self.eager(*inputs))

    @contextlib.contextmanager
    def as_captured(self) -> Iterator[None]:
        """Restore inside of the block the modes of the capture, but for gradients, which are on."""
        outside = Modes.now()
        self.modes.restore()
        try:
            with torch.enable_grad():
                yield
        finally:
            outside.restore()


def differentiable(output: Any, grad: Any) -> bool:
    return wants_gradient(output) and grad is not None


def wants_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def is_of_compilers(error: Exception) -> bool:
    """Return whether an error comes from the compiled backward: eager's would not have raised it."""
    refused = any(text in str(error) for text in REFUSALS)
    return not isinstance(error, STOP_RECOMPUTING) and not (isinstance(error, RuntimeError) and refused)


class CopiedContext:
    """Wraps the context of a compiled backward and gives out copies of saved tensors, which kernels may overwrite."""

    def __init__(self, ctx: Any) -> None:
        self.ctx = ctx

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.ctx, name)
        return copies(found) if name in ("saved_tensors", "_tensors_no_vc_check") else found


def copies(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Return clones of the tensors; expanded ones, which no kernel writes to, are returned as they are."""
    return [each.clone() if is_dense(each) else each for each in tensors]


def protect_saved_tensors(cls: Any, backward: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a compiled backward so that saved tensors stay unchanged and a second backward is possible."""

    def run(ctx: Any, *grads: Any) -> Any:
        with compiled_nodes.donated_buffers_hidden(cls):
            return backward(CopiedContext(ctx), *grads)

    return run
