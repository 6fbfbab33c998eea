"""Compile a small function as one graph, and hold it against eager: result, sharing, mutated arguments."""

from __future__ import annotations

import copy
import types
from typing import Any

import torch

import torchdynamo
from torchdynamo import _native

SCALARS = (bool, int, float, complex, str, bytes, type(None), type, torch.dtype, torch.device, types.CodeType)


class Same:
    """Equality of two worlds: same types, same values, same sharing inside."""

    def __init__(self) -> None:
        self.pairs: dict[int, int] = {}
        self.kept: list[Any] = []  # so that no id is given twice

    def __call__(self, a: Any, b: Any, where: str = "result") -> None:
        assert type(a) is type(b), f"{where}: {type(a)} against {type(b)}"
        if isinstance(a, SCALARS):
            assert a == b or (a != a and b != b), f"{where}: {a!r} against {b!r}"
            return
        self.kept += [a, b]
        known = self.pairs.setdefault(id(a), id(b))
        assert known == id(b), f"{where}: shared differently"
        if isinstance(a, torch.Tensor):
            assert a.dtype == b.dtype and a.shape == b.shape, where
            assert torch.equal(a, b) or torch.allclose(a, b, rtol=0, atol=0, equal_nan=True), where
        elif known != id(a):
            self.inside(a, b, where)

    def inside(self, a: Any, b: Any, where: str) -> None:
        if isinstance(a, BaseException):
            self(a.args, b.args, f"{where}.args")
        elif isinstance(a, dict):
            self(list(a), list(b), f"{where}.keys()")
            self(list(a.values()), list(b.values()), f"{where}.values()")
        elif isinstance(a, (set, frozenset)):
            assert a == b, f"{where}: {a} against {b}"
        elif hasattr(a, "__len__") and hasattr(a, "__iter__"):
            assert len(a) == len(b), f"{where}: {a} against {b}"
            for at, (x, y) in enumerate(zip(a, b)):
                self(x, y, f"{where}[{at}]")
        slots = [name for base in type(a).__mro__ for name in getattr(base, "__slots__", ()) if name != "__dict__"]
        own = {name: getattr(a, name) for name in slots if hasattr(a, name)} | dict(getattr(a, "__dict__", {}))
        other = {name: getattr(b, name) for name in slots if hasattr(b, name)} | dict(getattr(b, "__dict__", {}))
        if type(a).__flags__ & 1 << 9 or own:
            assert list(own) == list(other), f"{where}: attributes {list(own)} against {list(other)}"
            for name, value in own.items():
                self(value, other[name], f"{where}.{name}")


def check(fn: types.FunctionType, args: tuple[Any, ...], again: bool = True) -> None:
    """The compiled `fn` does what `fn` does; twice, and the second call is a hit on what the first made."""
    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=True)
    torch.manual_seed(0)
    theirs = copy.deepcopy(args)
    wanted = fn(*theirs)
    for call in range(2):
        mine = copy.deepcopy(args)
        torch.manual_seed(0)
        got = compiled(*mine)
        Same()((wanted, theirs), (got, mine))
        if again or not call:
            assert len(_native.cache_entries(fn.__code__)) == 1
