"""Programs over wrapper subclasses and nested tensors: each a function and what makes its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from subclasses.wrappers import Format, Int8Weight, Masked, NoFlatten, Scaled, Two
from torch import nn


class Case(NamedTuple):
    """A program. whole: it is one graph."""

    name: str
    f: Callable[..., Any]
    make: Callable[[], tuple[Any, ...]]
    whole: bool = True


CASES: list[Case] = []


def case(make: Callable[[], tuple[Any, ...]], whole: bool = True) -> Callable[[Any], Any]:
    def keep(f: Any) -> Any:
        CASES.append(Case(f.__name__, f, make, whole))
        return f

    return keep


def t(*shape: int, grad: bool = False) -> torch.Tensor:
    return torch.randn(*shape).requires_grad_(grad)


def two(*shape: int, grad: bool = False) -> Two:
    return Two(torch.randn(*shape), torch.randn(*shape)).requires_grad_(grad)  # type: ignore[return-value]


def scaled(*shape: int, grad: bool = False) -> Scaled:
    return Scaled(torch.randn(*shape), 0.5).requires_grad_(grad)  # type: ignore[return-value]


def masked(*shape: int, grad: bool = False) -> Masked:
    return Masked(torch.randn(*shape), torch.rand(*shape) > 0.5).requires_grad_(grad)  # type: ignore[return-value]


# -- inputs -----------------------------------------------------------------------------------------------------------
@case(lambda: (two(2, 3),))
def two_in_two_out(x: Any) -> Any:
    return (x * 2).relu() + 1


@case(lambda: (two(2, 3), t(2, 3)))
def two_and_plain(x: Any, y: Any) -> Any:
    return x + y, y * 2


@case(lambda: (two(2, 3, grad=True),))
def two_with_gradients(x: Any) -> Any:
    return (x.sin() * x).sum()


@case(lambda: (two(2, 3, grad=True), t(3, 4, grad=True)))
def two_matmul_with_gradients(x: Any, w: Any) -> Any:
    return torch.tanh(x @ w)


@case(lambda: (two(4, 3),))
def two_views(x: Any) -> Any:
    return x.t(), x[1:], x.view(-1), x.reshape(2, 6), x.unsqueeze(0)


@case(lambda: (two(4, 3),))
def two_metadata(x: Any) -> Any:
    return x * x.shape[0] + x.dim() + x.numel(), x.dtype, x.size(1), x.is_contiguous()


@case(lambda: (two(2, 3),))
def two_written_to(x: Any) -> Any:
    x.add_(1)
    return x * 2


@case(lambda: (two(4, 3),))
def two_view_written_to(x: Any) -> Any:
    x[0].mul_(3)
    return x + 1


@case(lambda: (two(2, 3), two(2, 3)))
def two_copied_into(x: Any, y: Any) -> Any:
    x.copy_(y)
    return x.sum()


@case(lambda: (two(2, 3),))
def two_attributes(x: Any) -> Any:
    return x.a + 1, x.b * 2


@case(lambda: (two(2, 3),))
def two_method(x: Any) -> Any:
    return x.difference() + (x * 2).difference()


@case(lambda: (two(2, 3),))
def two_isinstance(x: Any) -> Any:
    y = x + 1
    return y if isinstance(y, Two) and type(y) is Two and isinstance(y, torch.Tensor) else None


@case(lambda: (two(2, 3),))
def two_returned_itself(x: Any) -> Any:
    return x, x.clone(), x.detach()


@case(lambda: ([two(2, 3), two(2, 3)],))
def two_in_a_list(xs: Any) -> Any:
    return torch.stack([x * i for i, x in enumerate(xs)]), torch.cat(xs, 1)


@case(lambda: (two(2, 3), 3))
def two_in_a_loop(x: Any, n: int) -> Any:
    for i in range(n):
        x = x * i + x
    return x


@case(lambda: (two(2, 3, grad=True),))
def two_detached(x: Any) -> Any:
    with torch.no_grad():
        y = x * 2
    return x * y.detach()


@case(lambda: (two(5, 3), torch.tensor([0, 2])))
def two_indexed(x: Any, i: Any) -> Any:
    return x[i], F.softmax(x, -1), x.mean(0, keepdim=True)


@case(lambda: (two(2, 3),))
def two_inner_written_to(x: Any) -> Any:
    x.a.add_(1)
    return x * 2


@case(lambda: (Two(two(2, 3), two(2, 3)),))
def two_of_two(x: Any) -> Any:
    return x * 2 + x.a


@case(lambda: (two(4, 4), two(4, 4)))
def two_branch_on_shape(x: Any, y: Any) -> Any:
    if x.shape == y.shape and x.stride(0) == 4:
        return x @ y
    return x


# -- made in the frame ------------------------------------------------------------------------------------------------
@case(lambda: (t(2, 3), t(2, 3)))
def two_made(a: Any, b: Any) -> Any:
    return Two(a, b) * 2


@case(lambda: (t(2, 3, grad=True), t(2, 3, grad=True)))
def two_made_and_opened(a: Any, b: Any) -> Any:
    made = Two(a * 1.0, b * 1.0)
    return (made.a + made.b).sin()


@case(lambda: (t(2, 3), t(2, 3)))
def two_made_in_a_helper(a: Any, b: Any) -> Any:
    def helper(x: Any) -> Any:
        return Two(x, x + 1)

    return helper(a) + helper(b)


@case(lambda: (t(2, 3),))
def scaled_made(x: Any) -> Any:
    s = Scaled(x, 0.25)
    return s + 1, s.scale, s.plain()


@case(lambda: (t(2, 3),))
def masked_made(x: Any) -> Any:
    m = Masked(x, x > 0)
    return m + 1, (m * 2).sum()


@case(lambda: (t(4, 3), t(5, 3)))
def weight_made(w: Any, x: Any) -> Any:
    return F.linear(x, Int8Weight.of(w))


@case(lambda: (t(2, 3), t(2, 3)))
def made_and_returned(a: Any, b: Any) -> Any:
    return Two(a, b), Scaled(a, 2.0), Masked(a, b > 0)


@case(lambda: (t(2, 3),))
def made_and_written_to(a: Any) -> Any:
    made = Two(a.clone(), a + 1)
    made.mul_(2)
    return made, made.a


# -- context, masks, weights ------------------------------------------------------------------------------------------
@case(lambda: (scaled(2, 3), t(2, 3)))
def scaled_in(s: Any, x: Any) -> Any:
    return s + x, s.scale * 2


@case(lambda: (scaled(4, 3), t(5, 3)))
def scaled_weight(s: Any, x: Any) -> Any:
    return F.linear(x, s)


@case(lambda: (scaled(4, 3, grad=True), t(5, 3, grad=True)))
def scaled_weight_with_gradients(s: Any, x: Any) -> Any:
    return F.linear(x, s).relu()


@case(lambda: (scaled(2, 3),))
def scaled_written_to(s: Any) -> Any:
    s.mul_(2)
    return s + 1


@case(lambda: (scaled(2, 3),))
def scaled_branch_on_context(s: Any) -> Any:
    return s + 1 if s.scale < 1 else s - 1


@case(lambda: (masked(3, 4), masked(3, 4)))
def masked_added(x: Any, y: Any) -> Any:
    return x + y, x.sum(), (x * y).sum(0)


@case(lambda: (masked(3, 4, grad=True),))
def masked_with_gradients(x: Any) -> Any:
    return (x * 3).sum()


@case(lambda: (masked(3, 4),))
def masked_filled(x: Any) -> Any:
    return x.filled(0.0), x.mask.sum()


@case(lambda: (Int8Weight.of(t(4, 3)), t(5, 3), t(4)))
def weight_in(w: Any, x: Any, b: Any) -> Any:
    return F.linear(x, w, b), w.dequantize(), w.format.bits


@case(lambda: (Int8Weight.of(t(4, 3)), t(5, 3, grad=True)))
def weight_with_gradients(w: Any, x: Any) -> Any:
    return F.linear(x, w)


class Quantized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        for layer in self.layers:
            layer.weight = nn.Parameter(Int8Weight.of(layer.weight.detach()), requires_grad=False)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = F.relu(layer(x))
        return x


@case(lambda: (Quantized(), t(2, 8)))
def quantized_model(model: Any, x: Any) -> Any:
    return model(x)


@case(lambda: (Quantized(), t(2, 8, grad=True)))
def quantized_model_with_gradients(model: Any, x: Any) -> Any:
    return model(x).sum()


class WithTwo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.linear.weight = nn.Parameter(two(3, 3).detach())
        self.linear.bias = nn.Parameter(two(3).detach())
        self.register_buffer("seen", two(3).detach())

    def forward(self, x: Any) -> Any:
        return self.linear(x) + self.seen


@case(lambda: (WithTwo(), t(2, 3)))
def parameters_of_two(model: Any, x: Any) -> Any:
    return model(x)


@case(lambda: (WithTwo(), t(2, 3)))
def buffer_of_two_written_to(model: Any, x: Any) -> Any:
    model.seen.add_(1)
    return model(x).sum()


@case(lambda: (nn.Parameter(two(2, 3)),))
def parameter_asked(p: Any) -> Any:
    return p * 2 if isinstance(p, nn.Parameter) and isinstance(p, Two) else None


@case(lambda: (NoFlatten(t(2, 3)),), whole=False)
def without_flatten(x: Any) -> Any:
    return x + 1


# -- torch function, modes --------------------------------------------------------------------------------------------
@case(lambda: (two(2, 3),))
def without_torch_function(x: Any) -> Any:
    with torch._C.DisableTorchFunctionSubclass():
        return x + 1


@case(lambda: (two(2, 3),))
def two_data(x: Any) -> Any:
    y = x.data
    return y * 2


@case(lambda: (two(2, 3),))
def two_to(x: Any) -> Any:
    return x.to(torch.float64), x.half(), x.to("cpu"), torch.zeros_like(x), x.new_ones(2)


@case(lambda: (two(2, 3), {"k": two(2, 3)}))
def two_in_a_dict(x: Any, d: Any) -> Any:
    d["new"] = x + d["k"]
    return d["new"] * 2


@case(lambda: (two(2, 3, grad=True),))
def two_split(x: Any) -> Any:
    first, second = x.split(1)
    return first * second, torch.chunk(x, 3, 1)[1]


@case(lambda: (two(2, 3), Format(4)))
def two_format(x: Any, f: Any) -> Any:
    return x * f.bits
