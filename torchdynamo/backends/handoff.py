"""Hand a graph to AOTAutograd or Inductor.

Both take a plain FX graph and real inputs. They learn that sizes are fixed, and which inputs keep their memory from
call to call (CUDA graphs would otherwise copy every parameter every time), from a tracing context and a few marks on
the graph. Both also modify the graph they are given, so they get a copy.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.fx
from torch._guards import TracingContext, tracing
from torch.utils import _pytree as pytree

from torchdynamo.backends.ddp_buckets import wanted_order
from torchdynamo.backends.double_backward import DoubleBackward, facts_of
from torchdynamo.backends.exact_numerics import keep_linalg_checks
from torchdynamo.backends.stage import NotingContext
from torchdynamo.graph import fake_mode, patches, shape_env, torch_compat
from torchdynamo.graph.inputs import InputSource
from torchdynamo.graph.leftovers import free_texts_with
from torchdynamo.graph.modules import graph_module
from torchdynamo.graph.numbers import has_numbers
from torchdynamo.graph.passes.traceable import make_traceable, rewrite_bodies
from torchdynamo.graph.sizes import fakes_for, sizes_of
from torchdynamo.graph.static_contexts import static_context


class Handoff:
    """Holds a copy of a graph that returns a flat tuple, and rebuilds the captured graph's results from it."""

    def __init__(self, gm: torch.fx.GraphModule, inputs: Sequence[Any], exact: bool) -> None:
        graph = copy.deepcopy(gm.graph)
        make_traceable(graph, exact=exact)
        self.spec = _flatten_output(graph)
        self.module = graph_module(gm, graph)
        self.module.meta = {}
        rewrite_bodies(self.module, exact=exact)
        self.captured = gm
        self.inputs = list(inputs)
        self.order = wanted_order(inputs)  # in which gradients come
        self.trained: DoubleBackward | None = None  # what is called, if gradients may be asked for
        self.known_sizes = ""  # text of the facts known about symbolic sizes

    def as_captured(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the compiled callable so that it returns what the captured graph returns."""
        spec = self.spec
        if torch.is_grad_enabled() and any(
            isinstance(each, torch.Tensor) and each.requires_grad for each in self.inputs
        ):
            facts = facts_of(self.captured)
            compiled = self.trained = DoubleBackward(compiled, self.captured.forward, facts, bool(self.order))
        if spec is None:
            return compiled
        return lambda *args: pytree.tree_unflatten(list(compiled(*args)), spec)


@contextlib.contextmanager
def handoff(gm: torch.fx.GraphModule, inputs: Sequence[Any], *, exact: bool = False) -> Iterator[Handoff]:
    """Prepare a graph and set up the tracing context for the compiler that is called inside of the block.

    exact: operators are not decomposed, so that everything rounds as in eager.
    """
    keep_linalg_checks()
    ready = Handoff(gm, inputs, exact)
    if torch_compat.has_fakes(inputs):
        yield ready  # another front end is at work and has set up its own context
        return
    sources = _sources(ready.module, inputs)
    _mark(ready.module, sources, inputs)
    sizes, ambient = sizes_of(gm), TracingContext.try_get()
    if sizes is None and isinstance(ambient, NotingContext):  # derived by a user's backend
        ready.inputs = [ambient.fake_of(each) for each in inputs]
        ready.known_sizes = ambient.fake_mode.shape_env.hand_over()
        yield ready
        return
    if sizes is not None:
        env: Any = sizes.numbers.env
        mode = fake_mode.make(shape_env.for_a_backend(env))
        ready.inputs = fakes_for(gm, inputs, mode, sizes)
        ready.known_sizes = env.hand_over()
        context = TracingContext(mode)
    else:
        context = _static_context(inputs, sources)
    try:
        with tracing(context), free_texts_with(gm), compiling_backward_at_once(sizes is not None or has_numbers(gm)):
            yield ready
    finally:
        context.tensor_to_context.data.clear()
        if context.fake_mode is not None:
            torch_compat.forget_tensors(context.fake_mode)


def compiling_backward_at_once(now: bool) -> contextlib.AbstractContextManager[None]:
    """Make errors in compiling a backward surface at once, rather than at the first `backward()`.

    With symbolic sizes the backward is compiled along with the forward anyway; otherwise when it is first called.
    """
    return patches.replaced({"torch._functorch.config.force_non_lazy_backward_lowering": now})


def _static_context(inputs: Sequence[Any], sources: Sequence[InputSource]) -> TracingContext:
    """Return a tracing context for inputs of fixed sizes.

    It has a fake mode of its own: in the capture's mode, inputs that the graph writes to have been written to already.
    """
    context = TracingContext(fake_mode.make(shape_env.make_shape_env(scalars=True, shapes=True)))
    for tensor, source in zip(inputs, sources, strict=True):
        if isinstance(tensor, torch.Tensor) and tensor not in context.tensor_to_context:
            context.tensor_to_context[tensor] = static_context(tensor, source)
    return context


def _sources(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> list[InputSource]:
    """Return the source of each input; for a graph that was not captured here, its name only."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    if len(placeholders) != len(inputs):
        raise ValueError(f"the graph takes {len(placeholders)} inputs, and got {len(inputs)} examples")
    known = [node.meta.get("source") for node in placeholders]
    return [
        source if isinstance(source, InputSource) else InputSource(node.name, None, static=False)
        for source, node in zip(known, placeholders, strict=True)
    ]


def _mark(gm: torch.fx.GraphModule, sources: list[InputSource], inputs: Sequence[Any]) -> None:
    """Mark the graph's static inputs where possible.

    Graphs that own parameters are left out (their parameters would need sources, and are static anyway), and graphs
    that get one tensor twice (AOTAutograd fails to merge inputs that have sources, but manages without).
    """
    tensors = [id(value) for value in inputs if isinstance(value, torch.Tensor)]
    if len(set(tensors)) != len(tensors) or any(True for _ in gm.parameters()) or any(True for _ in gm.buffers()):
        return
    torch_compat.mark_graph(gm)
    for node, source in zip(gm.graph.find_nodes(op="placeholder"), sources, strict=True):
        torch_compat.mark_placeholder(node, source, source.static)


def _flatten_output(graph: torch.fx.Graph) -> pytree.TreeSpec | None:
    """Make the graph return a flat tuple; return its old structure, or None if it was flat already."""
    (output,) = graph.find_nodes(op="output")
    value = output.args[0]
    if isinstance(value, tuple) and not any(isinstance(item, (tuple, list, dict)) for item in value):
        return None
    leaves, spec = pytree.tree_flatten(_plain(value))
    output.args = (tuple(leaves),)
    return spec


def _plain(value: Any) -> Any:
    """Replace FX's own container classes by plain lists, dicts and tuples, because the graph would return them."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if type(value) is tuple:
        return tuple(_plain(item) for item in value)
    return value
