"""Changes a graph of ATen operators before Inductor's own passes, so that these do not change what it computes.

A row for each of Inductor's faults: attention (`attention.py`); products with 0, which it takes for 0 whatever the
other factor is (of nan and infinity they are nan); divisions of integers by zero, which end the process on a CPU;
negative indices, which an older Inductor counts from the end where eager refuses them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from torchdynamo.backends import attention
from torchdynamo.backends.cache_key import digest_of_sources
from torchdynamo.graph import torch_compat

aten, prims = torch.ops.aten, torch.ops.prims


def keep_products_with_zero(graph: torch.fx.Graph) -> None:
    """Write the integer 0 as a float where it is multiplied with floats: Inductor folds the integer only."""
    for target in (aten.mul.Tensor, aten.mul.Scalar):
        for node in graph.find_nodes(op="call_function", target=target):
            example = node.meta.get("val")
            if isinstance(example, torch.Tensor) and (example.is_floating_point() or example.is_complex()):
                node.args = tuple(0.0 if isinstance(each, int) and each == 0 else each for each in node.args)


BY_TENSORS = {  # divisions of integers, and what they are where the divisor is a tensor
    aten.div.Tensor_mode: aten.div.Tensor_mode,
    aten.div.Scalar_mode: aten.div.Tensor_mode,
    aten.remainder.Tensor: aten.remainder.Tensor,
    aten.remainder.Scalar: aten.remainder.Tensor,
    aten.remainder.Scalar_Tensor: aten.remainder.Scalar_Tensor,
    aten.fmod.Tensor: aten.fmod.Tensor,
    aten.fmod.Scalar: aten.fmod.Tensor,
}


def refuse_zero_divisors(graph: torch.fx.Graph) -> None:
    """Have kernels look whether integers are divided by zero.

    A zero becomes an index that is too large, which they look for: they raise, and eager says what is wrong.
    """
    for node in [each for target in BY_TENSORS for each in graph.find_nodes(op="call_function", target=target)]:
        divisor, example = node.args[1], node.meta["val"]
        if divisor and not isinstance(divisor, torch.fx.Node):  # a number, and no zero
            continue
        if not example.is_floating_point() and example.device.type == "cpu":
            with graph.inserting_before(node):
                node.update_arg(1, looked_at(graph, divisor, example))
            node.target = BY_TENSORS[node.target]


def looked_at(graph: torch.fx.Graph, divisor: Any, example: torch.Tensor) -> torch.fx.Node:
    """Add what looks whether a divisor is zero; return the divisor, as a tensor."""
    if not isinstance(divisor, torch.fx.Node) or not isinstance(divisor.meta["val"], torch.Tensor):
        divisor = added(graph, aten.full.default, [], divisor, dtype=example.dtype, device=example.device)
    dtype = divisor.meta["val"].dtype
    zero = added(graph, aten.eq.Scalar, divisor, 0)
    index = added(graph, prims.convert_element_type.default, zero, torch.int64)
    one = added(graph, aten.full.default, [1], 1, dtype=dtype, device=example.device)
    looked = added(graph, aten.index.Tensor, one, [index])
    return added(graph, aten.where.self, zero, looked, divisor)


NOT_NEGATIVE = {aten.gather.default: 2, aten.embedding.default: 1}  # operators, and which argument has indices


def refuse_negative_indices(graph: torch.fx.Graph) -> None:
    """Make negative indices too large, on a CPU: kernels look for that and raise, and eager says what is wrong."""
    for target, place in NOT_NEGATIVE.items():
        for node in graph.find_nodes(op="call_function", target=target):
            example = node.args[place].meta["val"]
            if example.device.type == "cpu":
                with graph.inserting_before(node):
                    node.update_arg(place, too_large_if_negative(graph, node.args[place], example))


def too_large_if_negative(graph: torch.fx.Graph, index: torch.fx.Node, example: torch.Tensor) -> torch.fx.Node:
    """Add what makes negative indices the largest number of their dtype; return the indices."""
    largest = torch.iinfo(example.dtype).max
    late = added(graph, aten.full.default, [], largest, dtype=example.dtype, device=example.device)
    return added(graph, aten.where.self, added(graph, aten.lt.Scalar, index, 0), late, index)


def fake_mode_of(graph: torch.fx.Graph) -> Any:
    """Return the mode in which the graph was traced."""
    examples = (node.meta.get("val") for node in graph.nodes)
    return next(each.fake_mode for each in examples if torch_compat.has_fakes([each]))


def added(graph: torch.fx.Graph, target: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
    """Add a node; return it."""
    node = graph.call_function(target, args, kwargs)
    fakes, settings = torch.fx.map_arg((args, kwargs), lambda each: each.meta["val"])
    with fake_mode_of(graph):
        node.meta["val"] = target(*fakes, **settings)
    return node


PASSES: tuple[Callable[[torch.fx.Graph], None], ...] = (
    attention.keep_apart,
    keep_products_with_zero,
    refuse_zero_divisors,
)
if torch_compat.INDUCTOR_HAS_OLD_EDGES:
    PASSES = (*PASSES, refuse_negative_indices)


@functools.cache
def before_inductors() -> Any:
    """Return the passes as a value of Inductor's setting `joint_custom_pre_pass`."""
    from torch._inductor.custom_graph_pass import CustomGraphPass

    class Passes(CustomGraphPass):
        def __call__(self, graph: torch.fx.Graph) -> None:
            for each in PASSES:
                each(graph)

        def uuid(self) -> Any:
            return digest_of_sources()

        def __reduce__(self) -> Any:  # keys of Inductor's caches have all settings in them
            return before_inductors, ()

    return Passes()
