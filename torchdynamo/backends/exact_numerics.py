"""Keep AOTAutograd's graphs exact: floats do not become tensors, random numbers come from eager's generators, and what
only checks is not dropped.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any

from torchdynamo.graph import patches

LINALG_CHECK = "aten::_linalg_check_errors"
_as_eager = contextvars.ContextVar("as eager", default=False)


@contextlib.contextmanager
def as_eager() -> Iterator[None]:
    """Make the graphs that AOTAutograd traces inside of the block round and draw random numbers as eager does.

    Floats stay floats: arithmetic with tensors of one element rounds differently on some processors. Dropout draws from
    eager's generators, also when a checkpoint is recomputed.
    """
    patches.replace_for_good(
        "torch._functorch._aot_autograd.graph_compile.tensorify_python_scalars", skippable_float_pass
    )
    before = _as_eager.set(True)
    try:
        with patches.replaced({"torch._functorch.config.graphsafe_rng_functionalization": False}):
            yield
    finally:
        _as_eager.reset(before)


def keep_unused_draws() -> contextlib.AbstractContextManager[None]:
    """Make graphs that AOTAutograd traces inside of the block draw all of the program's random numbers, even those that
    nothing uses.
    """
    return patches.replaced({"torch._inductor.config.fallback_random": True})


@functools.cache
def keep_linalg_checks() -> None:
    """Make AOTAutograd keep the operator that raises for singular matrices, of which nothing else is used.

    Newer versions of torch declare this effect themselves. It stays, as a backward may be compiled at any time.
    """
    from torch._higher_order_ops import effects

    if effects._get_effect(LINALG_CHECK) is None:
        effects._register_effectful_op(LINALG_CHECK, effects._EffectType.ORDERED)


def skippable_float_pass(make_tensors: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap AOTAutograd's pass that makes tensors of floats, so that it is skipped inside of `as_eager`."""

    def leave_floats(*args: Any, **kwargs: Any) -> Any:
        return None if _as_eager.get() else make_tensors(*args, **kwargs)

    return leave_floats
