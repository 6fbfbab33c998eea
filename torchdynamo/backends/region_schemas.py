"""Ask once what a body that a graph calls writes to: in older versions of torch, each call traces the body for that."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torchdynamo.graph import patches


@contextlib.contextmanager
def bodies_have_one_schema() -> Iterator[None]:
    """Make one schema for all calls of a body with arguments of the same types, inside of the block."""
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
