"""Call a custom `autograd.Function` as one operator of the graph, inside of layers of torch.func.

PyTorch runs its methods itself there, some of them in each layer, whenever the graph runs.
"""

from __future__ import annotations

import weakref
from typing import Any


class LayeredFunction:
    """Call `apply` of a class, which is held weakly: the frame that calls has it, as guards say."""

    def __init__(self, cls: type[Any]) -> None:
        self.cls = weakref.ref(cls)
        self.__name__ = f"{cls.__name__}.apply"
        self.__module__ = __name__

    def __call__(self, *args: Any) -> Any:
        cls = self.cls()
        assert cls is not None
        return cls.apply(*args)


def layered_function(cls: type[Any]) -> LayeredFunction:
    """Return the operator that calls a class, the same one each time."""
    found = _made.get(cls)
    if found is None:
        found = _made[cls] = LayeredFunction(cls)
    return found


_made: weakref.WeakKeyDictionary[type[Any], LayeredFunction] = weakref.WeakKeyDictionary()
