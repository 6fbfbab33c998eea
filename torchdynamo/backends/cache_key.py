"""What the keys of Inductor's caches on disk must hold, besides what torch puts into them.

Two caches answer: AOTAutograd's, by the graph as captured, and Inductor's own, by the graphs that AOTAutograd made of
it. Both keys hold all settings of Inductor, and one of these is meant for facts from outside: names of functions that
may be cached, each with a text that stands for what it does (`unsafe_marked_cacheable_functions`). It gets a digest of
the sources of this package, which run inside of `compile_fx`, and the facts about process and inputs that torch leaves
out. Graphs that call other people's code are not kept: no key says what that code does.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
import torch.fx

from torchdynamo import _native

PACKAGE = "torchdynamo"
OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._ops.HigherOrderOperator)
KNOWN_OWNERS = frozenset({"torch", "builtins", "_operator", "math"})
# Namespaces of operators that come with torch, whose version is in the keys, and ours.
KNOWN_NAMESPACES = frozenset(
    "aten prims prim inductor higher_order rngprims mkl mkldnn mkldnn_prepacked onednn quantized quantized_decomposed "
    "_quantized xnnpack _c10d_functional _c10d_functional_autograd c10d_functional c10d symm_mem fsdp profiler streams "
    "torchdynamo".split()
)


@functools.cache
def digest_of_sources() -> str:
    """Hash the Python sources of this package, once in a process: 1.5 MB in some 15 ms."""
    root = Path(__file__).parent.parent
    found = hashlib.blake2b(digest_size=16)
    for path in sorted(root.rglob("*.py")):
        source = path.read_bytes()
        found.update(f"{path.relative_to(root).as_posix()}\0{len(source)}\0".encode())
        found.update(source)
    return found.hexdigest()


class Decompositions(dict[Any, Callable[..., Any]]):
    """A table of decompositions that is pickled as a digest: the operators that are its keys cannot be pickled.

    What is in the table depends on Inductor's settings, which are in the keys, and on our sources.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return remade, (digest_of_sources(),)


def remade(digest: str) -> Decompositions:
    """Stand for the table in a compile that is loaded: empty, since nothing is traced any more."""
    return Decompositions()


def marks(gm: torch.fx.GraphModule, facts: Sequence[Any], known: Mapping[str, str]) -> dict[str, str]:
    """Return a value for Inductor's setting `unsafe_marked_cacheable_functions`, in which `known` stays.

    `gm` is the graph as it is handed over, `facts` are what else the keys must hold: each prints what it is.
    """
    digest = digest_of_sources()
    ours = {f"{fn.__module__}.{fn.__name__}": digest for fn in functions(gm) if is_ours(fn)}
    return {**known, **ours, PACKAGE: " ".join(map(str, (digest, *facts)))}


def state() -> str:
    """Describe the modes and flags of process and thread that operators ask while they are traced."""
    packed, modes = _native.global_state()
    return f"{_native.global_state_fields(packed)} {modes}"


def facts_of(inputs: Sequence[Any]) -> list[tuple[bool, bool, int] | None]:
    """Describe each tensor beyond its metadata: is it a leaf, is it a view, and which is the first with its memory.

    AOTAutograd makes another graph of inputs that share memory, and writes to leaves and to views in another way.
    """
    first: dict[int, int] = {}
    return [
        (each.is_leaf, each._is_view(), first.setdefault(memory_of(each), at))
        if isinstance(each, torch.Tensor)
        else None
        for at, each in enumerate(inputs)
    ]


def memory_of(tensor: torch.Tensor) -> int:
    """Identify the memory of a tensor; one that has no storage is identified by itself."""
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else id(tensor)


def is_told_by_names(gm: torch.fx.GraphModule) -> bool:
    """Return whether the graph and the bodies in it call torch's functions and ours only."""
    return all(is_ours(fn) or owner(fn).partition(".")[0] in KNOWN_OWNERS for fn in functions(gm))


def functions(gm: torch.fx.GraphModule) -> Iterator[Any]:
    """Yield what the nodes of a graph call, and those of the bodies in it. (Methods are those of tensors.)"""
    for module in gm.modules():
        if isinstance(module, torch.fx.GraphModule):
            yield from (node.target for node in module.graph.nodes if node.op == "call_function")


def is_ours(fn: Any) -> bool:
    """Return whether this is a Python function of this package, found there by its name."""
    return isinstance(fn, FunctionType) and fn.__module__.startswith(f"{PACKAGE}.") and "<" not in fn.__qualname__


def owner(fn: Any) -> str:
    """Name what a function comes from: the module that has it, or has its type; of other people's operators, the
    namespace.

    A function in C may name no module: then the object or the type does that it is a method of.
    """
    if isinstance(fn, OPERATORS):
        namespace = str(getattr(fn, "namespace", "") or getattr(fn, "_qualified_op_name", "").partition("::")[0])
        return "torch" if namespace in KNOWN_NAMESPACES else namespace
    home = getattr(fn, "__module__", None) or getattr(fn, "__objclass__", None) or getattr(fn, "__self__", None)
    if isinstance(home, str):
        return home
    return str(getattr(home, "__module__", None) or getattr(home, "__name__", ""))
