"""Programs over nested tensors of the jagged layout."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from subclasses.programs import CASES, Case, case, t
from torch import nn

LENGTHS = [(2, 5, 3), (4, 1, 6)]


def jagged(width: int = 8, lengths: tuple[int, ...] = LENGTHS[0], grad: bool = False) -> torch.Tensor:
    parts = [torch.randn(n, width) for n in lengths]
    return torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=grad)


def offsets(lengths: tuple[int, ...] = LENGTHS[0]) -> torch.Tensor:
    return torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()])


@case(lambda: (jagged(),))
def nested_pointwise(x: Any) -> Any:
    return torch.relu(x * 2 + 1)


@case(lambda: (jagged(grad=True),))
def nested_pointwise_with_gradients(x: Any) -> Any:
    return (x.sin() * x).values()


@case(lambda: (jagged(), jagged().values() if False else 3.0))
def nested_with_number(x: Any, s: float) -> Any:
    return x * s - x / s


@case(lambda: (jagged(), nn.Linear(8, 4)))
def nested_linear(x: Any, layer: Any) -> Any:
    return layer(x)


@case(lambda: (jagged(grad=True), nn.Linear(8, 4)))
def nested_linear_trains(x: Any, layer: Any) -> Any:
    return layer(x).values().sum()


@case(lambda: (jagged(), nn.LayerNorm(8)))
def nested_layer_norm(x: Any, norm: Any) -> Any:
    return norm(x)


@case(lambda: (jagged(), nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))))
def nested_mlp(x: Any, net: Any) -> Any:
    return x + net(x)


@case(lambda: (t(10, 8), offsets()))
def nested_from_jagged(values: Any, off: Any) -> Any:
    x = torch.nested.nested_tensor_from_jagged(values, off)
    return (x * 2).values()


@case(lambda: (t(10, 8), offsets()))
def nested_from_jagged_returned(values: Any, off: Any) -> Any:
    return torch.nested.nested_tensor_from_jagged(values, off) + 1


@case(lambda: (t(10, 8, grad=True), offsets()))
def nested_from_jagged_trains(values: Any, off: Any) -> Any:
    x = torch.nested.nested_tensor_from_jagged(values * 1.0, off)
    return (x * x).values().sum()


@case(lambda: ([t(2, 8), t(5, 8)],))
def nested_from_list(parts: Any) -> Any:
    x = torch.nested.nested_tensor(parts, layout=torch.jagged)
    return x * 2


@case(lambda: ([t(2, 8, grad=True), t(5, 8, grad=True)],))
def nested_as_nested(parts: Any) -> Any:
    x = torch.nested.as_nested_tensor(parts, layout=torch.jagged)
    return (x * 2).values().sum()


@case(lambda: (jagged(),))
def nested_unbind(x: Any) -> Any:
    return [each.sum() for each in x.unbind()]


@case(lambda: (jagged(),))
def nested_to_padded(x: Any) -> Any:
    return torch.nested.to_padded_tensor(x, 0.0)


@case(lambda: (jagged(),))
def nested_parts(x: Any) -> Any:
    return x.values() * 2, x.offsets() + 1


@case(lambda: (jagged(),))
def nested_metadata(x: Any) -> Any:
    return x * x.dim() + x.size(0) + x.size(2), x.is_nested, x.layout is torch.jagged


@case(lambda: (jagged(),))
def nested_sum(x: Any) -> Any:
    return x.sum(-1), x.sum(1), x.mean(-1, keepdim=True), x.softmax(-1)


@case(lambda: (jagged(),))
def nested_like(x: Any) -> Any:
    return torch.zeros_like(x) + x, x.to(torch.float64), x.detach(), x.clone()


@case(lambda: (jagged(), jagged().values()))
def nested_two_of_one(x: Any, dense: Any) -> Any:
    y = torch.nested.nested_tensor_from_jagged(dense, x.offsets())
    return x + y


@case(lambda: (jagged(),))
def nested_written_to(x: Any) -> Any:
    x.mul_(2)
    return x + 1


class Attention(nn.Module):
    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        parts = [layer(x).unflatten(-1, [self.heads, -1]).transpose(1, 2) for layer in (self.q, self.k, self.v)]
        q, k, v = parts
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).flatten(-2))


@case(lambda: (Attention(), jagged(16)))
def nested_attention(net: Any, x: Any) -> Any:
    return net(x)


@case(lambda: (Attention(), jagged(16, grad=True)))
def nested_attention_trains(net: Any, x: Any) -> Any:
    return net(x).values().sum()


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.norm, self.net = Attention(), nn.LayerNorm(16), nn.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.norm(x))
        return x + F.gelu(self.net(x))


@case(lambda: (Layer(), jagged(16, grad=True)))
def nested_layer(net: Any, x: Any) -> Any:
    return net(x).values().square().mean()


__all__ = ["CASES", "Case"]
