"""Write results by turns to two places in memory, for programs that let go of a result before the call after next.

Results that outlive the next call are copied to new memory after a launch, which costs the host more than the launch
itself. Here the copy is captured with the rest, once for each place. A replay writes to a place whose results nobody
has any more; where there is none, the recording itself is replayed, and its results are copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from torchdynamo import _native
from torchdynamo.backends.cuda_graphs.device import Graph
from torchdynamo.backends.cuda_graphs.escape import Results
from torchdynamo.backends.cuda_graphs.slots import slot_for

if TYPE_CHECKING:
    from torchdynamo.backends.cuda_graphs.recording import Plan

PLACES = 2
MOST_BYTES = 4 << 20  # in one place: copying more takes the device longer than a launch takes the host


class ResultPlace(NamedTuple):
    """Memory for the results that are copied otherwise, in their order, and the capture that writes there."""

    memory: list[torch.Tensor]
    graph: Graph

    def for_native(self) -> tuple[Any, Any]:
        """Return how it is launched, and what lends its memory."""
        return self.graph.replay, _native.lender(self.memory)


def fits_in_places(results: Results) -> bool:
    """Return whether all results of a recording that are new memory would be copied one by one, and are small."""
    sources = [each for _, group in results.copied for each in group]
    others = results.shared or results.lent[0] or results.saved[0]
    return bool(sources) and not others and sum(each.nbytes for each in sources) <= MOST_BYTES


def captured_place(
    plan: Plan, results: Results, captured: Sequence[Any], pool: Any, generators: Sequence[torch.Generator]
) -> ResultPlace:
    """Capture a graph for a place of its own. captured: inputs of the capture that had these results."""
    groups = [(positions, [slot_for(each) for each in sources]) for positions, sources in results.copied]

    def run(given: list[Any]) -> list[Any]:
        made = as_list(plan.run(given))
        for positions, memory in groups:
            torch._foreach_copy_(memory, [made[at] for at in positions])
        return []

    graph, _ = plan.device.capture(run, list(captured), pool, plan.place.index or 0, generators)
    return ResultPlace([each for _, memory in groups for each in memory], graph)


def as_list(made: Any) -> list[Any]:
    """Return the results of a graph, of which it may return one alone, as a list."""
    return list(made) if isinstance(made, (list, tuple)) else [made]
