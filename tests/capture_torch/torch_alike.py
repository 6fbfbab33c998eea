"""Whether two objects are alike all the way down: types, values, metadata, and what is shared with what."""

from __future__ import annotations

import types
from typing import Any

import torch

PLAIN = (bool, int, float, complex, str, bytes, type(None), type, torch.dtype, torch.device, torch.Generator)
PLAIN += (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, types.MethodType, range, slice)


class Alike:
    """Compares two worlds; objects met once must be paired the same way when met again."""

    def __init__(self) -> None:
        self.pairs: dict[int, int] = {}
        self.kept: list[Any] = []  # ids are only good while the objects live

    def __call__(self, a: Any, b: Any, where: str = "result") -> None:
        assert type(a) is type(b), f"{where}: {type(a)} against {type(b)}"
        if isinstance(a, torch.Generator):
            assert torch.equal(a.get_state(), b.get_state()), where
        elif isinstance(a, types.FunctionType):
            assert a.__code__ is b.__code__, where
        elif isinstance(a, PLAIN):
            assert a == b or a != a, f"{where}: {a!r} against {b!r}"
        else:
            self.kept += [a, b]
            known = self.pairs.get(id(a))
            assert known is None or known == id(b), f"{where}: shared differently"
            self.pairs[id(a)] = id(b)
            if known is None:
                self.inside(a, b, where)

    def inside(self, a: Any, b: Any, where: str) -> None:
        if isinstance(a, torch.Tensor):
            self.tensors(a, b, where)
        elif isinstance(a, (list, tuple)):
            assert len(a) == len(b), f"{where}: {a} against {b}"
            for at, (x, y) in enumerate(zip(a, b)):
                self(x, y, f"{where}[{at}]")
        elif isinstance(a, dict):
            assert list(map(str, a)) == list(map(str, b)), f"{where}: {list(a)} against {list(b)}"
            for (key, x), y in zip(a.items(), b.values()):
                self(x, y, f"{where}[{key!r}]")
        own = getattr(a, "__dict__", {})
        assert list(own) == list(getattr(b, "__dict__", {})), (
            f"{where}: attributes {list(own)} against {list(b.__dict__)}"
        )
        for name, x in own.items():
            self(x, b.__dict__[name], f"{where}.{name}")

    def tensors(self, a: torch.Tensor, b: torch.Tensor, where: str) -> None:
        assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride(), where
        assert a.requires_grad == b.requires_grad and a.is_leaf == b.is_leaf and a.device == b.device, where
        assert a.is_inference() == b.is_inference() and a.is_conj() == b.is_conj(), where
        if a.is_leaf:
            self(a.grad, b.grad, f"{where}.grad")
        x, y = a.detach().resolve_conj().contiguous(), b.detach().resolve_conj().contiguous()
        x, y = (each.flatten().clone(memory_format=torch.contiguous_format).view(torch.uint8) for each in (x, y))
        assert torch.equal(x, y), f"{where}: {a} against {b}"
