"""Wrap an nn.Module so that it is compiled and yet remains that nn.Module.

The wrapper is an instance of a subclass of the module's own class, and shares the module's `__dict__`: parameters,
buffers, submodules, hooks, `training` and all other attributes are the original's, read and written through either. So
`isinstance`, `state_dict`, `train`, `to`, `len`, `dir` and all methods of the class need no forwarding, and methods
that return `self` return the wrapper. Only calling, pickling and copying differ.

`__call__` is a slot that holds a native callable, so that no frame of ours is in a traceback; if a call does nothing
but call `forward`, none of nn.Module's is in the way either (`direct.py`).
"""

from __future__ import annotations

import copy
import functools
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from torchdynamo.direct import direct_call, shown
from torchdynamo.hook.install import Compiled
from torchdynamo.whole_graph import Refused

_CLASSES: weakref.WeakValueDictionary[int, type[OptimizedModule]] = weakref.WeakValueDictionary()
"""id of a module class -> its wrapper class, which keeps its base alive, so that ids are not reused."""


class OptimizedModule(torch.nn.Module):
    """Base of the wrapper classes; instances come from `torchdynamo.compile(module)` and the like."""

    __slots__ = ()
    _orig_mod: torch.nn.Module
    _original_class: type[torch.nn.Module]
    __call__: Any
    _remake: Callable[[Any], Any]

    @staticmethod
    def wrap(
        module: torch.nn.Module, callback: Any, remake: Callable[[Any], Any], refused: Refused | None = None
    ) -> OptimizedModule:
        """Return a wrapper of the module whose calls run with `callback`. A compiled module is unwrapped first.

        refused: a callable that raises, used instead if the module cannot be compiled as required.
        """
        original = module
        while isinstance(original, OptimizedModule) and original.__call__.callback:
            original = original._orig_mod
        cls = type(original)
        self = object.__new__(subclass_of(cls))
        call: Any
        if refused is not None:
            call = Compiled(refused, callback, way=Refused.hide)
        elif callback:
            call = Compiled(original, callback, direct=direct_call(original), way=shown())
        else:
            call = Compiled(original, callback)
        call.__name__, call.__qualname__ = cls.__name__, cls.__qualname__  # for messages
        for name, value in (
            ("__dict__", original.__dict__),
            ("_orig_mod", original),
            ("__call__", call),
            ("_remake", remake),
        ):
            object.__setattr__(self, name, value)
        return self

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Return an ordinary module of the original class, for `self.__class__(...)` in a method of the user's."""
        return cls._original_class(*args, **kwargs)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Do nothing: a base's own hook must not see wrapper classes."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return Compiled(self._orig_mod.forward, self.__call__.callback)(*args, **kwargs)

    def _get_name(self) -> str:
        return f"OptimizedModule[{type(self._orig_mod).__name__}]"

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._remake, (self._orig_mod,)

    def __copy__(self) -> OptimizedModule:
        return self._like(copy.copy(self._orig_mod))

    def __deepcopy__(self, memo: dict[int, Any]) -> OptimizedModule:
        return self._like(copy.deepcopy(self._orig_mod, memo))

    def _like(self, module: torch.nn.Module) -> OptimizedModule:
        return OptimizedModule.wrap(module, self.__call__.callback, self._remake)


def subclass_of(cls: type[torch.nn.Module]) -> type[OptimizedModule]:
    """Return the wrapper class of `cls`, with its name, module and documentation."""
    made = _CLASSES.get(id(cls))
    if made is None:
        namespace = {
            "__slots__": ("_orig_mod", "__call__", "_remake"),
            "__module__": cls.__module__,
            "__qualname__": cls.__qualname__,
            "__doc__": cls.__doc__,
            "_original_class": cls,
            **signed_forward(cls),
        }
        bases = (cls,) if issubclass(cls, OptimizedModule) else (OptimizedModule, cls)
        metaclass: Any = type(cls)
        made = _CLASSES[id(cls)] = metaclass(cls.__name__, bases, namespace)
    return made


def signed_forward(cls: type[torch.nn.Module]) -> dict[str, FunctionType]:
    """Return OptimizedModule's `forward` with the signature and documentation of a class's own; {} if that has none."""
    own = getattr(cls, "forward", None)
    if type(own) is not FunctionType or issubclass(cls, OptimizedModule):
        return {}
    ours: Any = OptimizedModule.forward
    forward = FunctionType(ours.__code__, ours.__globals__, "forward")
    functools.update_wrapper(forward, own, updated=())
    return {"forward": forward}
