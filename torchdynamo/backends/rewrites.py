"""Rewrite the copy of a graph that a compiler gets, where another operator computes the same faster.

Only for compilers that need not round as eager does. The captured graph, which runs where a compiled one fails, and
which second derivatives are computed from, stays as it is. What a rewrite takes for granted of the contents of inputs
is checked in each call (`checked_contents.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.fx

from torchdynamo import config
from torchdynamo.backends.checked_contents import CheckedContents, can_be_checked
from torchdynamo.backends.settings import LOG, split_choice
from torchdynamo.errors import UnknownSetting
from torchdynamo.graph import torch_compat
from torchdynamo.graph.inputs import InputSource
from torchdynamo.graph.mutation import effects_of
from torchdynamo.graph.passes.attention.in_place import is_write
from torchdynamo.graph.passes.attention.masks import Evaluator
from torchdynamo.graph.passes.attention.match import rewrite
from torchdynamo.graph.passes.foreach.match import rewrite_updates
from torchdynamo.graph.passes.found import Found
from torchdynamo.graph.passes.losses.match import rewrite_losses
from torchdynamo.graph.passes.losses.plan import LossPlan

OPTION, LOSS_CHUNKS, LOSS_BYTES = "rewrites", "loss_chunks", "loss_bytes"
_KEY = "torchdynamo_rewrites"


class RewritesOutcome(NamedTuple):
    """Findings of the rewrites of a graph."""

    found: tuple[Found, ...]

    def lines(self) -> list[str]:
        """Return a line for each place and what became of it, with how often that was."""
        return [text_of(each, count) for each, count in Counter(self.found).items()]


def text_of(found: Found, count: int) -> str:
    """Return what became of one place."""
    where = f" at {found.place.filename}:{found.place.line}" if found.place is not None else ""
    times = f" ({count} times)" if count > 1 else ""
    return f"{found.what}{where}{' is left as written' if found.missed else ''}: {found.how}{times}"


class WantedRewrites(NamedTuple):
    """Which rewrites are wanted: any at all, and in how many chunks losses are computed (None: as they are written)."""

    on: bool = True
    losses: LossPlan | None = None


def choice_in(options: Mapping[str, Any] | None) -> tuple[WantedRewrites, Mapping[str, Any] | None]:
    """Split options into which rewrites are wanted, by default as `config.rewrites`, and the other options.

    Raises UnknownSetting for "rewrites" that is not a bool, "loss_chunks" that is neither "auto" nor a number of
    chunks, and "loss_bytes" that is no number of bytes.
    """
    on, options = split_choice(options, OPTION, config.rewrites)
    given = dict(options or {})
    asked, size = given.pop(LOSS_CHUNKS, None), given.pop(LOSS_BYTES, None)
    if asked not in (None, "auto") and (type(asked) is not int or asked < 1):
        raise UnknownSetting(f"options[{LOSS_CHUNKS!r}] is 'auto' or a number of chunks, and not {asked!r}")
    if size is not None and (type(size) is not int or size < 1):
        raise UnknownSetting(f"options[{LOSS_BYTES!r}] is a number of bytes, and not {size!r}")
    if asked is None and size is None:
        return WantedRewrites(on), options
    return WantedRewrites(on, LossPlan(None if asked == "auto" else asked, size)), given


def rewritten(
    module: torch.fx.GraphModule,
    captured: torch.fx.GraphModule,
    inputs: Sequence[Any],
    patches: Mapping[str, Any],
    *,
    by_contents: bool,
    losses: LossPlan | None = None,
) -> CheckedContents | None:
    """Rewrite a graph for Inductor, in place; return the contents of inputs that this rests on, or None.

    module: a copy of the `captured` graph, in whose `meta` the outcome is noted. patches: Inductor's settings for it.
    by_contents: buffers may be looked at. losses: in how many chunks losses are computed, if that is wanted.
    """
    if not all("example_value" in node.meta for node in captured.graph.nodes):
        return None  # from elsewhere
    overwritten = effects_of(captured).overwritten
    buffers = buffers_in(module, inputs) if by_contents and overwritten is not None else {}
    buffers.update(frozen_in(module))
    readers = {node: list(node.users) for node in buffers}
    random = not draws_as_eager(patches)
    outcomes = [rewrite(module.graph, Evaluator(buffers, written_in(module.graph, overwritten)), random=random)]
    for node in module.graph.find_nodes(op="get_attr"):
        body = getattr(module, str(node.target), None)
        if isinstance(body, torch.fx.GraphModule):
            outcomes.append(rewrite(body.graph, Evaluator({}, written_in(body.graph, None)), random=random))
            body.recompile()
    found = [each for outcome in outcomes for each in outcome.found]
    if losses is not None:
        found += rewrite_losses(module.graph, losses)
    found += rewrite_updates(module.graph)
    captured.meta[_KEY] = RewritesOutcome(tuple(found))
    if all(each.missed for each in found):
        return None
    module.recompile()
    places = {node: at for at, node in enumerate(module.graph.find_nodes(op="placeholder"))}
    return CheckedContents.of({places[node]: readers[node] for node in outcomes[0].proven_by}, inputs)


def outcome_of(captured: torch.fx.GraphModule) -> RewritesOutcome | None:
    """Return what the rewrites of a graph have found; None if there were none."""
    known = captured.meta.get(_KEY)
    return known if isinstance(known, RewritesOutcome) else None


def forget_outcome(captured: torch.fx.GraphModule) -> None:
    """Forget the outcome of an earlier compilation of a graph."""
    captured.meta.pop(_KEY, None)


def left_as_written(captured: torch.fx.GraphModule, error: Exception) -> bool:
    """Note that Inductor failed on a rewritten graph, which is to be compiled as written; False if nothing was."""
    outcome = outcome_of(captured)
    if outcome is None or all(each.missed for each in outcome.found):
        return False
    reason = f"Inductor fails on what it becomes: {error}".splitlines()[0]
    LOG.warning("a graph is compiled without rewrites: %s", reason)
    left = (each if each.missed else each._replace(how=reason, missed=True) for each in outcome.found)
    captured.meta[_KEY] = RewritesOutcome(tuple(left))
    return True


def pass_on(captured: torch.fx.GraphModule, copy: torch.fx.GraphModule, found: Sequence[Found]) -> None:
    """Note for a graph what was found before its copy was compiled, and what the rewrites of that copy have found."""
    known = outcome_of(copy)
    captured.meta[_KEY] = RewritesOutcome((*found, *(known.found if known is not None else ())))


def buffers_in(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> dict[torch.fx.Node, torch.Tensor]:
    """Return the inputs whose contents are likely to stay: tensors of modules that are no parameters."""
    if torch_compat.has_fakes(inputs):
        return {}
    found = {}
    for node, value in zip(module.graph.find_nodes(op="placeholder"), inputs, strict=True):
        source = node.meta.get("source")
        if isinstance(source, InputSource) and source.static and can_be_checked(value):
            found[node] = value
    return found


def frozen_in(module: torch.fx.GraphModule) -> dict[torch.fx.Node, torch.Tensor]:
    """Return the inputs that are constants of the module, which whoever made them so checks."""
    values = {node: getattr(module, str(node.target), None) for node in module.graph.find_nodes(op="get_attr")}
    return {
        node: value
        for node, value in values.items()
        if isinstance(value, torch.Tensor) and isinstance(node.meta.get("source"), InputSource)
    }


def written_in(graph: torch.fx.Graph, known: Collection[str] | None) -> Collection[str]:
    """Return the names of nodes in memory that a graph writes to; all nodes, if that is not known and it writes."""
    if known is not None:
        return known
    return {node.name for node in graph.nodes} if any(map(is_write, graph.nodes)) else frozenset()


def draws_as_eager(patches: Mapping[str, Any]) -> bool:
    """Return whether Inductor is asked for eager's random numbers, which the operators that are put in do not draw."""
    from torch import _inductor

    inductors: Any = _inductor.config
    return bool(patches.get("fallback_random", inductors.fallback_random))
