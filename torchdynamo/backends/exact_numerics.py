"""AOTAutograd as exact as it can be: no numbers made tensors of, no random numbers from elsewhere."""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Iterator
from typing import Any

from torchdynamo.graph.leftovers import settings

OURS = "_of_torchdynamo"
_as_eager = contextvars.ContextVar("as eager", default=False)


@contextlib.contextmanager
def as_eager() -> Iterator[None]:
    """While this is open, the graphs that AOTAutograd makes round and drop as eager does.

    Floats stay floats: arithmetic with tensors of one element rounds otherwise on some processors. What is dropped,
    and dropped again when a checkpoint is computed once more, is drawn from the generators that eager draws from.
    """
    import torch._functorch.config as functorch
    from torch._functorch._aot_autograd import graph_compile

    compiler: Any = graph_compile
    make_tensors = compiler.tensorify_python_scalars
    if not hasattr(make_tensors, OURS):

        @functools.wraps(make_tensors)
        def unless_as_eager(*args: Any, **kwargs: Any) -> Any:
            return None if _as_eager.get() else make_tensors(*args, **kwargs)

        setattr(unless_as_eager, OURS, True)
        compiler.tensorify_python_scalars = unless_as_eager
    before = _as_eager.set(True)
    try:
        with settings(functorch, graphsafe_rng_functionalization=False):
            yield
    finally:
        _as_eager.reset(before)
