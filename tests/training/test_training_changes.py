"""What changes between the steps of a training, and loops of other shapes: the same, in the end nothing compiles."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from pictures import assert_alike
from torch.nn.utils import parametrize
from training import Feature, Net, as_it_is, batches, compiled, loop, named, sgd, state, stepping

import torchdynamo
from torchdynamo.report.explain import collecting

F = torch.nn.functional
PROGRAMS: dict[str, Feature] = {}
program = named(PROGRAMS)


def changing(change: Callable[[int, Any, Any], None]) -> Feature:
    """Twenty steps, and what is done before each."""

    def run(compile: Any) -> Any:
        model = Net()
        optimizer = sgd(model)
        step, found = compile(stepping(optimizer, lambda x: model(x).pow(2).mean())), []
        for at, x in enumerate(batches()):
            change(at, model, optimizer)
            found.append(step(x))
        return found, state(model, optimizer)

    return run


def replaced(at: int, model: Any, optimizer: Any) -> None:
    if at in (5, 9):
        model.second.weight = torch.nn.Parameter(torch.randn(1, 4))
        optimizer.param_groups[0]["params"] = list(model.parameters())
        optimizer.state.clear()


def assigned(at: int, model: Any, optimizer: Any) -> None:
    if at == 7:
        model.load_state_dict({name: value * 0.5 for name, value in model.state_dict().items()}, assign=True)
        optimizer.param_groups[0]["params"] = list(model.parameters())
        optimizer.state.clear()


def written(at: int, model: Any, optimizer: Any) -> None:
    if at % 4 == 3:
        model.first.weight.data = model.first.weight.data * 0.5
        model.second.weight.data.zero_().add_(1)


def hooked(at: int, model: Any, optimizer: Any) -> None:
    """Hooks come and go."""
    if at == 4:
        model.handles = [model.first.register_forward_hook(lambda module, args, out: out * 2)]
    if at == 6:
        model.handles.append(model.second.weight.register_hook(lambda grad: grad * 0.5))
    if at == 10:
        for handle in model.handles:
            handle.remove()


def by_hand(at: int, model: Any, optimizer: Any) -> None:
    """A schedule of rate and momentum that nobody has announced."""
    for group in optimizer.param_groups:
        group["lr"], group["momentum"] = 0.02 * (1 + at % 5), 0.9 - 0.01 * at


for _change in (replaced, assigned, written, hooked, by_hand):
    PROGRAMS[_change.__name__] = changing(_change)


@program
def written_inside(compile: Any) -> Any:
    model = Net()
    optimizer = sgd(model)
    update = stepping(optimizer, lambda x: model(x).pow(2).mean())

    def step(x: torch.Tensor) -> Any:
        loss = update(x)
        model.first.weight.data.clamp_(-0.1, 0.1)
        model.second.weight.data = model.second.weight.data / model.second.weight.data.norm()
        return loss

    return loop(compile(step), model, optimizer)


@program
def turned_on_and_off(compile: Any) -> Any:
    model, calls = Net(), 0
    optimizer = sgd(model)
    update = stepping(optimizer, lambda x: model(x).pow(2).mean())

    def step(x: torch.Tensor) -> Any:
        nonlocal calls
        calls += 1
        for p in model.first.parameters():
            p.requires_grad_(calls % 2 == 0)
        return update(x)

    return loop(compile(step), model, optimizer)


class Symmetric(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.triu() + x.triu(1).transpose(-1, -2)


@program
def parametrized(compile: Any) -> Any:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
    parametrize.register_parametrization(model[0], "weight", Symmetric())
    torch.nn.utils.parametrizations.orthogonal(model[2])
    optimizer = sgd(model)
    return loop(compile(stepping(optimizer, lambda x: model(x).pow(2).mean())), model, optimizer)


@program
def several_losses(compile: Any) -> Any:
    model, head = Net(), torch.nn.Linear(4, 1)
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()])

    def step(x: torch.Tensor) -> Any:
        optimizer.zero_grad()
        hidden = torch.tanh(model.first(x))
        one, two = model.second(hidden).pow(2).mean(), head(hidden).abs().mean()
        one.backward(retain_graph=True)
        first = model.first.weight.grad.clone()
        two.backward()
        optimizer.step()
        return one.detach(), two.detach(), first

    return loop(compile(step), model, optimizer)


@program
def sharpness_aware(compile: Any) -> Any:
    """Two ways forward and back, the second from elsewhere."""
    model = Net()
    optimizer = sgd(model)

    def step(x: torch.Tensor) -> Any:
        loss = model(x).pow(2).mean()
        loss.backward()
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
            moves = [p.grad * 0.05 / (norm + 1e-12) for p in model.parameters()]
            torch._foreach_add_(list(model.parameters()), moves)
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        with torch.no_grad():
            torch._foreach_sub_(list(model.parameters()), moves)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return loop(compile(step), model, optimizer)


class Wrapped(torch.nn.Module):
    """What wrappers for several machines look like."""

    def __init__(self) -> None:
        super().__init__()
        self.module, self.sync = Net(), True

    def forward(self, x: torch.Tensor) -> Any:
        return self.module(x)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        before, self.sync = self.sync, False
        try:
            yield
        finally:
            self.sync = before


@program
def accumulated_without_sync(compile: Any) -> Any:
    model = Wrapped()
    optimizer = sgd(model)

    def step(x: torch.Tensor) -> Any:
        optimizer.zero_grad()
        with model.no_sync():
            (model(x[:2]).pow(2).mean() / 2).backward()
        (model(x[2:]).pow(2).mean() / 2).backward()
        optimizer.step()
        return model.sync

    return loop(compile(step), model, optimizer)


@program
def epochs_of_a_loader(compile: Any) -> Any:
    model = Net()
    optimizer = sgd(model)
    x = torch.cat(list(batches(8)))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x[:, :1] / 40), batch_size=10)

    def epoch() -> float:
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        return total

    epoch = compile(epoch)
    return [epoch() for _ in range(6)], state(model, optimizer)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_and_settled(name: str, backend: str) -> None:
    found = []
    calls: list[int] = []
    with collecting() as events:

        def watched(fn: Callable[..., Any]) -> Callable[..., Any]:
            fast = compiled(backend)(fn)

            def call(*args: Any) -> Any:
                before = len(events)
                result = fast(*args)
                calls.append(len(events) - before)
                return result

            return call

        for compile in (as_it_is, watched):
            torchdynamo.reset()
            torch.manual_seed(5)
            found.append(PROGRAMS[name](compile))
    assert_alike(*found)
    assert sum(calls) and not sum(calls[len(calls) * 3 // 5 :])
