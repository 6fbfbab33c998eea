"""AOTAutograd as exact as it can be: no numbers made tensors of, no random numbers from elsewhere."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

from torchdynamo.graph import patches

_as_eager = contextvars.ContextVar("as eager", default=False)


@contextlib.contextmanager
def as_eager() -> Iterator[None]:
    """Have graphs that AOTAutograd makes while this is open round and drop as eager does.

    Floats stay floats: arithmetic with tensors of one element rounds otherwise on some processors. What is dropped,
    and dropped again when a checkpoint is computed once more, is drawn from the generators that eager draws from.
    """
    patches.replace_for_good("torch._functorch._aot_autograd.graph_compile.tensorify_python_scalars", unless_as_eager)
    before = _as_eager.set(True)
    try:
        with patches.replaced({"torch._functorch.config.graphsafe_rng_functionalization": False}):
            yield
    finally:
        _as_eager.reset(before)


def drawing_all() -> contextlib.AbstractContextManager[None]:
    """Have graphs that AOTAutograd makes while this is open draw what the program draws, used or not."""
    return patches.replaced({"torch._inductor.config.fallback_random": True})


def unless_as_eager(make_tensors: Callable[..., Any]) -> Callable[..., Any]:
    """Return a pass of AOTAutograd's that is left out of the graphs that round as eager does."""

    def leave_floats(*args: Any, **kwargs: Any) -> Any:
        return None if _as_eager.get() else make_tensors(*args, **kwargs)

    return leave_floats
