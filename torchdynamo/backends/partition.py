"""Split forward from backward, where torch's own partitions would change what a program sees.

With `torch._inductor.config.fallback_random` FX takes random numbers for a side effect, so that every draw of the
forward stays in the backward too, used or not, and the generator goes on by twice as much as in eager.

The minimum is found by computing again, in the backward, what is cheap, down to the inputs. Torch's own takes an input
that the forward writes to for one like any other, and computes from what is in it by then. So what such an input held
at first is a value of its own here, that is saved if the backward needs it.
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
Partition: TypeAlias = Callable[..., Any]  # of a joint graph and its inputs, into forward and backward


def drawing_once(partition: Partition) -> Partition:
    """Return a partition whose backward draws only the random numbers that it uses."""

    @functools.wraps(partition)
    def split(joint: torch.fx.GraphModule, inputs: Any, **kwargs: Any) -> Any:
        forward, backward = partition(joint, inputs, **kwargs)
        backward.graph.eliminate_dead_code(is_impure_node=lambda node: node.is_impure(impure_random=False))
        backward.recompile()
        return forward, backward

    return split


def min_cut(joint: torch.fx.GraphModule, inputs: Any, **kwargs: Any) -> Any:
    """Split forward from backward so that the least memory crosses over, recomputing what is cheap."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    keep_what_is_written_over(joint)
    return min_cut_rematerialization_partition(joint, inputs, **kwargs)


@functools.cache
def for_inductor() -> Any:
    """Return the same, as a setting of Inductor's: `custom_partitioner_fn`."""
    from torch._inductor.custom_graph_pass import CustomPartitionerFn

    class MinCut(CustomPartitionerFn):
        def __call__(self, gm: torch.fx.GraphModule, joint_inputs: Sequence[object], **kwargs: Any) -> Any:
            return drawing_once(min_cut)(gm, joint_inputs, **kwargs)

        def uuid(self) -> Any:
            return digest_of_sources()

        def __reduce__(self) -> Any:  # keys of Inductor's caches have all settings in them
            return for_inductor, ()

    return MinCut()


def keep_what_is_written_over(joint: torch.fx.GraphModule) -> None:
    """Give the first contents of inputs that the forward writes to a node, which is not to be computed again."""
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
    """Return the placeholders that are written to, by the last nodes of the graph or afterwards with one of its
    results.
    """
    within = {node.args[0] for node in joint.graph.find_nodes(op="call_function", target=aten.copy_.default)}
    (output,) = joint.graph.find_nodes(op="output")
    after = {getattr(result, "mutated_input", None) for result in output.meta.get("desc", ())} - {None}
    return [node for node in inputs if node in within or node.meta.get("desc") in after]


def reads(user: torch.fx.Node) -> bool:
    """Return whether a node computes something of the input: it does not write to it, nor return it."""
    return user.op != "output" and user.target is not aten.copy_.default
