"""Keep the bodies that a graph calls from writing to their arguments.

A backward may write to values that were saved for it alone; Inductor knows them by their positions among its inputs,
and takes these for positions among the arguments of a body as well. Such a body writes to a gradient that its caller
reads later.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torchdynamo.graph import patches


@contextlib.contextmanager
def bodies_keep_arguments() -> Iterator[None]:
    """Let no body of a graph that Inductor compiles inside of the block, or the decorated function, own an argument."""
    target = "torch._inductor.graph.SubgraphLowering.__init__"
    made = patches.held(*patches.place(target))

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        self.bw_donated_idxs = None

    with patches.replaced({target: init}):
        yield
