"""Tell which devices a graph runs on, and whether they are here what they were where it was stored.

This belongs to an entry, not to its key: a process that has not used CUDA is not made to, and one in which a compile
has begun to use it still finds what was stored for graphs on the CPU.
"""

from __future__ import annotations

import functools
import importlib.metadata

import torch
from torch.utils import _pytree as pytree

from torchdynamo.cache.store.rows import Unresolved

HOST = ("cpu", "meta")


def devices_of(gm: torch.fx.GraphModule | None) -> str:
    """Return the GPUs of this process if the graph runs on one; "" if it needs none."""
    return visible() if gm is not None and torch.cuda.is_initialized() and is_on_device(gm) else ""


def is_on_device(gm: torch.fx.GraphModule) -> bool:
    """Return whether a graph has a tensor on another device than the CPU, or speaks of one."""
    return any(
        value.device.type not in HOST if isinstance(value, torch.Tensor) else value.type not in HOST
        for node in gm.graph.nodes
        for value in pytree.tree_leaves((node.meta.get("example_value"), node.args, node.kwargs))
        if isinstance(value, (torch.Tensor, torch.device))
    )


def check_visible(stored: str) -> None:
    """Raise Unresolved unless the GPUs are those on which a graph was stored; "" is a graph that needs none."""
    try:
        same = not stored or visible() == stored
    except RuntimeError as error:  # in a forked process, which cannot use them
        raise Unresolved(f"its devices are not to be had ({error})") from None
    if not same:
        raise Unresolved("it ran on other devices")


@functools.cache
def visible() -> str:
    """Return the kinds of the GPUs, which another machine may have too, and the versions of driver and kernel compiler.

    Begins to use CUDA; a forked process has what its parent asked.
    """
    about = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    kinds = [tuple(getattr(each, name, None) for name in KIND) for each in about]
    driver = getattr(torch._C, "_cuda_getDriverVersion", int)()
    return f"{kinds} driver {driver} triton {version('triton')}"


KIND = ("name", "major", "minor", "gcnArchName", "multi_processor_count", "total_memory", "L2_cache_size")


def version(package: str) -> str:
    """Return the version of a package, which is not imported; "" if there is none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
