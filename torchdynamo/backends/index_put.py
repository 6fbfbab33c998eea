"""Store `index_put` values of unknown size (`x[:2]` with dynamic shapes) by eager's kernel, which broadcasts them.

Inductor's own loop assumes that their size is that of the indices, and would read past the end of a size of 1.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any


def of_any_size(index_put: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap Inductor's lowering of `index_put` so that values of unknown size go to eager's kernel."""
    lowering: Any = importlib.import_module("torch._inductor.lowering")
    shapes: Any = importlib.import_module("torch.fx.experimental.symbolic_shapes")

    def put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool, *args: Any, **kwargs: Any) -> Any:
        if shapes.free_unbacked_symbols(values.get_size()):
            apart = lowering.clone(values)  # they may be a view of the tensor that is written to
            return lowering.index_put_fallback(x, indices, apart, accumulate)
        return index_put(x, indices, values, accumulate, *args, **kwargs)

    return put
