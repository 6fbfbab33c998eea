"""Random numbers: seeds, generators and their states are operations of the graph."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch_cases import case

X = torch.ones(4)
KEPT = torch.Generator()


def drawn() -> torch.Tensor:
    """Where the numbers have got to."""
    return torch.get_rng_state()


@case(X)
def seeded(x):
    torch.manual_seed(3)
    return x + torch.randn(4), drawn()


@case(X)
def seeded_twice(x):
    torch.manual_seed(3)
    a = torch.rand(2)
    torch.random.manual_seed(3)
    return a, torch.rand(2), F.dropout(x, 0.5), drawn()


@case(X)
def generator_made(x):
    g = torch.Generator().manual_seed(3)
    return x + torch.randn(4, generator=g), torch.rand(2, generator=g), torch.rand(2), g.device


@case(X)
def generator_returned(x):
    g = torch.Generator(device="cpu")
    g.manual_seed(2)
    return torch.randperm(4, generator=g), g


@case(X, torch.Generator())
def generator_passed(x, g):
    g.manual_seed(5)
    x.normal_(generator=g)
    return torch.multinomial(x.abs(), 2, generator=g), torch.bernoulli(torch.full((3,), 0.5), generator=g)


@case(X)
def generator_of_the_module(x):
    KEPT.manual_seed(1)
    i = torch.randint(0, 4, (2,), generator=KEPT)
    return x[i], torch.rand(1, generator=KEPT)


@case(X)
def state_of_a_generator(x):
    g = torch.Generator()
    g.manual_seed(1)
    state = g.get_state()
    a = torch.rand(3, generator=g)
    g.set_state(state)
    return a, torch.rand(3, generator=g), state


@case(X)
def default_generator(x):
    g = torch.manual_seed(4)
    return torch.rand(3, generator=g), torch.rand(3, generator=torch.default_generator), drawn()


@case(X)
def forked(x):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        y = F.dropout(x, 0.5)
    return y, torch.rand(1), drawn()


@case(X)
def state_put_back(x):
    state = torch.get_rng_state()
    a = torch.randn(2)
    torch.set_rng_state(state)
    return a, torch.randn(2), drawn()


@case(X)
def seeded_before_a_check(x):
    torch.manual_seed(0)
    return torch.distributions.Normal(x, 1.0).rsample()


@case(X)
def seed_that_is_none(x):
    try:
        torch.Generator().manual_seed("a")
    except RuntimeError as error:
        return x, type(error).__name__


@case(X)
def fork_switched_off(x):
    with torch.random.fork_rng(devices=[], enabled=False):
        return torch.rand(2), drawn()
