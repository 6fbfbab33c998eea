"""Subclasses of Tensor that define `__torch_function__`: which these are, and what else they may define."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from torchdynamo.core.signals import Break
from torchdynamo.graph.wrappers import dispatches, is_wrapper

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

PLAIN: tuple[type, ...] = (torch.Tensor, torch.nn.Parameter)
DEFAULT = torch.Tensor.__torch_function__.__func__  # type: ignore[attr-defined]
DISABLED = torch.nn.Parameter.__torch_function__
# What a subclass may say for itself. Other special methods of Tensor's would be taken for Tensor's own.
OWN_METHODS = frozenset(
    "__torch_function__ __torch_dispatch__ __new__ __init__ __module__ __doc__ __dict__ __weakref__ __qualname__ "
    "__annotations__ __repr__ __str__ __format__ __reduce_ex__ __deepcopy__ __setstate__ __init_subclass__ "
    # what Python writes into each class, in some versions
    "__firstlineno__ __static_attributes__ __annotate_func__ __annotations_cache__ __type_params__".split()
)


def is_ours_to_know(name: str) -> bool:
    """Return whether a name is that of a special method that Python or Tensor gives a meaning, and we a model."""
    special = name.startswith("__") and name.endswith("__") and name not in OWN_METHODS
    return special and (hasattr(torch.Tensor, name) or name in ("__getattr__", "__del__"))


def overrides(cls: type) -> bool:
    """Return whether instances of a class of tensors have a `__torch_function__` of their own, to be inlined."""
    return (
        cls not in PLAIN and getattr(cls, "__torch_function__", DISABLED) is not DISABLED and not is_left_to_torch(cls)
    )


def switches_off(value: Any) -> bool:
    """Return whether a value is a tensor of a class without `__torch_function__` that is no Parameter and no wrapper.

    AOTAutograd's first call of a graph refuses such.
    """
    cls = type(value)
    if not issubclass(cls, torch.Tensor) or issubclass(cls, PLAIN[1]) or cls is PLAIN[0]:
        return False
    return getattr(cls, "__torch_function__", None) is DISABLED and not is_wrapper(value)


def is_left_to_torch(cls: type) -> bool:
    """Return whether a class of PyTorch's own has a `__torch_function__`, which runs where the graph does.

    That of nested tensors is made for being traced, and chooses kernels by what only PyTorch knows.
    """
    own = getattr(getattr(cls, "__torch_function__", None), "__func__", DEFAULT)
    return own is not DEFAULT and own.__module__.partition(".")[0] == "torch" and dispatches(cls)


def watch(vm: Machine, cls: type) -> None:
    """Note that operators are to be asked from now on whether somebody overrides them."""
    for base in cls.__mro__[: cls.__mro__.index(torch.Tensor)]:
        if any(map(is_ours_to_know, vars(base))):
            raise Break("unsupported type", type=cls.__name__)
    vm.watching = True


def read(tensor: torch.Tensor, name: str) -> Any:
    """Return an attribute of a tensor, without what its class makes of it."""
    with torch._C.DisableTorchFunctionSubclass():
        return getattr(tensor, name)
