"""Complete the keys of Inductor's disk caches with the facts that torch leaves out.

Two caches are consulted: AOTAutograd's, keyed by the captured graph, and Inductor's own, keyed by the graphs that
AOTAutograd made of it. Both keys include all Inductor settings, and one setting is meant for outside facts: names of
functions that may be cached, each with a text that identifies what it does (`unsafe_marked_cacheable_functions`). We
put a digest of this package's sources there, because they run inside of `compile_fx`, and facts about the process and
the inputs. Graphs that call third-party code are not cached: no key identifies what that code does.
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
    """Return a hash of this package's Python sources, computed once per process (1.5 MB in about 15 ms). 1.5 MB in some
    15 ms.
    """
    root = Path(__file__).parent.parent
    found = hashlib.blake2b(digest_size=16)
    for path in sorted(root.rglob("*.py")):
        source = path.read_bytes()
        found.update(f"{path.relative_to(root).as_posix()}\0{len(source)}\0".encode())
        found.update(source)
    return found.hexdigest()


class Decompositions(dict[Any, Callable[..., Any]]):
    """A table of decompositions that pickles as a digest, because its keys, operators, cannot be pickled.

    Its contents depend on Inductor's settings, which are in the cache keys, and on our sources.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return empty_table, (digest_of_sources(),)


def empty_table(digest: str) -> Decompositions:
    """Return an empty table in place of a pickled one: a compile loaded from the cache traces nothing any more."""
    return Decompositions()


def marks(gm: torch.fx.GraphModule, facts: Sequence[Any], known: Mapping[str, str]) -> dict[str, str]:
    """Return a value for Inductor's setting `unsafe_marked_cacheable_functions` that extends `known`.

    gm: the graph that is handed to AOTAutograd. facts: further objects whose `str` becomes part of the cache keys.
    """
    digest = digest_of_sources()
    ours = {f"{fn.__module__}.{fn.__name__}": digest for fn in functions(gm) if is_ours(fn)}
    return {**known, **ours, PACKAGE: " ".join(map(str, (digest, *facts)))}


def state() -> str:
    """Return a text of the process and thread state (modes, flags) that operators read while they are traced."""
    packed, modes = _native.global_state()
    return f"{_native.global_state_fields(packed)} {modes}"


def facts_of(inputs: Sequence[Any]) -> list[tuple[bool, bool, int] | None]:
    """Return for each input tensor (is a leaf, is a view, index of the first input with its memory); None for others.

    AOTAutograd makes another graph for inputs that share memory, and writes to leaves and to views differently.
    """
    first: dict[int, int] = {}
    return [
        (each.is_leaf, each._is_view(), first.setdefault(memory_of(each), at))
        if isinstance(each, torch.Tensor)
        else None
        for at, each in enumerate(inputs)
    ]


def memory_of(tensor: torch.Tensor) -> int:
    """Return an id of a tensor's storage; the tensor's own id if it has no storage."""
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else id(tensor)


def is_keyed_by_names(gm: torch.fx.GraphModule, but: Callable[[Any], bool] = lambda fn: False) -> bool:
    """Return whether the graph and its nested graphs call only functions of torch and of this package, or those `but`
    which another key identifies.
    """
    return all(is_ours(fn) or owner(fn).partition(".")[0] in KNOWN_OWNERS or but(fn) for fn in functions(gm))


def functions(gm: torch.fx.GraphModule) -> Iterator[Any]:
    """Yield the functions that nodes of a graph and of its nested graphs call. Methods are left out: they are methods
    of tensors.
    """
    for module in gm.modules():
        if isinstance(module, torch.fx.GraphModule):
            yield from (node.target for node in module.graph.nodes if node.op == "call_function")


def is_ours(fn: Any) -> bool:
    """Return whether this is a Python function of this package that can be found by its qualified name."""
    return isinstance(fn, FunctionType) and fn.__module__.startswith(f"{PACKAGE}.") and "<" not in fn.__qualname__


def owner(fn: Any) -> str:
    """Return the name of the module that defines a function or its type; for third-party operators, their namespace.

    A C function may name no module; then the object or type that it is a method of does.
    """
    if isinstance(fn, OPERATORS):
        namespace = str(getattr(fn, "namespace", "") or getattr(fn, "_qualified_op_name", "").partition("::")[0])
        return "torch" if namespace in KNOWN_NAMESPACES else namespace
    home = getattr(fn, "__module__", None) or getattr(fn, "__objclass__", None) or getattr(fn, "__self__", None)
    if isinstance(home, str):
        return home
    return str(getattr(home, "__module__", None) or getattr(home, "__name__", ""))
