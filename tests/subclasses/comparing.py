"""Run a program eagerly and compiled, and tell in what they differ: classes, contexts, bits, gradients, arguments."""

from __future__ import annotations

from typing import Any

import torch
from counting import Counting
from subclasses.programs import Case
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

import torchdynamo


def picture(value: Any) -> Any:
    """Return all that a program can see of a value, as plain data."""
    if isinstance(value, torch.Tensor):
        seen: list[Any] = [type(value), value.requires_grad, value.is_leaf, value.dtype, value.device]
        seen.append(picture(value.grad) if value.is_leaf and value.grad is not None else None)
        if is_traceable_wrapper_subclass(value):
            names, context = value.__tensor_flatten__()
            nested = value.layout is torch.jagged
            dims = None if nested else (tuple(value.shape), value.stride())
            return [
                *seen,
                dims,
                "" if nested else repr(context),
                [(name, picture(getattr(value, name))) for name in names],
            ]
        if type(value).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            return [*seen, tuple(value.shape), picture(value.elem)]
        return [*seen, tuple(value.shape), value.stride(), value.detach().clone().nan_to_num(7.0).tolist()]
    if isinstance(value, torch.nn.Module):
        return [(name, picture(each)) for name, each in [*value.named_parameters(), *value.named_buffers()]]
    if isinstance(value, dict):
        return {key: picture(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value), [picture(each) for each in value]
    return repr(value)


def run(f: Any, case: Case, calls: int = 2) -> list[Any]:
    """Return what calls with fresh arguments gave and left behind, with gradients where there are any."""
    seen: list[Any] = []
    for number in range(calls):
        torch.manual_seed(number)
        args = case.make()
        try:
            result = f(*args)
        except torchdynamo.errors.TorchDynamoError:
            raise
        except Exception as error:
            seen.append(f"{type(error).__name__}: {error}")
            continue
        grown = [each for each in pytree.tree_leaves(result) if isinstance(each, torch.Tensor) and each.requires_grad]
        seen.append(picture(result))
        if grown:
            total = sum((each.float() * 1.5).sum() for each in grown if not each.is_leaf)
            if isinstance(total, torch.Tensor):
                total.backward(torch.ones_like(total))
        seen.append(picture(args))
    return seen


def differs(case: Case, backend: str, fullgraph: bool) -> str:
    """Return in what the compiled program differs from the eager one; "" if in nothing.

    A whole program is one graph, which serves both calls.
    """
    counting = Counting(backend)
    wanted = run(case.f, case)
    found = run(torchdynamo.compile(case.f, backend=counting, fullgraph=fullgraph), case)
    if fullgraph and len(counting.graphs) > 1:
        return f"{len(counting.graphs)} graphs"
    if repr(wanted) == repr(found):
        return ""
    at = next(i for i, (one, other) in enumerate(zip(wanted, found)) if repr(one) != repr(other))
    return f"{wanted[at]} != {found[at]}"
