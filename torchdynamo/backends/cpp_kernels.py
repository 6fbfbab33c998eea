"""Make Inductor's CPU kernels compute what eager's kernels compute.

Inductor writes `expm1` of doubles and `atanh` by `exp` and `log`, which loses small numbers and the sign of zero: here
they call the vector functions that eager calls. Errors in parallel loops are raised (`cpp_checks.py`), values of
unknown size are stored by eager's kernel (`index_put.py`), and `asinh` of vectors does not overflow, as it does in
older versions of Inductor.
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
    """Patch Inductor's CPU code generation to match eager, inside of the `with` block or the decorated function."""
    changes: dict[str, Any] = {f"{VECTORS}.{name}": staticmethod(method(name)) for name in VECTORIZED}
    for target, wrap in WRAPPED.items():
        changes[target] = wrap(patches.held(*patches.place(target)))
    if torch_compat.INDUCTOR_HAS_OLD_EDGES:
        changes[f"{VECTORS}.asinh"] = staticmethod(asinh)
    with patches.replaced(changes):
        yield


def asinh(x: Any) -> str:
    """Return C++ code for `asinh` of a vector; beyond 1e9, where x * x may overflow, it computes `log(2 * x)`."""
    vector = f"decltype({x})"
    large = f"({x}.abs().log() + {vector}({math.log(2)!r})).copysign({x})"
    return f"{vector}::blendv({x}.asinh(), {large}, {x}.abs() > {vector}(1e9))"


@functools.cache
def method(name: str) -> Callable[[Any], str]:
    """Return a function that writes a call of this method of a C++ vector."""

    def write(x: Any) -> str:
        return f"{x}.{name}()"

    write.__name__ = name
    return write
