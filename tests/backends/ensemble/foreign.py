"""Graphs for members of the ensemble that are other people's runtimes, and what such a member makes of them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import torchdynamo
from torchdynamo.backends.ensemble.member import MEMBERS, Declined, Run, why_declined
from torchdynamo.backends.ensemble.subgraph import Subgraph

NEEDED = {"onnxruntime": ("onnxruntime", "onnx", "onnxscript"), "openvino": ("openvino",), "tvm": ("tvm",)}
BACKENDS = {"onnxruntime": "onnxrt", "openvino": "openvino", "tvm": "tvm"}
"""Name of the member -> name of the backend that it is by itself."""


def needs(member: str) -> None:
    """Skip the test where a package of this member's is not installed."""
    missing = [package for package in NEEDED[member] if importlib.util.find_spec(package) is None]
    if missing:
        pytest.skip(f"{member} needs {missing[0]}, which `make backends` installs")


def subgraph_of(fn: Callable[..., Any], *inputs: torch.Tensor, constants: bool = False) -> Subgraph:
    """Capture a function or module that is one graph."""
    found: list[Subgraph] = []

    def keep(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        found.append(Subgraph(gm, example_inputs, constants=constants))
        return gm.forward

    with torch.no_grad():
        torchdynamo.compile(fn, backend=keep, fullgraph=True, dynamic=False)(*inputs)
    (subgraph,) = found
    return subgraph


def build(member: str, subgraph: Subgraph) -> Run:
    """Build a graph by a member, which must not decline."""
    with torch.no_grad():
        reason = why_declined(MEMBERS[member], subgraph)
        assert reason is None, reason
        return MEMBERS[member].build(subgraph)


def reason_of(member: str, subgraph: Subgraph) -> str:
    """Return why a member declines a graph, as it must."""
    with torch.no_grad():
        reason = why_declined(MEMBERS[member], subgraph)
        if reason is None:
            with pytest.raises(Declined) as declined:
                MEMBERS[member].build(subgraph)
            reason = str(declined.value)
    return reason


def moving(subgraph: Subgraph) -> list[Any]:
    """Return the inputs that a run takes."""
    return [subgraph.example_inputs[position] for position in subgraph.moving]


def assert_as_eager(found: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    """Compare results: how they are nested, and values, dtypes and strides of tensors."""
    assert pytree.tree_structure(found) == pytree.tree_structure(wanted)
    for one, other in zip(pytree.tree_leaves(found), pytree.tree_leaves(wanted), strict=True):
        assert type(one) is type(other), (found, wanted)
        if isinstance(one, torch.Tensor):
            torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
            assert one.stride() == other.stride()
            assert one.requires_grad == other.requires_grad
        else:
            assert one == other
