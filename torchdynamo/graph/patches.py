"""The one place that changes torch's own modules: a row for each change, with its reason and its reach.

A patch is in force while a graph is captured or compiled, and what it replaced is put back at the end; or it stays for
good, and does nothing outside of our captures and compiles. The code that takes the place of torch's is with its
subject: here is what may be changed at all, and how it is undone. `docs/limits.md` tells users of those that stay.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

OURS = "_of_torchdynamo"  # on functions that stay for good


class Patch(NamedTuple):
    """A row: why torch's own does not do, and whether ours stays until the process ends."""

    why: str
    stays: bool = False


PATCHES: dict[str, Patch] = {
    "torch.fx.experimental.sym_node._optimized_add": Patch(
        "takes for a sum of symbols what was one when it was made, and loses all but the symbols", stays=True
    ),
    "torch._functorch._aot_autograd.graph_compile.tensorify_python_scalars": Patch(
        "makes tensors of floats, which rounds otherwise than eager; acts for other compilers as before", stays=True
    ),
    "torch._functorch.config.graphsafe_rng_functionalization": Patch(
        "draws what a checkpoint computes once more from other generators than eager"
    ),
    "torch._inductor.config.fallback_random": Patch(
        "off, AOTAutograd drops draws whose numbers nothing uses: the generator is then not where eager has it"
    ),
    "torch._functorch.config.force_non_lazy_backward_lowering": Patch(
        "off, a backward of sizes that vary and cannot be compiled is an error of the program's `backward()`"
    ),
    "torch.fx.experimental._config.backed_size_oblivious": Patch(
        "off, each rule of an operator asks whether a size is 0 or 1, and so fixes it"
    ),
    "torch._inductor.codegen.cpp.stride_at_vec_range": Patch(
        "asks sympy for minutes about divisions in divisions, and gets the expression that it began with"
    ),
    "torch._inductor.codegen.cpp.CppVecOverrides.expm1": Patch("is said by exp, which loses small numbers"),
    "torch._inductor.codegen.cpp.CppVecOverrides.atanh": Patch("is said by log, which loses the sign of zero"),
    "torch._inductor.codegen.cpp.CppVecOverrides.asinh": Patch("of older versions is infinite where a square would be"),
    "torch._inductor.codegen.cpp.KernelGroup.codegen_group": Patch(
        "writes loops that an exception leaves on a thread of OpenMP's, which ends the process"
    ),
    "torch._inductor.lowering.index_put_impl_": Patch(
        "reads values of unknown size as if they had the size of the indices, past their end"
    ),
}


@functools.cache
def place(target: str) -> tuple[Any, str]:
    """Return the module or class that holds the target of a row, imported if need be, and the name it has there."""
    assert target in PATCHES, f"{target} has no row in PATCHES"
    path, _, name = target.rpartition(".")
    try:
        return importlib.import_module(path), name
    except ModuleNotFoundError:
        module, _, cls = path.rpartition(".")
        return getattr(importlib.import_module(module), cls), name


def held(owner: Any, name: str) -> Any:
    """Return what an owner holds: of a class as it lies there, static methods unbound."""
    return vars(owner)[name] if isinstance(owner, type) else getattr(owner, name)


@contextlib.contextmanager
def replaced(changes: Mapping[str, Any]) -> Iterator[None]:
    """Replace what is at these targets while this is open. What somebody else has put there meanwhile stays."""
    before = [
        (owner, name, held(owner, name), value)
        for (owner, name), value in zip(map(place, changes), changes.values(), strict=True)
    ]
    for owner, name, _, value in before:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, old, value in reversed(before):
            if held(owner, name) is value:
                setattr(owner, name, old)


def replace_for_good(target: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace a function, once, by what `make` makes of it."""
    assert PATCHES[target].stays, f"{target} is to be put back"
    owner, name = place(target)
    own = held(owner, name)
    if not hasattr(own, OURS):
        made = functools.wraps(own)(make(own))
        setattr(made, OURS, True)
        setattr(owner, name, made)
