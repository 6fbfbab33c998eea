"""Split forward from backward where torch's own partitioners would change results or random numbers.

With `torch._inductor.config.fallback_random`, FX counts drawing random numbers as a side effect, so every draw of the
forward would stay in the backward as well, and the generator would advance twice as far as in eager.

The min-cut partitioner recomputes cheap values in the backward, down to the inputs. Torch's own ignores that the
forward may have written to an input, and recomputes from the new contents. Here the first contents of such an input are
a value of their own, saved if the backward needs them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
import torch.fx
from torch.utils.checkpoint import CheckpointPolicy

from torchdynamo.backends.cache_key import digest_of_sources

aten = torch.ops.aten
Partition: TypeAlias = Callable[..., Any]  # (joint graph, inputs) -> (forward, backward)


def without_extra_draws(partition: Partition) -> Partition:
    """Wrap a partitioner so that its backward draws only the random numbers that it uses."""

    @functools.wraps(partition)
    def split(joint: torch.fx.GraphModule, inputs: Any, **kwargs: Any) -> Any:
        forward, backward = partition(joint, inputs, **kwargs)
        backward.graph.eliminate_dead_code(is_impure_node=lambda node: node.is_impure(impure_random=False))
        backward.recompile()
        return forward, backward

    return split


def min_cut(joint: torch.fx.GraphModule, inputs: Any, **kwargs: Any) -> Any:
    """Split forward from backward so that the fewest bytes are saved, recomputing what is cheap."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    save_overwritten_inputs(joint)
    return min_cut_rematerialization_partition(joint, inputs, **kwargs)


@functools.cache
def for_inductor() -> Any:
    """Return the min-cut partitioner as a value for Inductor's setting `custom_partitioner_fn`."""
    from torch._inductor.custom_graph_pass import CustomPartitionerFn

    class MinCut(CustomPartitionerFn):
        def __call__(self, gm: torch.fx.GraphModule, joint_inputs: Sequence[object], **kwargs: Any) -> Any:
            return without_extra_draws(min_cut)(gm, joint_inputs, **kwargs)

        def uuid(self) -> Any:
            return digest_of_sources()

        def __reduce__(self) -> Any:  # keys of Inductor's caches include all settings, pickled
            return for_inductor, ()

    return MinCut()


def save_overwritten_inputs(joint: torch.fx.GraphModule) -> None:
    """Clone, at the graph's beginning, the inputs that the forward writes to, and never recompute the clones."""
    graph = joint.graph
    inputs = graph.find_nodes(op="placeholder")
    written = [node for node in written_inputs(joint, inputs) if any(map(reads, node.users))]
    for node in written:
        with graph.inserting_after(inputs[-1]):
            kept = graph.call_function(aten.clone.default, (node,))
        kept.meta.update(val=node.meta["val"].clone(), recompute=CheckpointPolicy.MUST_SAVE)
        for user in [user for user in node.users if user is not kept and reads(user)]:
            user.replace_input_with(node, kept)
    if written:
        joint.recompile()


def written_inputs(joint: torch.fx.GraphModule, inputs: list[torch.fx.Node]) -> list[torch.fx.Node]:
    """Return the inputs that are written to: by the graph's last nodes, or by its caller, from a result."""
    within = {node.args[0] for node in joint.graph.find_nodes(op="call_function", target=aten.copy_.default)}
    (output,) = joint.graph.find_nodes(op="output")
    after = {getattr(result, "mutated_input", None) for result in output.meta.get("desc", ())} - {None}
    return [node for node in inputs if node in within or node.meta.get("desc") in after]


def reads(user: torch.fx.Node) -> bool:
    """Return whether a node computes something from an input, rather than writing to it or returning it."""
    return user.op != "output" and user.target is not aten.copy_.default
