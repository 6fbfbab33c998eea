"""Run a body of a graph that a backward computes again, but for what the program says to keep of it.

What says so is the program's `context_fn`: it makes two dispatch modes, which ask a policy about each operator. It runs
whenever the graph does; a compiler is told by it, once, while it traces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._higher_order_ops.wrap import tag_activation_checkpoint

from torchdynamo.core.policy import CHECKPOINT


class SelectiveCheckpoint:
    """Operator of a graph: a checkpoint with a `context_fn`. traced: for graphs that a compiler traces."""

    __name__ = "checkpoint"

    def __init__(self, context_fn: Callable[[], Any], traced: bool = False) -> None:
        self.context_fn, self.traced = context_fn, traced

    def __call__(self, body: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.traced:
            return CHECKPOINT(body, *args, context_fn=self.context_fn, **kwargs)
        body.meta["_checkpoint_context_fn"] = self.context_fn
        return tag_activation_checkpoint(body, *args, **kwargs)


def runs_again(target: Any) -> bool:
    """Return whether an operator of a graph is a checkpoint, whose body is computed again."""
    return target is CHECKPOINT or type(target) is SelectiveCheckpoint
