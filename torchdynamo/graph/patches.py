"""Patch torch's own modules: one row for each patch, with its reason. No other file may.

A patch is in force while a graph is captured or compiled and undone afterwards, or it stays for good and does nothing
outside of our captures and compiles. The replacing code stands with its subject; this file says what may be patched and
how it is undone. `docs/limits.md` tells users of those that stay.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

OURS = "_of_torchdynamo"  # attribute of replacements that stay for good


class Patch(NamedTuple):
    """A row: why torch's own code is wrong for us, and whether the patch stays until the process ends."""

    why: str
    stays: bool = False


PATCHES: dict[str, Patch] = {
    "torch.fx.experimental.sym_node._optimized_add": Patch(
        "mistakes an expression that was a sum of symbols when made for one, and loses its other terms", stays=True
    ),
    "torch._functorch._aot_autograd.graph_compile.tensorify_python_scalars": Patch(
        "makes tensors of floats, which rounds differently from eager; unchanged for other compilers", stays=True
    ),
    "torch._functorch.config.graphsafe_rng_functionalization": Patch(
        "recomputes checkpoints with random numbers from other generators than eager"
    ),
    "torch._inductor.config.fallback_random": Patch(
        "off, AOTAutograd drops unused random draws, and the generator's state differs from eager's"
    ),
    "torch._functorch.config.force_non_lazy_backward_lowering": Patch(
        "off, a backward with dynamic sizes that cannot be compiled fails in the program's `backward()`"
    ),
    "torch.fx.experimental._config.backed_size_oblivious": Patch(
        "off, operators' rules ask whether a size is 0 or 1, and so specialize it"
    ),
    "torch._inductor.codegen.cpp.stride_at_vec_range": Patch(
        "spends minutes in sympy on nested divisions, and gets its own expression back"
    ),
    "torch._inductor.codegen.cpp.CppVecOverrides.expm1": Patch("is computed by exp, which loses small numbers"),
    "torch._inductor.codegen.cpp.CppVecOverrides.atanh": Patch("is computed by log, which loses the sign of zero"),
    "torch._inductor.codegen.cpp.CppVecOverrides.asinh": Patch("overflows for large numbers in older versions"),
    "torch._inductor.codegen.cpp.KernelGroup.codegen_group": Patch(
        "writes parallel loops; an exception that leaves one on an OpenMP thread ends the process"
    ),
    "torch._functorch._aot_autograd.runtime_wrappers._create_runtime_wrapper": Patch(
        "tells nobody what the callable that it makes will run, which is to be written to disk"
    ),
    "torch._functorch._aot_autograd.runtime_wrappers.EffectTokensWrapper.post_compile": Patch(
        "hides compiled code in a function in older versions, even where a graph has no effects in order"
    ),
    "torch._functorch._aot_autograd.runtime_wrappers.FunctionalizedRngRuntimeWrapper.post_compile": Patch(
        "hides compiled code in a function in older versions, even where a graph draws no numbers by an offset"
    ),
    "torch._inductor.lowering.index_put_impl_": Patch(
        "reads values of unknown size as if they had the size of the indices, past their end"
    ),
    "torch._inductor.codegen.wrapper.PythonWrapperCodegen.codegen_input_size_asserts": Patch(
        "checks each input of a forward once more, which takes longer than our guards"
    ),
    "torch._inductor.codegen.triton.get_fused_kernel_name": Patch(
        "gives names that are too long for Triton's files, where Inductor does not find the kernels then"
    ),
    "torch._inductor.graph.SubgraphLowering.__init__": Patch(
        "takes positions of inputs that a backward may write to for positions of a body's arguments"
    ),
    "torch._higher_order_ops.invoke_subgraph.InvokeSubgraphHOP.gen_schema": Patch(
        "traces a body once more for each call of it in older versions, to see what it writes to"
    ),
    "torch.ops.mkldnn._is_mkldnn_acl_supported": Patch(
        "decides that frozen float32 weights are packed for MKL, which is slow on CPUs of other makers than Intel"
    ),
}


@functools.cache
def place(target: str) -> tuple[Any, str]:
    """Return the module or class that holds a patch's target, imported if need be, and the target's name in it."""
    assert target in PATCHES, f"{target} has no row in PATCHES"
    path, _, name = target.rpartition(".")
    try:
        return importlib.import_module(path), name
    except ModuleNotFoundError:
        module, _, cls = path.rpartition(".")
        return getattr(importlib.import_module(module), cls), name


def held(owner: Any, name: str) -> Any:
    """Return an owner's attribute; of a class, as it is stored, so that static methods stay unbound."""
    return vars(owner)[name] if isinstance(owner, type) else getattr(owner, name)


_OF_PROGRAM: dict[tuple[int, str], Any] = {}  # by the owner's id and the name: what a target that is replaced was


def of_program(owner: Any, name: str, value: Any) -> Any:
    """Return what the program reads as an owner's attribute. value: what is there now, for a while perhaps ours."""
    return _OF_PROGRAM.get((id(owner), name), value)


@contextlib.contextmanager
def replaced(changes: Mapping[str, Any]) -> Iterator[None]:
    """Replace these targets inside of the block. A value that somebody else has set meanwhile stays."""
    before = [
        (owner, name, held(owner, name), value)
        for (owner, name), value in zip(map(place, changes), changes.values(), strict=True)
    ]
    first = {(id(owner), name): old for owner, name, old, _ in before if (id(owner), name) not in _OF_PROGRAM}
    _OF_PROGRAM.update(first)
    for owner, name, _, value in before:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for key in first:
            del _OF_PROGRAM[key]
        for owner, name, old, value in reversed(before):
            if held(owner, name) is value:
                setattr(owner, name, old)


def replace_for_good(target: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace a function by `make(function)`, once per process."""
    assert PATCHES[target].stays, f"{target} is to be put back"
    owner, name = place(target)
    own = held(owner, name)
    if not hasattr(own, OURS):
        made = functools.wraps(own)(make(own))
        setattr(made, OURS, True)
        setattr(owner, name, made)
