"""Read what `torch.library.custom_op` knows of an operator: the Python functions that it was made of."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.library
from torch._library import custom_ops


class PythonOperator(NamedTuple):
    """An operator that the program has defined in Python."""

    name: str
    schema: str
    fake: Any
    """Function that gives the metadata of its results; None for torch's own, for an operator that returns nothing."""
    functions: tuple[Any, ...]
    """A kernel and the rule for gradients, which run when the graph does."""
    keys: frozenset[str]
    """Keys of the dispatcher for which Python has registered something."""
    is_plain: bool
    """True if it is never taken apart, and does the same under all modes."""


def python_operator(operator: Any) -> PythonOperator | None:
    """Return what is known of an operator; None for one that is not made by `torch.library.custom_op`."""
    name = operator._qualified_op_name if isinstance(operator, torch._ops.OpOverloadPacket) else operator._schema.name
    found = custom_ops.OPDEFS.get(name)
    if found is None:
        return None
    made_of = (found._init_fn, found._setup_context_fn, found._backward_fn)
    start = f"{found._namespace}/{found._name}/"
    return PythonOperator(
        name,
        str(found._opoverload._schema),
        found._abstract_fn,
        tuple(each for each in made_of if each is not None),
        frozenset(each.removeprefix(start) for each in torch.library._impls if each.startswith(start)),
        not (found._torch_dispatch_fns or found._vmap_fn or getattr(found, "_used_triton_kernels", ())),
    )
