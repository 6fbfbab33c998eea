"""Wrapper subclasses of Tensor, as programs write them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

aten = torch.ops.aten


class Two(torch.Tensor):
    """Two tensors; each operator runs on both. `__torch_function__` is Tensor's own."""

    a: torch.Tensor
    b: torch.Tensor

    @staticmethod
    def __new__(cls, a: torch.Tensor, b: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls,
            a.size(),
            strides=a.stride(),
            storage_offset=a.storage_offset(),
            dtype=a.dtype,
            layout=a.layout,
            device=a.device,
            requires_grad=a.requires_grad,
        )

    def __init__(self, a: torch.Tensor, b: torch.Tensor) -> None:
        self.a = a
        self.b = b

    def __repr__(self) -> str:
        return f"Two({self.a!r}, {self.b!r})"

    def __tensor_flatten__(self) -> Any:
        return ["a", "b"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, meta: Any, size: Any, stride: Any) -> Any:
        return Two(inner["a"], inner["b"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def each(name: str) -> Any:
            given = pytree.tree_map_only(Two, lambda two: getattr(two, name), (args, kwargs or {}))
            return func(*given[0], **given[1])

        out_a, out_b = each("a"), each("b")
        leaves, spec = pytree.tree_flatten(out_a)
        others = pytree.tree_leaves(out_b)
        out = [cls(x, y) if isinstance(x, torch.Tensor) else x for x, y in zip(leaves, others)]
        return return_and_correct_aliasing(func, args, kwargs or {}, pytree.tree_unflatten(out, spec))

    def difference(self) -> torch.Tensor:
        return self.a - self.b


class Scaled(torch.Tensor):
    """A tensor with a number beside it, which is part of the context; `__torch_function__` is disabled."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    data_: torch.Tensor
    scale: float

    @staticmethod
    def __new__(cls, data_: torch.Tensor, scale: float) -> Any:
        made = torch.Tensor._make_wrapper_subclass(
            cls, data_.shape, dtype=data_.dtype, device=data_.device, requires_grad=data_.requires_grad
        )
        made.data_, made.scale = data_, scale
        return made

    def __repr__(self) -> str:
        return f"Scaled({self.data_!r}, {self.scale})"

    def __tensor_flatten__(self) -> Any:
        return ["data_"], {"scale": self.scale}

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, meta: Any, size: Any, stride: Any) -> Any:
        return cls(inner["data_"], meta["scale"])

    def plain(self) -> torch.Tensor:
        return self.data_ * self.scale

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (aten.detach.default, aten.clone.default, aten.alias.default, aten.t.default, aten.view.default):
            first, *others = args
            return return_and_correct_aliasing(
                func, args, kwargs, cls(func(first.data_, *others, **kwargs), first.scale)
            )
        if func is aten.copy_.default and isinstance(args[1], Scaled) and args[1].scale == args[0].scale:
            args[0].data_.copy_(args[1].data_)
            return args[0]
        if func is aten.mul_.Scalar or func is aten.mul_.Tensor:
            args[0].data_.mul_(args[1])
            return return_and_correct_aliasing(func, args, kwargs, args[0])
        opened = pytree.tree_map_only(Scaled, lambda one: one.plain(), (args, kwargs))
        return func(*opened[0], **opened[1])


@dataclass(frozen=True)
class Format:
    """How numbers are kept."""

    bits: int = 8
    per_row: bool = True


class Int8Weight(torch.Tensor):
    """An int8 weight with a scale for each row, whose operators it implements by `__torch_function__` and dispatch."""

    implemented: dict[Any, Callable[..., Any]] = {}
    ints: torch.Tensor
    scales: torch.Tensor
    format: Format

    @staticmethod
    def __new__(cls, ints: torch.Tensor, scales: torch.Tensor, format: Format, dtype: torch.dtype) -> Any:
        kwargs: dict[str, Any] = {"device": ints.device, "dtype": dtype, "requires_grad": False}
        return torch.Tensor._make_wrapper_subclass(cls, ints.shape, **kwargs)

    def __init__(self, ints: torch.Tensor, scales: torch.Tensor, format: Format, dtype: torch.dtype) -> None:
        self.ints, self.scales, self.format = ints, scales, format

    def __repr__(self) -> str:
        return f"Int8Weight({tuple(self.shape)})"

    def __tensor_flatten__(self) -> Any:
        return ["ints", "scales"], (self.format, self.dtype)

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, meta: Any, size: Any, stride: Any) -> Any:
        return cls(inner["ints"], inner["scales"], *meta)

    @classmethod
    def of(cls, weight: torch.Tensor) -> Int8Weight:
        scales = weight.abs().amax(1) / 127
        ints = torch.clamp(torch.round(weight / scales[:, None]), -128, 127).to(torch.int8)
        return cls(ints, scales, Format(), weight.dtype)

    def dequantize(self) -> torch.Tensor:  # type: ignore[override]
        return self.ints.to(self.dtype) * self.scales[:, None]

    @classmethod
    def implements(cls, *functions: Any) -> Any:
        def keep(fn: Any) -> Any:
            cls.implemented.update(dict.fromkeys(functions, fn))
            return fn

        return keep

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {} if kwargs is None else kwargs
        if func in cls.implemented:
            return cls.implemented[func](func, types, args, kwargs)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in cls.implemented:
            return cls.implemented[func](func, types, args, kwargs or {})
        raise NotImplementedError(f"{cls.__name__}: {func}")


@Int8Weight.implements(F.linear)
def _linear(func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    x, weight = args[:2]
    bias = args[2] if len(args) > 2 else kwargs.get("bias")
    out = torch.mm(x.reshape(-1, x.shape[-1]), weight.ints.t().to(x.dtype)) * weight.scales
    out = out.reshape(*x.shape[:-1], weight.shape[0])
    return out if bias is None else out + bias


@Int8Weight.implements(aten.detach.default, aten.clone.default, aten.alias.default)
def _each(func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    (old,) = args[:1]
    new = Int8Weight(func(old.ints, *args[1:], **kwargs), func(old.scales, *args[1:], **kwargs), old.format, old.dtype)
    return return_and_correct_aliasing(func, args, kwargs, new)


@Int8Weight.implements(aten._to_copy.default)
def _to_copy(func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    return args[0].dequantize().to(**kwargs)


class Masked(torch.Tensor):
    """Numbers and a mask that says which of them count."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    numbers: torch.Tensor
    mask: torch.Tensor

    @staticmethod
    def __new__(cls, numbers: torch.Tensor, mask: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls, numbers.shape, dtype=numbers.dtype, device=numbers.device, requires_grad=numbers.requires_grad
        )

    def __init__(self, numbers: torch.Tensor, mask: torch.Tensor) -> None:
        self.numbers, self.mask = numbers, mask

    def __repr__(self) -> str:
        return f"Masked({self.numbers!r}, {self.mask!r})"

    def __tensor_flatten__(self) -> Any:
        return ["numbers", "mask"], {}

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, meta: Any, size: Any, stride: Any) -> Any:
        return cls(inner["numbers"], inner["mask"])

    def filled(self, value: float) -> torch.Tensor:
        return torch.where(self.mask, self.numbers, value)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (aten.sum.default, aten.sum.dim_IntList):
            return func(args[0].filled(0.0), *args[1:], **kwargs)
        masks = [one.mask for one in pytree.tree_leaves(args) if isinstance(one, Masked)]
        opened = pytree.tree_map_only(Masked, lambda one: one.numbers, (args, kwargs))
        out = func(*opened[0], **opened[1])
        mask = masks[0]
        for other in masks[1:]:
            mask = mask & other
        if isinstance(out, torch.Tensor) and out.shape == mask.shape:
            if func is aten.add_.Tensor:
                return args[0]
            out = cls(out, mask)
            return return_and_correct_aliasing(func, args, kwargs, out)
        return out


class NoFlatten(torch.Tensor):
    """A wrapper that nobody can take apart."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, elem: torch.Tensor) -> Any:
        made = torch.Tensor._make_wrapper_subclass(cls, elem.shape, dtype=elem.dtype)
        made.elem = elem
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        opened = pytree.tree_map_only(NoFlatten, lambda one: one.elem, (args, kwargs or {}))
        return cls(func(*opened[0], **opened[1]))
