"""Numbers: physics, probability, attribution, flows, recommendations."""

import math

import torch
import torch.nn.functional as F
from programs import program, weights
from torch import nn


@program()
def heat_equation(seed, compile):
    """A network that is trained to satisfy an equation: derivatives by its inputs, of second order."""
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)

    def step(i):
        inside = torch.rand(20, 2, requires_grad=True)
        u = model(inside)
        (slope,) = torch.autograd.grad(u.sum(), inside, create_graph=True)
        (curve,) = torch.autograd.grad(slope[:, 0].sum(), inside, create_graph=True)
        residue = (slope[:, 1] - 0.1 * curve[:, 0]).square().mean()
        x = torch.rand(10, 1)
        start = F.mse_loss(model(torch.cat([x, torch.zeros_like(x)], 1)), torch.sin(math.pi * x))
        loss = residue + 10 * start
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item(), residue.item()

    return step, lambda: weights(model, optimizer)


@program()
def pyro_inference(seed, compile):
    """Stochastic variational inference in Pyro, and samples of the posterior."""
    import pyro
    import pyro.distributions as dist
    from pyro.infer import SVI, Predictive, Trace_ELBO
    from pyro.infer.autoguide import AutoDiagonalNormal
    from pyro.optim import ClippedAdam

    pyro.clear_param_store()
    x = torch.randn(20, 3)
    y = x @ torch.tensor([1.0, -2.0, 0.5]) + 0.1 * torch.randn(20)

    def model(x, y=None):
        weight = pyro.sample("weight", dist.Normal(torch.zeros(3), 1.0).to_event(1))
        noise = pyro.sample("noise", dist.HalfCauchy(torch.tensor(1.0)))
        with pyro.plate("data", len(x)):
            return pyro.sample("y", dist.Normal(x @ weight, noise), obs=y)

    guide = AutoDiagonalNormal(model)
    inference = SVI(model, guide, ClippedAdam({"lr": 0.02, "clip_norm": 5.0}), Trace_ELBO())

    def step(i):
        loss = inference.step(x, y)
        drawn = Predictive(model, guide=guide, num_samples=3)(x[:2])
        return loss, drawn["y"]

    return step, lambda: weights({name: value.detach() for name, value in pyro.get_param_store().items()})


@program()
def attribution(seed, compile):
    """captum: what a model looks at, by five methods."""
    from captum.attr import DeepLift, FeatureAblation, GuidedBackprop, IntegratedGradients, Saliency

    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)).eval()
    methods = [kind(model) for kind in (IntegratedGradients, Saliency, DeepLift, FeatureAblation, GuidedBackprop)]

    def step(i):
        x, target = torch.randn(2, 6, requires_grad=True), i % 3
        return [method.attribute(x, target=target) for method in methods]

    return step, lambda: weights(model)


@program()
def coupling_flow(seed, compile):
    """A normalizing flow with layers that are inverted for samples, and torch.distributions."""
    from torch.distributions import Independent, Normal

    class Coupling(nn.Module):
        def __init__(self, flip):
            super().__init__()
            self.flip, self.net = flip, nn.Sequential(nn.Linear(1, 16), nn.ReLU(), nn.Linear(16, 2))

        def forward(self, x, inverse=False):
            a, b = x.chunk(2, 1) if not self.flip else x.chunk(2, 1)[::-1]
            scale, shift = self.net(a).chunk(2, 1)
            scale = scale.tanh()
            b = (b - shift) * (-scale).exp() if inverse else b * scale.exp() + shift
            return torch.cat([b, a] if self.flip else [a, b], 1), scale.sum(1)

    layers = nn.ModuleList(Coupling(at % 2 == 1) for at in range(4))
    base = Independent(Normal(torch.zeros(2), torch.ones(2)), 1)
    optimizer = torch.optim.Adam(layers.parameters(), 5e-3)

    def step(i):
        z, total = torch.randn(32, 2) * torch.tensor([1.0, 0.2]) + 0.5, 0.0
        for layer in layers:
            z, change = layer(z)
            total = total + change
        loss = -(base.log_prob(z) + total).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            drawn = base.sample((4,))
            for layer in reversed(layers):
                drawn, _ = layer(drawn, inverse=True)
        return loss.item(), drawn

    return step, lambda: weights(layers, optimizer)


@program()
def factorization(seed, compile):
    """Recommendations: sparse gradients of embeddings, bags of items, negative samples, and a ranking of all."""
    people, things, bags = (
        nn.Embedding(20, 8, sparse=True),
        nn.Embedding(30, 8, sparse=True),
        nn.EmbeddingBag(30, 8, mode="mean", sparse=True),
    )
    parts = nn.ModuleList([people, things, bags])
    optimizer = torch.optim.SparseAdam(list(parts.parameters()), 1e-2)

    def step(i):
        who, liked, other = torch.randint(20, (16,)), torch.randint(30, (16,)), torch.randint(30, (16,))
        history, starts = torch.randint(30, (48,)), torch.arange(0, 48, 3)
        taste = people(who) + bags(history, starts)
        better, worse = (taste * things(liked)).sum(1), (taste * things(other)).sum(1)
        loss = -F.logsigmoid(better - worse).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            best = (people.weight @ things.weight.T).topk(3).indices
        return loss.item(), (better > worse).float().mean().item(), best

    return step, lambda: weights(parts)


@program()
def langevin_chain(seed, compile):
    """A chain of samples with a step that shrinks, accepted or not by a number drawn in Python's way."""
    model = nn.Sequential(nn.Linear(2, 12), nn.SiLU(), nn.Linear(12, 1))
    now = {"x": torch.zeros(2), "accepted": 0}

    def energy(x):
        return model(x).sum() + 0.5 * x.square().sum()

    def step(i):
        size = 0.3 / (1 + 0.1 * i)
        for _ in range(4):
            x = now["x"].detach().requires_grad_(True)
            before = energy(x)
            (slope,) = torch.autograd.grad(before, x)
            other = x.detach() - 0.5 * size**2 * slope + size * torch.randn(2)
            with torch.no_grad():
                odds = math.exp(min(0.0, (before - energy(other)).item()))
            if torch.rand(()).item() < odds:
                now["x"] = other
                now["accepted"] += 1
        return now["x"].clone(), now["accepted"], size

    return step, lambda: weights(model)
