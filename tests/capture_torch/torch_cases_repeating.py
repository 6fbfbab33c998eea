"""Higher-order operators that repeat: while_loop, scan, map."""

from __future__ import annotations

import torch
from torch._higher_order_ops import map as map_
from torch._higher_order_ops import scan, while_loop
from torch_cases import case

W = torch.ones(3)
X = torch.rand(2, 3) + 0.5


@case(X)
def counted(x):
    return while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2 + W), (torch.tensor(0), x))


@case(X)
def until(x):
    return while_loop(lambda a: a.sum() < 50, lambda a: (a * x + 1,), (x,))


@case(X)
def never(x):
    (y,) = while_loop(lambda a: a.sum() < 0, lambda a: (a * 2,), (x,))
    return y, y is x


@case(X.clone().requires_grad_(), breaks="unsupported operator")
def loop_with_gradients(x):
    return while_loop(lambda a: a.sum() < 50, lambda a: (a * 2,), (x,))


@case(X, breaks="unsupported operator")
def other_shape_each_turn(x):
    return while_loop(lambda a: a.sum() < 50, lambda a: (torch.cat([a, a]),), (x,))


@case(X)
def scanned(x):
    return scan(lambda c, v: (c + v, c * v), torch.zeros(3), x)


@case(X)
def scanned_backwards(x):
    return scan(lambda c, v: ({"a": c["a"] + v}, (c["a"] * v, v.sum())), {"a": torch.zeros(2)}, x, dim=1, reverse=True)


@case(X)
def mapped(x):
    return map_(lambda v, k: v * k, x, torch.ones(3))


@case(X)
def mapped_trees(x):
    return map_(lambda v: {"s": v[0] + W, "t": v[1].sum()}, (x, x * 2))
