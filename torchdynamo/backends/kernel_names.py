"""Give Triton kernels names of a length that fits into names of files.

Inductor names a kernel by all operators that it computes. Triton cuts the names of its files after 150 characters;
Inductor then does not find them, launches the kernel by a function in C that a compiler has to be run for, and keeps it
in none of its caches.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

from torchdynamo.graph import patches

NAME = "torch._inductor.codegen.triton.get_fused_kernel_name"
LONGEST = 100  # characters for operators; the kind of kernel and its number come to them


@contextlib.contextmanager
def short_names() -> Iterator[None]:
    """Keep names of kernels short, inside of the `with` block or the decorated function."""
    with patches.replaced({NAME: cut(patches.held(*patches.place(NAME)))}):
        yield


def cut(name_of: Callable[..., str]) -> Callable[..., str]:
    """Return a function that gives the beginning of a name. A number that Inductor adds keeps names apart."""

    @functools.wraps(name_of)
    def short(*args: object) -> str:
        return name_of(*args)[:LONGEST].rstrip("_")

    return short
