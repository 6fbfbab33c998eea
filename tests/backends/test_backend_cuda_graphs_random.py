"""Random programs round a few functions, run with recordings and without: all values that they hold are the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from fake_cuda_graphs import FakeDevice

from torchdynamo.backends.cuda_graphs.lanes import Lanes
from torchdynamo.backends.cuda_graphs.limits import Ledger
from torchdynamo.backends.cuda_graphs.recording import Plan
from torchdynamo.backends.cuda_graphs.runner import Runner

Function = Callable[..., Sequence[Any]]
CPU = torch.device("cpu")
MOST_VALUES = 6


class Compiled:
    """A function as a compiled graph of inference: recorded, or run each time."""

    def __init__(self, function: Function, written: Sequence[int] = (), device: FakeDevice | None = None) -> None:
        def run(inputs: list[Any]) -> Sequence[Any]:
            given = tuple(inputs)
            inputs.clear()
            return function(*given)

        self.run: Callable[[list[Any]], Sequence[Any]] = run
        if device is not None:
            plan = Plan(run, "inference", device, CPU, 2, frozenset({1}), frozenset(written))
            self.run = Runner(plan, Lanes(device, Ledger()))

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        with torch.no_grad():
            return self.run([*inputs])


def shared(x: torch.Tensor, w: torch.Tensor) -> Sequence[Any]:
    y = x * w + 1
    return y, y[..., :1]


def separate(x: torch.Tensor, w: torch.Tensor) -> Sequence[Any]:
    return (x + w).tanh(), (x - w).exp().clamp(max=9)


def passed_on(x: torch.Tensor, w: torch.Tensor) -> Sequence[Any]:
    return x, x.flatten()[1:]


def written(x: torch.Tensor, w: torch.Tensor) -> Sequence[Any]:
    x.mul_(0.5)
    w.add_(0.01)
    return x.sum().reshape(1), w + x


def drawn(x: torch.Tensor, w: torch.Tensor) -> Sequence[Any]:
    y = x + torch.rand_like(x)
    return y, y


FUNCTIONS: list[tuple[Function, Sequence[int]]] = [
    (shared, ()),
    (separate, ()),
    (passed_on, ()),
    (written, (0, 1)),
    (drawn, ()),
]


class Trained:
    """A function with a gradient: forward and backward are compiled graphs that share lanes."""

    def __init__(self, device: FakeDevice | None) -> None:
        def forward(inputs: list[Any]) -> Sequence[Any]:
            x, w = inputs
            inputs.clear()
            y = (x * w).tanh()
            return y, x * 1, y * 1

        def backward(inputs: list[Any]) -> Sequence[Any]:
            x, y, w, grad = inputs
            inputs.clear()
            inner = grad * (1 - y * y)
            del y
            return inner * w, (inner * x).sum(0)

        forwards: Any = forward
        backwards: Any = backward
        if device is not None:
            lanes = Lanes(device, Ledger())
            forwards = Runner(Plan(forward, "forward", device, CPU, 1, frozenset({1}), frozenset()), lanes)
            backwards = Runner(Plan(backward, "backward", device, CPU, 2, frozenset({0, 1, 2}), frozenset()), lanes)

        class Function(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
                y, *saved = forwards([x, w])
                ctx.save_for_backward(*saved, w)
                return y  # type: ignore[no-any-return]

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                with torch.no_grad():
                    return tuple(backwards([*ctx.saved_tensors, *grads]))

        self.apply = Function.apply


def played(seed: int, device: FakeDevice | None) -> list[torch.Tensor]:
    """What a random program holds in the end."""
    choose = random.Random(seed)
    torch.manual_seed(seed)
    functions = [Compiled(function, written, device) for function, written in FUNCTIONS]
    trained = Trained(device)
    weight = torch.randn(3)
    parameter = torch.randn(3, requires_grad=True)
    values = [torch.randn(2, 3), torch.randn(4, 3)]
    losses: list[torch.Tensor] = []
    steady = choose.sample(functions, 2)
    for _ in range(choose.choice((12, 60))):
        step = choose.random()
        at = choose.randrange(len(values))
        fitting = [each for each in values if each.dim() == 2 and each.shape[1] == 3]
        if step < 0.5:
            function = choose.choice(steady if choose.random() < 0.8 else functions)
            results = [*function(choose.choice(fitting or [torch.randn(2, 3)]), weight)]
            values += choose.sample(results, choose.randrange(3))
        elif step < 0.62:
            losses.append(trained.apply(choose.choice(fitting or [torch.randn(2, 3)]).detach(), parameter))
            values += [losses[-1].detach()] if choose.random() < 0.3 else []
        elif step < 0.75 and losses:
            loss = losses.pop(choose.randrange(len(losses)))
            loss.square().sum().backward(retain_graph=choose.random() < 0.1)
            values += [parameter.grad] if parameter.grad is not None and choose.random() < 0.2 else []
            if choose.random() < 0.4:
                parameter.grad = None
        elif step < 0.82:
            values[at].mul_(1.1)
        elif step < 0.86:
            values.append(values[at][:1])
        elif step < 0.88:
            weight = torch.randn(3)
        elif step < 0.9 and losses:
            del losses[choose.randrange(len(losses))]
        else:
            values[at] = torch.randn(choose.choice((2, 4, 5)), 3)
        while len(values) > MOST_VALUES:
            del values[choose.randrange(len(values))]
    for loss in losses:
        loss.sum().backward()
    return [*values, weight, *([] if parameter.grad is None else [parameter.grad])]


def compare(seeds: range) -> int:
    """Play programs both ways; return the number of launches."""
    launches = 0
    for seed in seeds:
        device = FakeDevice()
        got, want = played(seed, device), played(seed, None)
        torch.testing.assert_close(got, want, msg=lambda text, seed=seed: f"{seed}: {text}")
        launches += device.launches
    return launches


def test_random_programs_hold_the_same_values() -> None:
    assert compare(range(100)) > 400


@pytest.mark.long
def test_many_random_programs_hold_the_same_values() -> None:
    assert compare(range(100, 1100)) > 4000
