"""Backwards that AOTAutograd's does not know: gradients of gradients, and gradients of some of the results.

Where only some results of a graph have gradients, AOTAutograd takes zeros for the others, and inputs that eager would
not reach would get zeros, too: they get none, as in eager (an optimizer would decay them).

Its backward cannot be differentiated, and does not even know the inputs it came from, so that a second derivative
could be taken for zero. When a backward is asked to keep its own history (`create_graph=True`), the graph as it was
captured runs again on the inputs, under eager autograd. Where that cannot be, differentiating once more is an error.
A backward that is to be kept (`retain_graph=True`) and whose kernels write to the memory of what it saved gets copies.

A backward is compiled when it is first asked for. One that fails, then or as it runs, is eager's in its place, from the
graph as it was captured, if the inputs live and are as they were; and so is the graph from then on.

Inputs are remembered weakly: a model that is only differentiated once keeps nothing alive for this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.fx
from torch.utils import _pytree as pytree

from torchdynamo import config
from torchdynamo.errors import FallbackWarning
from torchdynamo.graph import compiled_calls, compiled_nodes
from torchdynamo.graph.compiled_calls import INPUTS
from torchdynamo.graph.history import History
from torchdynamo.graph.modes import Modes
from torchdynamo.graph.mutation import effects_of
from torchdynamo.graph.overlap import is_dense
from torchdynamo.graph.torch_compat import STOP_RECOMPUTING
from torchdynamo.hook.install import Compiled
from torchdynamo.hook.user_warnings import warn_user

_PREPARED = "_torchdynamo_twice"  # on a class of such nodes
# What autograd says of saved tensors that are gone, or were written to.
REFUSALS = ("Trying to backward through the graph a second time", "has been modified by an inplace operation")


class DoubleBackward:
    """A compiled graph whose backward may be asked for its own history, or for a part."""

    def __init__(self, compiled: Callable[..., Any], gm: torch.fx.GraphModule) -> None:
        self.compiled = compiled
        self.eager: Callable[..., Any] = Compiled(gm.forward, None)  # where autograd calls, nothing is captured
        self.modes = Modes.now()
        effects = effects_of(gm)
        self.repeatable = not (effects.mutated or effects.random)
        self.count = len(gm.graph.find_nodes(op="placeholder"))
        reached = History(gm).reached
        self.reached = reached if len(set(reached.values())) > 1 else {}
        self.first: int | None = None  # the place of the first result, if parts of the backward can be told
        self.autocast = torch._C._is_any_autocast_enabled()
        self.short: Callable[..., Any] | None = None  # calls the kernels, where a call is as most are
        self.proven = False  # the backward has run once
        self.failed = False  # or it has failed: the graph runs eagerly

    def __call__(self, *args: Any) -> Any:
        if self.short is not None and torch.is_grad_enabled() and not torch._C._are_functorch_transforms_active():
            return self.short(*args)
        if self.failed:
            return self.eager(*args)
        outputs = self.compiled(*args)
        if torch.is_grad_enabled():
            node = compiled_nodes.compiled_node(outputs)
            if node is not None:
                setattr(node, INPUTS, compiled_calls.remembered(args))
                self.prepare(node, args)
                if self.first is not None:
                    node.set_materialize_grads(False)
        return outputs

    def prepare(self, node: Any, args: Sequence[Any]) -> None:
        """Prepare a compiled graph, once: its nodes ask us first."""
        cls = compiled_nodes.compiled_class(node)
        if _PREPARED in cls.__dict__:
            return
        setattr(cls, _PREPARED, True)
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
                self.proven = True
            except Exception as error:
                found = self.in_eager(ctx, kept, error)
                if found is None:
                    raise
            return found

        def asked(ctx: Any, grads: tuple[Any, ...], given: Sequence[Any]) -> Any:
            if torch.is_grad_enabled():
                inputs = live_inputs(ctx) if self.repeatable else None
                if inputs is not None and compiled_nodes.returns_as_captured(cls, len(given)):
                    return self.differentiable(inputs, given)
            backward = keeping(cls, own) if compiled_nodes.writes_to_what_is_saved(cls) else own
            if self.first is None or all(given[self.first + at] is not None for at in self.reached):
                return backward(ctx, *grads)
            there = [at for at in self.reached if given[self.first + at] is not None]
            filled = list(given)
            for at in self.reached.keys() - there:
                filled[self.first + at] = compiled_nodes.zeros_for(ctx, self.first + at)
            wanted = frozenset[int]().union(*(self.reached[at] for at in there))
            found = backward(ctx, *compiled_nodes.as_given(cls, grads, filled))
            hooked = compiled_nodes.hooked_leaves(ctx, len(found))
            return tuple(grad if at in wanted or at in hooked else None for at, grad in enumerate(found))

        def connected(ctx: Any, run: Any, args: list[Any]) -> Any:
            """Connect a gradient to an input, so that further derivatives lead to AOTAutograd's error, not to
            nothing.
            """
            known = [ref() for ref, version in getattr(ctx, INPUTS, ()) if version is not None]
            return double(ctx, run, [*args, *(each for each in known if each is not None and each.requires_grad)])

        compiled_nodes.hide_frames(cls)
        cls.backward = staticmethod(first)
        cls._double_backward = staticmethod(connected)
        at_home = all(arg.device.type == "cpu" for arg in args if isinstance(arg, torch.Tensor))
        parts = compiled_calls.layout(cls, self.count) if at_home and not self.autocast else None
        if parts is not None and not compiled_nodes.leaves_out_inputs(node, args):
            made = compiled_calls.shortened(cls, parts, materialize=self.first is None)
            compiled_nodes.hide_frames(made)
            self.short = made.apply_short

    def in_eager(self, ctx: Any, given: Sequence[Any], error: Exception) -> tuple[Any, ...] | None:
        """Return what the backward gives that failed; None if it cannot be told, or the error is the program's own."""
        inputs = live_inputs(ctx) if self.repeatable and is_of_compilers(error) else None
        if inputs is None or not compiled_nodes.returns_as_captured(compiled_nodes.compiled_class(ctx), len(given)):
            return None
        if not config.suppress_errors:
            return None
        self.failed, self.short = True, None
        what = f"{type(error).__name__}: {error}"
        warn_user(f"the backward of a graph raised {what}; the graph runs eagerly from now on", FallbackWarning)
        return self.differentiable(inputs, given, keep=torch.is_grad_enabled())

    def differentiable(self, inputs: Sequence[Any], grads: Sequence[Any], keep: bool = True) -> tuple[Any, ...]:
        """Return the gradients of the inputs by running the captured graph once more; `keep`: with their history."""
        outside = Modes.now()
        self.modes.restore()
        try:
            with torch.enable_grad():
                # Aliases: one input may have been computed from another.
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
        finally:
            outside.restore()
        return tuple(next(found) if wants_gradient(each) else None for each in inputs)


