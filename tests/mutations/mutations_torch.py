"""Tensors, modes and settings of torch, and torch's own functions patched."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
import torch.nn.functional as F
from mutating import Mutation, entering, mutation, one, setting, x


def double(x: torch.Tensor) -> torch.Tensor:
    return torch.matmul(x, x) * 2


def becoming(fn: Callable[..., Any], other: Callable[[], Any]) -> Mutation:
    """The argument is another one after the change."""
    makers = [x]
    return Mutation(fn, lambda: (makers[-1](),), lambda stack: makers.append(other))


@mutation
def input_of_another_size() -> Mutation:
    return becoming(double, lambda: torch.ones(3, 3))


@mutation
def input_of_another_rank() -> Mutation:
    return becoming(lambda x: x.sum(-1) * x.dim(), lambda: torch.ones(2, 2, 2))


@mutation
def input_of_other_strides() -> Mutation:
    return becoming(lambda x: x * (2 if x.is_contiguous() else 3), lambda: x().t())


@mutation
def input_of_another_dtype() -> Mutation:
    return becoming(double, lambda: x().double())


@mutation
def input_that_requires_grad() -> Mutation:
    return becoming(double, lambda: x().requires_grad_())


@mutation
def input_that_is_a_parameter() -> Mutation:
    return becoming(
        lambda x: x * (2 if isinstance(x, torch.nn.Parameter) else 3),
        lambda: torch.nn.Parameter(x(), requires_grad=False),
    )


@mutation
def input_that_is_none() -> Mutation:
    given: list[Any] = [torch.ones(2)]
    return Mutation(
        lambda x, m: x if m is None else x + m, lambda: (x(), given[0]), lambda stack: given.__setitem__(0, None)
    )


@mutation
def input_that_is_conjugated() -> Mutation:
    given: list[Callable[[torch.Tensor], Any]] = [lambda c: c]
    return Mutation(
        lambda c: torch.view_as_real(c.resolve_conj()) * (2 if c.is_conj() else 1),
        lambda: (given[-1](torch.complex(x(), x())),),
        lambda stack: given.append(torch.conj),
    )


@mutation
def inference_tensor() -> Mutation:
    def inference() -> torch.Tensor:
        with torch.inference_mode():
            return x() + 1

    return becoming(lambda x: x * (2 if x.is_inference() else 3), inference)


@mutation
def subclass_of_tensor() -> Mutation:
    class Tripled(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            with torch._C.DisableTorchFunctionSubclass():
                result = func(*args, **kwargs or {})
                return result * 3 if func is torch.Tensor.mul else result

    return becoming(lambda x: x * 2, lambda: x().as_subclass(Tripled))


@mutation
def inputs_that_share_memory() -> Mutation:
    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return b * 2

    same: list[int] = []

    def args() -> tuple[Any, ...]:
        a = x()
        return a, a[:] if same else x()

    return Mutation(fn, args, lambda stack: same.append(1))


@mutation
def inputs_that_are_one() -> Mutation:
    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.mul_(2)
        return a + b

    same: list[int] = []

    def args() -> tuple[Any, ...]:
        a = x()
        return a, a if same else x()

    return Mutation(fn, args, lambda stack: same.append(1))


@mutation
def inputs_that_are_no_longer_one() -> Mutation:
    apart: list[int] = []

    def args() -> tuple[Any, ...]:
        a = x()
        return a, x() if apart else a

    return Mutation(lambda a, b: (a + b, a is b), args, lambda stack: apart.append(1))


@mutation
def input_that_is_a_view() -> Mutation:
    makers: list[Callable[[], torch.Tensor]] = [lambda: torch.ones(2, 2)]
    return Mutation(
        lambda a: a * (2 if a._base is None else 3),
        lambda: (makers[-1](),),
        lambda stack: makers.append(lambda: torch.ones(1, 2, 2)[0]),
    )


@mutation
def input_that_has_a_gradient() -> Mutation:
    def graded() -> torch.Tensor:
        made = x().requires_grad_()
        made.grad = torch.ones(2, 2)
        return made

    makers: list[Callable[[], torch.Tensor]] = [lambda: x().requires_grad_()]
    return Mutation(
        lambda a: a * 2 if a.grad is None else a * 3, lambda: (makers[-1](),), lambda stack: makers.append(graded)
    )


@mutation
def attribute_of_a_tensor() -> Mutation:
    def marked() -> torch.Tensor:
        made = x()
        made.mark = True  # type: ignore[attr-defined]
        return made

    return becoming(lambda a: a * 2 if hasattr(a, "mark") else a * 3, marked)


@mutation
def no_grad() -> Mutation:
    return Mutation(double, lambda: (x().requires_grad_(),), entering(torch.no_grad))


@mutation
def inference_mode() -> Mutation:
    return Mutation(double, one, entering(torch.inference_mode))


@mutation
def grad_mode_that_is_read() -> Mutation:
    return Mutation(lambda x: x + 1 if torch.is_grad_enabled() else x, one, entering(torch.no_grad))


@mutation
def autocast() -> Mutation:
    return Mutation(double, one, entering(lambda: torch.autocast("cpu", dtype=torch.bfloat16)))


@mutation
def autocast_of_another_dtype() -> Mutation:
    def change(stack: ExitStack) -> None:
        stack.enter_context(torch.autocast("cpu", dtype=torch.float16))

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.matmul(x, x)

    return Mutation(fn, one, change)


@mutation
def autocast_off_inside() -> Mutation:
    def fn(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            return torch.matmul(x, x)

    return Mutation(fn, one, entering(lambda: torch.autocast("cpu", dtype=torch.bfloat16)), seen=False)


@mutation
def default_dtype() -> Mutation:
    def change(stack: ExitStack) -> None:
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float64)

    return Mutation(lambda x: x.sum().item() * 0 + torch.ones(2) if False else torch.ones(2) * 2 + x, one, change)


@mutation
def default_device() -> Mutation:
    return Mutation(lambda x: torch.ones(2) + 1, one, entering(lambda: torch.device("meta")))


@mutation
def function_mode() -> Mutation:
    class Tripling(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **kwargs or {})
            return result * 3 if func is torch.matmul else result

    return Mutation(double, one, entering(Tripling))


@mutation
def dispatch_mode() -> Mutation:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Tripling(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **kwargs or {})
            return result * 3 if func is torch.ops.aten.mm.default else result

    return Mutation(double, one, entering(Tripling))


@mutation
def deterministic_algorithms() -> Mutation:
    def change(stack: ExitStack) -> None:
        stack.callback(torch.use_deterministic_algorithms, False)
        torch.use_deterministic_algorithms(True)

    return Mutation(lambda x: x + 1 if torch.are_deterministic_algorithms_enabled() else x * 5, one, change)


@mutation
def matmul_precision() -> Mutation:
    def change(stack: ExitStack) -> None:
        stack.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
        torch.set_float32_matmul_precision("medium")

    return Mutation(lambda x: x + len(torch.get_float32_matmul_precision()), one, change)


@mutation
def saved_tensor_hooks() -> Mutation:
    def run(arg: torch.Tensor) -> Any:
        (arg * arg).sum().backward()
        return arg.grad

    hooks = torch.autograd.graph.saved_tensors_hooks
    return Mutation(run, lambda: (x().requires_grad_(),), entering(lambda: hooks(lambda t: t * 2, lambda t: t)))


@mutation
def torch_function_patched() -> Mutation:
    return Mutation(lambda x: torch.relu(x) + 1, one, setting(torch, "relu", lambda x: x * 9))


@mutation
def torch_function_patched_below() -> Mutation:
    def change(stack: ExitStack) -> None:
        setting(F, "relu", lambda x, inplace=False: x * 9)(stack)

    return Mutation(torch.nn.ReLU(), one, change)


@mutation
def functional_patched() -> Mutation:
    return Mutation(lambda x: F.relu(x) + 1, one, setting(F, "relu", lambda x: x * 9))


@mutation
def method_of_tensor_patched() -> Mutation:
    return Mutation(lambda x: x.tanh() + 1, one, setting(torch.Tensor, "tanh", lambda self: self * 9))


@mutation
def operator_of_tensor_patched() -> Mutation:
    return Mutation(lambda x: x + 1, one, setting(torch.Tensor, "__add__", lambda self, other: self * 9))


@mutation
def vmap_around() -> Mutation:
    depth: list[int] = []

    def wrapped(x: torch.Tensor) -> torch.Tensor:
        return inner(x)

    def inner(x: torch.Tensor) -> torch.Tensor:
        return x.sum() * x.dim()

    def fn(x: torch.Tensor) -> Any:
        return torch.func.vmap(wrapped)(x) if depth else wrapped(x)

    return Mutation(fn, one, lambda stack: depth.append(1))


@mutation
def class_of_a_tensor() -> Mutation:
    class Special(torch.Tensor):
        pass

    held = x()

    def change(stack: ExitStack) -> None:
        held.__class__ = Special

    return Mutation(lambda v: v * (2 if isinstance(v, Special) else 3), lambda: (held,), change)


@mutation
def autocast_dtype_of_another_device() -> Mutation:
    def change(stack: ExitStack) -> None:
        stack.callback(torch.set_autocast_dtype, "xpu", torch.get_autocast_dtype("xpu"))
        torch.set_autocast_dtype("xpu", torch.float64)

    return Mutation(lambda v: v.to(torch.get_autocast_dtype("xpu")), one, change)


def sparse(given: list[float]) -> torch.Tensor:
    return torch.tensor(given).to_sparse()


@mutation
def input_that_becomes_sparse() -> Mutation:
    return becoming(lambda v: torch.ones(2) * (2 if v.layout is torch.strided else 3), lambda: sparse([1.0, 2.0]))


@mutation
def input_that_is_nested() -> Mutation:
    def fn(v: torch.Tensor) -> torch.Tensor:
        return torch.ones(1) if v.is_nested else v * 2

    return becoming(fn, lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]))


@mutation
def input_that_has_names() -> Mutation:
    if not hasattr(torch.Tensor, "has_names"):  # this torch has no more of them
        return becoming(lambda v: v * 2, lambda: x().double())
    return becoming(lambda v: v * (2 if v.has_names() else 3), lambda: x().refine_names("rows", "columns"))
