"""Loops that keep numbers read from tensors: what has changed once varies, and nothing is compiled for it again."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from typing import Any

import pytest
import torch
from pictures import assert_alike
from training import Feature, Net, as_it_is, compiled, loop, named

import torchdynamo
from torchdynamo.errors import TorchDynamoWarning
from torchdynamo.report.explain import collecting

F = torch.nn.functional
FEATURES: dict[str, Feature] = {}
feature = named(FEATURES)


def training(model: torch.nn.Module, then: Any) -> Any:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: torch.Tensor) -> Any:
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach(), then(loss, model)

    return step


@feature
def the_best_is_kept(compile: Any) -> Any:
    """Compared with a float that the frame replaces by one it has read."""
    model, best = Net(), {"loss": float("inf"), "state": None}

    def keep(loss: torch.Tensor, model: torch.nn.Module) -> None:
        if loss.item() < best["loss"]:
            best["loss"] = loss.item()
            best["state"] = {name: value.clone() for name, value in model.state_dict().items()}

    return loop(compile(training(model, keep)), model), best


class Patience:
    def __init__(self) -> None:
        self.best: float | None = None
        self.bad = 0

    def __call__(self, value: float) -> bool:
        if self.best is None or value < self.best - 1e-3:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        return self.bad < 3


@feature
def no_patience(compile: Any) -> Any:
    model, patience = Net(), Patience()
    return loop(compile(training(model, lambda loss, model: patience(loss.item()))), model), vars(patience)


class Meter:
    """Begins with an integer, and goes on with floats."""

    def __init__(self) -> None:
        self.sum = self.count = self.mean = 0

    def update(self, value: Any, count: int) -> float:
        self.sum += value * count
        self.count += count
        self.mean = self.sum / self.count
        return self.mean


@feature
def meters(compile: Any) -> Any:
    model, losses, hits = Net(), Meter(), Meter()

    def update(loss: torch.Tensor, model: torch.nn.Module) -> Any:
        mean = losses.update(loss.item(), 5)
        return mean, hits.update((loss > 0.1).sum().item() / 5, 5)

    return loop(compile(training(model, update)), model), vars(losses), vars(hits)


@feature
def running_mean(compile: Any) -> Any:
    model, log = Net(), {"mean": None, "all": []}

    def update(loss: torch.Tensor, model: torch.nn.Module) -> None:
        value = loss.item()
        log["mean"] = value if log["mean"] is None else 0.9 * log["mean"] + 0.1 * value
        log["all"].append(log["mean"])

    return loop(compile(training(model, update)), model), log


@feature
def perplexity(compile: Any) -> Any:
    """Functions of numbers that tracers do not know."""
    model = Net()

    def told(loss: torch.Tensor, model: torch.nn.Module) -> Any:
        value = loss.item()
        scaled = loss.detach() * math.log1p(value)
        return math.exp(value), -10 * math.log10(value), math.isfinite(value), math.hypot(value, 1.0), scaled

    return loop(compile(training(model, told)), model)


@feature
def scaled_losses(compile: Any) -> Any:
    """The scaler keeps a state for each optimizer by its id, and takes it back at the end of each step."""
    model, scaler = Net(), torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return loop(compile(step), model, optimizer), scaler.state_dict()


@feature
def hooks_that_come_and_go(compile: Any) -> Any:
    """Each handle has a number of its own."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: torch.Tensor) -> torch.Tensor:
        hidden = model.first(x)
        handle = hidden.register_hook(lambda grad: grad * 0.5)
        loss = model.second(torch.tanh(hidden)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        handle.remove()
        optimizer.step()
        return loss.detach()

    return loop(compile(step), model, optimizer)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", FEATURES)
def test_settles(name: str, backend: str) -> None:
    program = FEATURES[name]
    torchdynamo.reset()
    torch.manual_seed(5)
    expected = program(as_it_is)
    torch.manual_seed(5)
    with collecting() as events, warnings.catch_warnings():
        warnings.simplefilter("error", TorchDynamoWarning)
        assert_alike(expected, program(compiled(backend)))
    again = Counter(tuple(event.again.split(": ")[:2]) for event in events if event.again)  # where, and what changed
    assert set(again.values()) <= {1}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_functions_of_numbers_that_raise(backend: str) -> None:
    fn = compiled(backend)(lambda x: (math.log(x.item()), math.exp(x.item())))
    assert fn(torch.tensor(0.5)) == (math.log(0.5), math.exp(0.5))
    for wrong, error in ((-1.0, ValueError), (1e5, OverflowError)):
        with pytest.raises(error):
            fn(torch.tensor(wrong))


def test_what_varies_is_told() -> None:
    best = {"loss": float("inf")}

    def keep(x: torch.Tensor) -> torch.Tensor:
        if x.sum().item() < best["loss"]:
            best["loss"] = x.sum().item()
        return x + 1

    fn = compiled("eager")(keep)
    with collecting() as events:
        for value in (3.0, 2.0, 1.0):
            fn(torch.tensor(value))
    told = [event.again for event in events if event.again]
    assert any("what varies from now on: best['loss'] (any float)" in text for text in told)
    assert not any("is static" in text for text in told)
