"""Give Inductor a graph whose repeated blocks are one body that is called, so that it compiles them once.

Only the copy of the graph that Inductor gets is changed: the captured graph, which runs where a compiled one fails, and
which reports show, stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import torch.fx
from torch._guards import HopDispatchSetCache, TracingContext

from torchdynamo import config
from torchdynamo.backends.joint_pass import before_inductors
from torchdynamo.backends.settings import LOG, split_choice
from torchdynamo.graph import torch_compat
from torchdynamo.graph.mutation import effects_of
from torchdynamo.graph.regions.blocks import CannotOutline, require_gradients
from torchdynamo.graph.regions.families import Limits
from torchdynamo.graph.regions.outline import outline

Choice = bool | str
OPTION = "regions"
LIMITS = {True: Limits(), "auto": Limits(least_blocks=6, most_lost=0.05)}
NEED_WHOLE_GRAPHS = ("freezing", "cpp_wrapper")  # settings of Inductor
_KEY = "torchdynamo_regions"


class RegionsOutcome(NamedTuple):
    """The regions of a graph, in words, and why there are none (or "")."""

    families: tuple[str, ...]
    why_not: str = ""

    def __str__(self) -> str:
        return ", ".join(self.families) or f"none: {self.why_not}"


def choice_in(options: Mapping[str, Any] | None) -> tuple[Choice, Mapping[str, Any] | None]:
    """Split options into whether regions are wanted, by default `config.regions`, and the other options.

    Raises UnknownSetting for a choice that is neither a bool nor "auto".
    """
    return split_choice(options, OPTION, config.regions, "auto")


def outlined(module: torch.fx.GraphModule, captured: torch.fx.GraphModule, wanted: Choice, patches: Any) -> None:
    """Outline the regions of a graph for Inductor, in place, if they are wanted.

    module: a copy of the `captured` graph, in whose `meta` the outcome is noted. patches: Inductor's settings for it.
    """
    if wanted is False:
        return
    try:
        captured.meta[_KEY] = found(module, captured, LIMITS[wanted], patches)
    except CannotOutline as refused:
        captured.meta[_KEY] = RegionsOutcome((), str(refused))


def found(module: torch.fx.GraphModule, captured: torch.fx.GraphModule, limits: Limits, patches: Any) -> RegionsOutcome:
    """Outline the regions of a graph; raise CannotOutline if it has none, or must stay whole."""
    from torch import _inductor
    from torch._higher_order_ops.invoke_subgraph import invoke_subgraph

    inductors: Any = _inductor.config
    with inductors.patch(patches):
        whole = [name for name in NEED_WHOLE_GRAPHS if getattr(inductors, name)]
        if inductors.joint_custom_pre_pass is not before_inductors() or not inductors.use_joint_graph_passes:
            whole.append("joint_custom_pre_pass")
    effects, context = effects_of(captured), TracingContext.try_get()
    if context is None:
        raise CannotOutline("the front end at work does not support them")
    if not torch_compat.BODIES_HAVE_BACKWARDS and is_differentiated(captured.graph):
        raise CannotOutline("this version of torch supports them in graphs without gradients only")
    if whole:
        raise CannotOutline(f"Inductor's setting {whole[0]!r} is for whole graphs")
    if effects.random:
        raise CannotOutline("the graph draws random numbers")
    if effects.overwritten is None:
        raise CannotOutline("it is not known what the graph writes to")
    families = outline(module, effects.overwritten, limits, invoke_subgraph)
    # Bodies are remembered in the context by their names, and a context may have seen another graph.
    context.hop_dispatch_set_cache = HopDispatchSetCache()
    return RegionsOutcome(tuple(map(str, families)))


def is_differentiated(graph: torch.fx.Graph) -> bool:
    """Return whether AOTAutograd makes a backward of a graph."""
    inputs = graph.find_nodes(op="placeholder") if torch.is_grad_enabled() else []
    return require_gradients((*inputs, *graph.output_node().all_input_nodes))


def left_whole(captured: torch.fx.GraphModule, error: Exception) -> bool:
    """Note that Inductor failed on the regions of a graph, which is to be compiled whole; False if it had none."""
    outcome = outcome_of(captured)
    if outcome is None or not outcome.families:
        return False
    reason = f"Inductor fails on its blocks: {error}".splitlines()[0]
    LOG.warning("a graph is compiled without regions: %s", reason)
    captured.meta[_KEY] = RegionsOutcome((), reason)
    return True


def outcome_of(captured: torch.fx.GraphModule) -> RegionsOutcome | None:
    """Return what became of a graph's regions; None if none were wanted."""
    known = captured.meta.get(_KEY)
    return known if isinstance(known, RegionsOutcome) else None
