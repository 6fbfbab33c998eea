"""A compiled nn.Module that is still that nn.Module.

The wrapper is an instance of a subclass of the module's own class, and shares the module's `__dict__`: parameters,
buffers, submodules, hooks, `training` and every other attribute are the original's, read and written through either.
So `isinstance`, `state_dict`, `train`, `to`, `len`, `dir` and whatever methods the class has need no forwarding, and
methods that return `self` return the wrapper. Only calling it, pickling and copying are different.

`__call__` is a slot that holds a native callable: no frame of ours stands in a traceback, and where a call of the
module does nothing but call its `forward`, none of nn.Module's either (`direct.py`).
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any

import torch

from torchdynamo.direct import direct_call, shown
from torchdynamo.hook.install import Compiled
from torchdynamo.whole_graph import Refused

_CLASSES: weakref.WeakValueDictionary[int, type[OptimizedModule]] = weakref.WeakValueDictionary()
"""id of a module class -> its subclass made here. The subclass keeps its base alive, so ids cannot be reused."""


class OptimizedModule(torch.nn.Module):
    """Base of the classes made here; its instances come from `torchdynamo.compile(module)` and its kin."""

    __slots__ = ()
    _orig_mod: torch.nn.Module
    _original_class: type[torch.nn.Module]
    __call__: Any
    _remake: Callable[[Any], Any]

    @staticmethod
    def wrap(
        module: torch.nn.Module, callback: Any, remake: Callable[[Any], Any], refused: Refused | None = None
    ) -> OptimizedModule:
        """Return the module with `callback` on while it is called. One that is compiled already is compiled anew.

        refused: what is called in its place, if it cannot be compiled as it has to be.
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
        """Return what the class itself makes (`self.__class__(...)` in a method of the user's) is an ordinary
        module.
        """
        return cls._original_class(*args, **kwargs)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Register nothing with bases: classes made here are nobody's subclass."""

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
    """Return the class of wrapped instances of `cls`: looks like `cls` to whoever asks for its name or source."""
    made = _CLASSES.get(id(cls))
    if made is None:
        namespace = {
            "__slots__": ("_orig_mod", "__call__", "_remake"),
            "__module__": cls.__module__,
            "__qualname__": cls.__qualname__,
            "__doc__": cls.__doc__,
            "_original_class": cls,
        }
        bases = (cls,) if issubclass(cls, OptimizedModule) else (OptimizedModule, cls)
        metaclass: Any = type(cls)
        made = _CLASSES[id(cls)] = metaclass(cls.__name__, bases, namespace)
    return made
