"""Find kernels that a program has put in the place of torch's, in Python: nothing says what they do."""

from __future__ import annotations

import os
import sys
import weakref
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
import torch._functorch.predispatch

TORCH = os.path.dirname(torch.__file__) + os.sep
FOR_OTHERS = os.path.join(TORCH, "library.py")  # where the decorators of `torch.library` register a program's kernels


def foreign_kernels() -> list[str]:
    """Return the names in `torch.library` of kernels of ATen operators that no file of torch has registered.

    A kernel is found that replaces one which torch has registered in Python, under the same name.
    """
    own = {id(each) for each in kernels_of_torch()}
    found = Counter(
        name
        for kernels in kernels_of_libraries()
        if id(kernels) not in own
        for name in kernels & torch.library._impls
        if name.startswith("aten/")
    )
    return [name for name, libraries in found.items() if not _is_of_torch(name, libraries)]


def kernels_of_torch() -> Iterator[set[str]]:
    """Yield the names of kernels in the libraries with which torch registers most of its own in Python."""
    libraries: list[Any] = list(vars(sys.modules.get("torch._meta_registrations", object)).values())
    libraries.append(torch._functorch.predispatch.VMAP_DECOMPOSITIONS_LIB)
    for each in libraries:
        if isinstance(each, torch.library.Library):
            yield each._op_impls


def kernels_of_libraries() -> Iterator[set[str]]:
    """Yield the names of kernels in each library that is alive: what removes them with it knows them."""
    registry: Any = weakref.finalize._registry  # type: ignore[attr-defined]
    for each in list(registry.values()):
        if each.func is torch.library._del_library:
            yield each.args[1]


@cache
def _is_of_torch(kernel: str, libraries: int) -> bool:
    """Return whether a kernel in use is torch's. libraries: how many have one of the name, which is another if a
    program registers one as well.
    """
    namespace, name, key = kernel.split("/")
    active = f"{key}: registered at "
    lines = (line.removeprefix(active) for line in dump(namespace, name) if line.startswith(active))
    return any(line.startswith(TORCH) and not line.startswith(FOR_OTHERS) for line in lines)


def dump(namespace: str, name: str) -> list[str]:
    """Return a line for each kernel of an operator: its key, and the file that has registered it."""
    return torch._C._dispatch_dump(f"{namespace}::{name}").splitlines()
