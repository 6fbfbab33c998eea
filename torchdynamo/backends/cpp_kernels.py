"""What Inductor's code for the CPU does otherwise than eager's kernels.

`expm1` of doubles and `atanh` are said by `exp` and `log`, which loses small numbers and the sign of zero: they are
computed with the functions for vectors that eager calls. And errors in loops of several threads end the process.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

from torchdynamo.backends.cpp_checks import raising_at_the_end

VECTORIZED = ("expm1", "atanh")


def exactly(compiler: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a compiler of Inductor's, forward or backward, so that its kernels do as eager's do."""

    @functools.wraps(compiler)
    def run(*args: Any, **kwargs: Any) -> Any:
        with as_in_eager():
            return compiler(*args, **kwargs)

    return run


@contextlib.contextmanager
def as_in_eager() -> Iterator[None]:
    """While this is open, have kernels written so."""
    cpp: Any = importlib.import_module("torch._inductor.codegen.cpp")
    vectors, groups = cpp.CppVecOverrides, cpp.KernelGroup
    before = [(vectors, name, vars(vectors)[name]) for name in VECTORIZED]
    before.append((groups, "codegen_group", groups.codegen_group))
    for name in VECTORIZED:
        setattr(vectors, name, staticmethod(method(name)))
    groups.codegen_group = raising_at_the_end(groups.codegen_group)
    try:
        yield
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


@functools.cache
def method(name: str) -> Callable[[Any], str]:
    """Return what writes a call of a vector's method."""

    def write(x: Any) -> str:
        return f"{x}.{name}()"

    write.__name__ = name
    return write
