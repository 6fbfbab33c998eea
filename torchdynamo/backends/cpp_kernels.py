"""Has Inductor's code for the CPU do as eager's kernels do.

`expm1` of doubles and `atanh` are said by `exp` and `log`, which loses small numbers and the sign of zero: they are
computed with the functions for vectors that eager calls. And errors in loops of several threads end the process.
Values of unknown size are put by eager's kernel (`index_put.py`), and an older Inductor's `asinh` of vectors is
infinite where a square would be.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

from torchdynamo.backends.cpp_checks import raising_at_the_end
from torchdynamo.backends.index_put import of_any_size
from torchdynamo.graph import patches, torch_compat

VECTORS = "torch._inductor.codegen.cpp.CppVecOverrides"
VECTORIZED = ("expm1", "atanh")
WRAPPED: dict[str, Callable[..., Any]] = {
    "torch._inductor.codegen.cpp.KernelGroup.codegen_group": raising_at_the_end,
    "torch._inductor.lowering.index_put_impl_": of_any_size,
}


@contextlib.contextmanager
def as_in_eager() -> Iterator[None]:
    """Have kernels, while this is open or a function runs that is wrapped in it, written as eager's."""
    changes: dict[str, Any] = {f"{VECTORS}.{name}": staticmethod(method(name)) for name in VECTORIZED}
    for target, wrap in WRAPPED.items():
        changes[target] = wrap(patches.held(*patches.place(target)))
    if torch_compat.INDUCTOR_HAS_OLD_EDGES:
        changes[f"{VECTORS}.asinh"] = staticmethod(asinh)
    with patches.replaced(changes):
        yield


def asinh(x: Any) -> str:
    """Write `asinh` of a vector: for numbers so large that 1 does not count beside their square, `log(2 * x)`."""
    vector = f"decltype({x})"
    large = f"({x}.abs().log() + {vector}({math.log(2)!r})).copysign({x})"
    return f"{vector}::blendv({x}.asinh(), {large}, {x}.abs() > {vector}(1e9))"


@functools.cache
def method(name: str) -> Callable[[Any], str]:
    """Return what writes a call of a vector's method."""

    def write(x: Any) -> str:
        return f"{x}.{name}()"

    write.__name__ = name
    return write
