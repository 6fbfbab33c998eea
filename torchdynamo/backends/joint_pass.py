"""Rewrite ATen graphs before Inductor's own passes, so that these keep their results.

One pass per fault of Inductor: attention (`attention.py`); products with 0, which it folds to 0 although nan and
infinity give nan; integer divisions by zero, which end the process on a CPU; negative indices, which an older Inductor
counts from the end where eager refuses them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from torchdynamo.backends import attention
from torchdynamo.backends.cache_key import digest_of_sources
from torchdynamo.backends.region_invariants import hoist_invariants
from torchdynamo.backends.region_results import separate_results
from torchdynamo.graph import torch_compat

aten, prims = torch.ops.aten, torch.ops.prims


def keep_products_with_zero(graph: torch.fx.Graph) -> None:
    """Replace the integer 0 by 0.0 in products with floats: Inductor folds only the integer."""
    for target in (aten.mul.Tensor, aten.mul.Scalar):
        for node in graph.find_nodes(op="call_function", target=target):
            example = node.meta.get("val")
            if isinstance(example, torch.Tensor) and (example.is_floating_point() or example.is_complex()):
                node.args = tuple(0.0 if isinstance(each, int) and each == 0 else each for each in node.args)


BY_TENSORS = {  # integer division -> its overload whose divisor is a tensor
    aten.div.Tensor_mode: aten.div.Tensor_mode,
    aten.div.Scalar_mode: aten.div.Tensor_mode,
    aten.remainder.Tensor: aten.remainder.Tensor,
    aten.remainder.Scalar: aten.remainder.Tensor,
    aten.remainder.Scalar_Tensor: aten.remainder.Scalar_Tensor,
    aten.fmod.Tensor: aten.fmod.Tensor,
    aten.fmod.Scalar: aten.fmod.Tensor,
}


def refuse_zero_divisors(graph: torch.fx.Graph) -> None:
    """Make CPU kernels raise where integers are divided by zero.

    A zero divisor becomes an index that is out of bounds, which kernels check; the graph then runs again in eager,
    which raises the right error.
    """
    for node in [each for target in BY_TENSORS for each in graph.find_nodes(op="call_function", target=target)]:
        divisor, example = node.args[1], node.meta["val"]
        if divisor and not isinstance(divisor, torch.fx.Node):  # a nonzero constant
            continue
        if not example.is_floating_point() and example.device.type == "cpu":
            with graph.inserting_before(node):
                node.update_arg(1, checked_divisor(graph, divisor, example))
            node.target = BY_TENSORS[node.target]


def checked_divisor(graph: torch.fx.Graph, divisor: Any, example: torch.Tensor) -> torch.fx.Node:
    """Add nodes that raise if a divisor is zero; return the divisor as a tensor."""
    if not isinstance(divisor, torch.fx.Node) or not isinstance(divisor.meta["val"], torch.Tensor):
        divisor = add_call(graph, aten.full.default, [], divisor, dtype=example.dtype, device=example.device)
    dtype = divisor.meta["val"].dtype
    zero = add_call(graph, aten.eq.Scalar, divisor, 0)
    index = add_call(graph, prims.convert_element_type.default, zero, torch.int64)
    one = add_call(graph, aten.full.default, [1], 1, dtype=dtype, device=example.device)
    looked = add_call(graph, aten.index.Tensor, one, [index])
    return add_call(graph, aten.where.self, zero, looked, divisor)


NOT_NEGATIVE = {aten.gather.default: 2, aten.embedding.default: 1}  # operator -> position of its indices


def refuse_negative_indices(graph: torch.fx.Graph) -> None:
    """Make CPU kernels raise on negative indices, by replacing them with ones that are too large."""
    for target, place in NOT_NEGATIVE.items():
        for node in graph.find_nodes(op="call_function", target=target):
            example = node.args[place].meta["val"]
            if example.device.type == "cpu":
                with graph.inserting_before(node):
                    node.update_arg(place, too_large_if_negative(graph, node.args[place], example))


def too_large_if_negative(graph: torch.fx.Graph, index: torch.fx.Node, example: torch.Tensor) -> torch.fx.Node:
    """Add nodes that replace negative indices by the largest number of their dtype; return the result."""
    largest = torch.iinfo(example.dtype).max
    late = add_call(graph, aten.full.default, [], largest, dtype=example.dtype, device=example.device)
    return add_call(graph, aten.where.self, add_call(graph, aten.lt.Scalar, index, 0), late, index)


def fake_mode_of(graph: torch.fx.Graph) -> Any:
    """Return the fake mode in which the graph was traced."""
    examples = (node.meta.get("val") for node in graph.nodes)
    return next(each.fake_mode for each in examples if torch_compat.has_fakes([each]))


def add_call(graph: torch.fx.Graph, target: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
    """Add a call to the graph with its fake result as `meta["val"]`; return the node."""
    node = graph.call_function(target, args, kwargs)
    fakes, settings = torch.fx.map_arg((args, kwargs), lambda each: each.meta["val"])
    with fake_mode_of(graph):
        node.meta["val"] = target(*fakes, **settings)
    return node


PASSES: tuple[Callable[[torch.fx.Graph], None], ...] = (
    attention.keep_apart,
    keep_products_with_zero,
    refuse_zero_divisors,
    hoist_invariants,
    separate_results,
)
if torch_compat.INDUCTOR_HAS_OLD_EDGES:
    PASSES = (*PASSES, refuse_negative_indices)


@functools.cache
def before_inductors() -> Any:
    """Return the passes as a value for Inductor's setting `joint_custom_pre_pass`."""
    from torch._inductor.custom_graph_pass import CustomGraphPass

    class Passes(CustomGraphPass):
        def __call__(self, graph: torch.fx.Graph) -> None:
            for each in PASSES:
                each(graph)

        def uuid(self) -> Any:
            return digest_of_sources()

        def __reduce__(self) -> Any:  # keys of Inductor's caches include all settings, pickled
            return before_inductors, ()

    return Passes()
