"""Leaves of autograd's history: parameters made, requires_grad, .data, gradients asked for, attributes of tensors."""

from __future__ import annotations

import torch
from torch import nn
from torch_cases import case

X = torch.randn(2, 4)
LEAF = torch.randn(2, 4).requires_grad_()


@case(X)
def makes_a_parameter(x):
    p = nn.Parameter(x * 2)
    return p, type(p) is nn.Parameter, isinstance(p, nn.Parameter), p.requires_grad, p.is_leaf, p * 3


@case(X, grad=False)
def makes_a_frozen_parameter(x):
    p = nn.Parameter(x, requires_grad=False)
    p.add_(1)
    return p, p.requires_grad


class Grows(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, x):
        self.weight = nn.Parameter(torch.cat([self.weight.detach(), x.sum()[None]])[:2])
        return self.weight * 2


@case(Grows(), X)
def replaces_a_parameter(m, x):
    return m(x), list(m.parameters())


@case(X)
def requires_grad_of_a_result(x):
    y = (x * 2).requires_grad_()
    z = y * 3
    return y, z, y.is_leaf, z.is_leaf, z.requires_grad


@case(X)
def requires_grad_of_an_input(x):
    x.requires_grad_()
    return x, (x * 2).sum()


@case(X)
def requires_grad_assigned(x):
    x.requires_grad = True
    return x * 2


@case(LEAF)
def frozen_input(x):
    x.requires_grad_(False)
    return x * 2


@case(LEAF)
def detaches_in_place(x):
    y = x * 2
    y.detach_()
    return y, y.requires_grad, y.is_leaf


@case(LEAF, X)
def swaps_data(x, y):
    x.data = y + 1
    return x * 2, x.data


@case(LEAF)
def reads_data(x):
    x.data.mul_(2)
    return x.data + 1, x * 3


@case(LEAF, X)
def its_own_data(x, y):
    old = x.data
    x.data = x.data.to(x.device)
    x.data = y + 1
    x.data = old
    return x * 2, x.data


@case(LEAF, torch.randn(3, 4))
def data_of_another_shape(x, y):
    x.data = y
    return x.shape, x + 1


@case(X)
def gradients(x):
    with torch.enable_grad():
        y = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad((y**3).sum(), y)
    return slope + 1


@case(X, LEAF)
def gradients_of_gradients(x, w):
    y = x.detach().requires_grad_()
    (first,) = torch.autograd.grad((y * w).tanh().sum(), y, create_graph=True)
    return first, first.pow(2).sum()


@case(X)
def attributes_of_tensors(x):
    y = x * 2
    y.scale, x.seen = 3, True
    y.gone = 1
    del y.gone
    return y, y.scale, hasattr(y, "gone"), hasattr(x, "seen")


def marked():
    x = X.clone()
    x.mark = [1]
    return x


@case(marked())
def attributes_of_inputs(x):
    x.mark.append(2)
    before = x.mark
    x.mark = "new"
    return before, x.mark, x + 1


@case(marked())
def attributes_taken_off(x):
    del x.mark
    return x + 1, hasattr(x, "mark")


@case(X)
def attributes_that_are_missing(x):
    try:
        del x.nothing
    except AttributeError:
        return x + 1
    return x
