"""Run the graphs of ATen operators that AOTAutograd makes, forward and backward, operator by operator.

If results differ between `eager` and these backends, AOTAutograd is the cause; if they differ between these and
`inductor`, Inductor is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchdynamo.backends.aot import aot_autograd, operator_by_operator
from torchdynamo.backends.partition import min_cut
from torchdynamo.backends.registry import register_backend


def _inductors_decompositions() -> dict[Any, Callable[..., Any]]:
    from torch._inductor.decomposition import select_decomp_table

    return select_decomp_table()


register_backend(aot_autograd(operator_by_operator, keep_inference_input_mutations=True), name="aot_eager")
register_backend(
    aot_autograd(
        operator_by_operator,
        partition_fn=min_cut,
        decompositions=_inductors_decompositions,
        keep_inference_input_mutations=True,
    ),
    name="aot_eager_decomp_partition",
)
