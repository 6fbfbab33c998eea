"""Run graphs on NVIDIA GPUs in TensorRT, which Torch-TensorRT converts them to: the whole graph or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchdynamo.backends.ensemble.exported import exported, last_line, undisturbed_build
from torchdynamo.backends.ensemble.integer_values import Integers, index_checks
from torchdynamo.backends.ensemble.member import Declined, Member, register_member
from torchdynamo.backends.ensemble.requirements import FOREIGN, on_cuda, package
from torchdynamo.backends.ensemble.subgraph import Subgraph
from torchdynamo.backends.ensemble.trusted_operators import must_be_trusted

_DTYPES = frozenset({torch.float32, torch.float16, torch.bool, torch.int64, torch.int32})


def build(subgraph: Subgraph) -> Callable[..., Any]:
    """Compile the graph in float32 as it is. Raises Declined for what TensorRT cannot do, or an index among inputs."""
    import torch_tensorrt

    form = exported(subgraph)
    inputs = [subgraph.example_inputs[position] for position in subgraph.moving]
    with undisturbed_build():
        integers = Integers(form.program)
        must_be_trusted(form.program, integers, dtypes=_DTYPES)
        if index_checks(form.program, integers):
            raise Declined("indices are inputs of the graph, and testing them would wait for the GPU")
        try:
            compiled = torch_tensorrt.dynamo.compile(
                form.program, inputs, require_full_compilation=True, disable_tf32=True, use_explicit_typing=True
            )
        except Exception as error:
            raise Declined(f"TensorRT cannot compile it: {last_line(error)}") from error

    def run(*args: torch.Tensor) -> Any:
        with torch.no_grad():
            found = compiled(*(each.contiguous() for each in args))
        results = [
            torch.empty_strided(layout.shape, layout.strides, dtype=layout.dtype, device=each.device).copy_(each)
            for each, layout in zip(found, form.outputs, strict=True)
        ]
        return form.rebuild(*results)

    return run


MEMBER = register_member(
    Member(
        name="tensorrt",
        build=build,
        requires=(
            *FOREIGN,
            package("torch_tensorrt", "tensorrt"),
            on_cuda,
        ),
        cost=30.0,
        rank=80,
        isolated=True,
        makes_constants=True,
    )
)
