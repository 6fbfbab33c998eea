"""Register the C getters and methods that guards may call: they have no side effects and run no Python."""

from __future__ import annotations

import collections
import contextvars
import types
from typing import Any

import torch

from torchdynamo import _native
from torchdynamo.graph.numpy_nodes import np

LOOKING: list[tuple[type, tuple[str, ...]]] = [
    (types.BuiltinFunctionType, ("__self__", "__name__")),
    (BaseException, ("args", "__traceback__")),
    (collections.deque, ("maxlen",)),
    (bytearray, ("hex",)),
    (contextvars.ContextVar, ("get",)),
    (torch.Generator, ("device",)),
]
if np is not None:
    LOOKING += [
        (np.ndarray, ("dtype", "shape", "strides", "tobytes")),
        (np.dtype, ("str",)),
        (np.generic, ("item",)),
    ]


def register() -> None:
    """Register them with the native guard program."""
    for cls, names in LOOKING:
        for name in names:
            found: Any = cls.__dict__[name]
            _native.only_looks(found)
