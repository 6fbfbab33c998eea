"""`index_put` of values whose size Inductor does not know (`x[:2]` where sizes vary): eager's kernel broadcasts them.

Inductor's own loop would take the size for that of the indices, and a size of 1 would be read past its end.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any


def of_any_size(index_put: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap Inductor's lowering of `index_put`, so that values of a size that is not known go to eager's kernel."""
    lowering: Any = importlib.import_module("torch._inductor.lowering")
    shapes: Any = importlib.import_module("torch.fx.experimental.symbolic_shapes")

    def put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool, *args: Any, **kwargs: Any) -> Any:
        if shapes.free_unbacked_symbols(values.get_size()):
            apart = lowering.clone(values)  # may be a view of what is written to
            return lowering.index_put_fallback(x, indices, apart, accumulate)
        return index_put(x, indices, values, accumulate, *args, **kwargs)

    return put
