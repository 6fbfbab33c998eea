"""By how much an index grows with a variable of its loop, which Inductor asks of sympy to choose loops to vectorize.

For divisions in divisions (relative shifts of attention) sympy takes from a second to minutes over each, and finds no
number. There the answer is at once what sympy would give in the end: an expression that the variable is in.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torchdynamo.graph import patches


@contextlib.contextmanager
def told_at_once() -> Iterator[None]:
    """Answer so while this is open, or a function runs that is wrapped in it."""
    target = "torch._inductor.codegen.cpp.stride_at_vec_range"
    asked = patches.held(*patches.place(target))

    def told(index: Any, var: Any, vec_length: int | None = None) -> Any:
        return var if nested(index, var) else asked(index, var, vec_length)

    with patches.replaced({target: told}):
        yield


def nested(index: Any, var: Any) -> bool:
    """Return whether the variable is in a division in a division."""
    from torch.utils._sympy.functions import FloorDiv, ModularIndexing

    divisions = [each for each in index.atoms(FloorDiv, ModularIndexing) if each.has(var)]
    return any(inner is not each and each.has(inner) for each in divisions for inner in divisions)
