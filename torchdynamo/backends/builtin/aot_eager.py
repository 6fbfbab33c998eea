"""AOTAutograd without a compiler behind it: forward and backward graphs of ATen operators, run one by one.

What differs between eager and these is AOTAutograd's doing; what differs between these and inductor is Inductor's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchdynamo.backends.aot import aot_autograd, as_it_is
from torchdynamo.backends.partition import min_cut
from torchdynamo.backends.registry import register_backend


def _inductors_decompositions() -> dict[Any, Callable[..., Any]]:
    from torch._inductor.decomposition import select_decomp_table

    return select_decomp_table()


register_backend(aot_autograd(as_it_is, keep_inference_input_mutations=True), name="aot_eager")
register_backend(
    aot_autograd(
        as_it_is,
        partition_fn=min_cut,
        decompositions=_inductors_decompositions,
        keep_inference_input_mutations=True,
    ),
    name="aot_eager_decomp_partition",
)