def differentiable(output: Any, grad: Any) -> bool:
    return wants_gradient(output) and grad is not None


def wants_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def is_of_compilers(error: Exception) -> bool:
    """Return whether eager's backward would not have raised this: it is neither autograd's refusal nor a way out."""
    refused = any(text in str(error) for text in REFUSALS)
    return not isinstance(error, STOP_RECOMPUTING) and not (isinstance(error, RuntimeError) and refused)


def live_inputs(ctx: Any) -> list[Any] | None:
    """Return the inputs of the call, numbers among them, if they all live and are as they were."""
    known = getattr(ctx, INPUTS, None)
    if known is None:
        return None
    inputs = [given if version is None else given() for given, version in known]
    if any(
        version is not None and (each is None or each._version != version)
        for each, (_, version) in zip(inputs, known, strict=True)
    ):
        return None
    return inputs


class CopiedContext:
    """The context of a compiled backward, with copies of all that is saved: its kernels may use these up."""

    def __init__(self, ctx: Any) -> None:
        self.ctx = ctx

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.ctx, name)
        return copies(found) if name in ("saved_tensors", "_tensors_no_vc_check") else found


def copies(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Return copies in memory of their own. Expanded tensors, which nobody may write to, stay."""
    return [each.clone() if is_dense(each) else each for each in tensors]


def keeping(cls: Any, backward: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same compiled backward, leaving what it has saved as it is: AOTAutograd need not mind that
    it is kept.
    """

    def run(ctx: Any, *grads: Any) -> Any:
        with compiled_nodes.nothing_given_away(cls):
            return backward(CopiedContext(ctx), *grads)

    return run
