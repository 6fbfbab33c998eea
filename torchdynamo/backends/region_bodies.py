"""Correct what torch does with the bodies that a graph calls: it asks each call anew what they write, and lets a
backward's body write to what others read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torchdynamo.graph import patches


@contextlib.contextmanager
def bodies_have_one_schema() -> Iterator[None]:
    """Make one schema for all calls of a body with arguments of the same types, inside of the block.

    A schema says what a body writes to. Older versions of torch trace the body for it at each call.
    """
    target = "torch._higher_order_ops.invoke_subgraph.InvokeSubgraphHOP.gen_schema"
    made = patches.held(*patches.place(target))
    known: dict[Any, tuple[Any, Any]] = {}

    def gen_schema(self: Any, body: Any, name: str, *arguments: Any) -> Any:
        key = id(body), name, tuple(map(type, arguments))
        if key not in known:
            known[key] = body, made(self, body, name, *arguments)  # the body keeps its id
        return known[key][1]

    with patches.replaced({target: gen_schema}):
        yield


@contextlib.contextmanager
def bodies_keep_arguments() -> Iterator[None]:
    """Let no body of a graph that Inductor compiles inside of the block, or the decorated function, own an argument.

    A backward may write to values that were saved for it alone; Inductor knows them by their positions among its
    inputs, and takes these for positions among the arguments of a body as well. Such a body would write to a gradient
    that its caller reads later.
    """
    target = "torch._inductor.graph.SubgraphLowering.__init__"
    made = patches.held(*patches.place(target))

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        self.bw_donated_idxs = None

    with patches.replaced({target: init}):
        yield
