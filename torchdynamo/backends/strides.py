"""Answer slow stride queries of Inductor's CPU vectorizer without sympy.

To choose the loops to vectorize, Inductor asks sympy by how much an index grows with a loop variable. For nested
divisions (relative shifts of attention) sympy takes between a second and minutes, and finds no number. For those the
answer is given at once: an expression that contains the variable, as sympy would find in the end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torchdynamo.graph import patches


@contextlib.contextmanager
def skip_sympy_strides() -> Iterator[None]:
    """Answer stride queries about nested divisions at once, inside of the block or the decorated function."""
    target = "torch._inductor.codegen.cpp.stride_at_vec_range"
    asked = patches.held(*patches.place(target))

    def told(index: Any, var: Any, vec_length: int | None = None) -> Any:
        return var if nested(index, var) else asked(index, var, vec_length)

    with patches.replaced({target: told}):
        yield


def nested(index: Any, var: Any) -> bool:
    """Return whether the variable occurs in a division within a division."""
    from torch.utils._sympy.functions import FloorDiv, ModularIndexing

    divisions = [each for each in index.atoms(FloorDiv, ModularIndexing) if each.has(var)]
    return any(inner is not each and each.has(inner) for each in divisions for inner in divisions)
