"""Decide whether a frame is worth compiling: a tensor, a module or torch itself is within a few steps of it."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from torchdynamo.core.source import Roots

DEPTH = 3
WIDTH = 20  # items looked at in each container


def worth_capturing(roots: Roots, code: types.CodeType) -> bool:
    """Return whether a tensor, a module or torch is near a frame: its arguments, closure, named globals."""
    return any(is_torch(obj, DEPTH) for obj in reachable(roots, code))


def modes_watch() -> bool:
    """Return whether a mode of the user's sees each operator as it runs, and so must not see graphs instead.

    Modes are a TorchFunctionMode, a TorchDispatchMode, torch.jit.trace. A default device is a mode too, and is inlined.
    """
    if torch._C._len_torch_dispatch_stack() or torch._C._get_tracing_state() is not None:
        return True
    if not torch._C._len_torch_function_stack():
        return False
    return any(type(mode) is not DeviceContext for mode in _get_current_function_mode_stack())


def reachable(roots: Roots, code: types.CodeType) -> Iterator[Any]:
    yield from roots.locals.values()
    for cell in roots.closure.values():
        yield from [cell.cell_contents] if holds(cell) else []
    for name in code.co_names:
        if name in roots.globals:
            yield roots.globals[name]


def holds(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - raises if empty
    except ValueError:
        return False
    return True


def is_torch(obj: Any, depth: int) -> bool:
    """Return whether an object is torch's, or leads to something that is."""
    cls = type(obj)
    if issubclass(cls, (torch.Tensor, torch.nn.Module, torch.optim.Optimizer)):
        return True
    if cls in (types.ModuleType, types.BuiltinFunctionType, types.FunctionType) or issubclass(cls, type):
        module = getattr(obj, "__module__", None) or getattr(obj, "__name__", "")
        return str(module).partition(".")[0] == "torch"
    if depth == 0 or cls in LEAVES:
        return False
    return any(is_torch(item, depth - 1) for item in parts(obj))


PLAIN_LOOKUP: Any = object.__getattribute__
LEAVES = frozenset({int, float, bool, str, bytes, complex, type(None)})


def parts(obj: Any) -> Iterable[Any]:
    """Return a few of the things that an object holds, without running user code."""
    cls = type(obj)
    if cls is types.MethodType:
        return (obj.__self__,)
    if issubclass(cls, dict):
        return [item for _, item in zip(range(WIDTH), dict.values(obj))]
    if issubclass(cls, (list, tuple)):
        return [item for _, item in zip(range(WIDTH), (list if issubclass(cls, list) else tuple).__iter__(obj))]
    own = getattr(obj, "__dict__", None) if cls.__getattribute__ is PLAIN_LOOKUP else None
    return list(own.values())[:WIDTH] if type(own) is dict else ()
