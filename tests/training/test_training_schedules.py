"""Every scheduler of torch.optim: the update is as eager's, and is compiled twice at most."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pictures import assert_alike
from torch.optim import lr_scheduler
from torch.optim.swa_utils import SWALR
from training import BACKENDS, Net, as_it_is, assert_feature, batches, compiled, loop, state

import torchdynamo
from torchdynamo.report.explain import collecting

SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 3, 0.5),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 5, 9], 0.3),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.95**epoch),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda epoch: 0.95),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, 0.5, 4),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, 0.1, total_iters=8),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 50, 2.0),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 5, 2),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, 4),  # and momentum, or beta
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, 101),  # the same
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1, total_iters=3), lr_scheduler.ExponentialLR(o, 0.9)], [4]
    ),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o, 0.1, 2), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1, threshold=0.5),
    "SWALR": lambda o: SWALR(o, 0.01, anneal_epochs=7),
}
OPTIMIZERS = {
    "SGD": {"momentum": 0.9},
    "SGD, foreach": {"momentum": 0.9, "nesterov": True, "foreach": True},
    "AdamW": {"weight_decay": 0.1},
}


def train(schedule: str, optimizer_row: str, compile: Any, count: int = 20) -> Any:
    torch.manual_seed(3)
    model = Net()
    cls = getattr(torch.optim, optimizer_row.partition(",")[0])
    optimizer = cls(model.parameters(), lr=0.05, **OPTIMIZERS[optimizer_row])
    scheduler = SCHEDULES[schedule](optimizer)
    given = (lambda loss: (loss.item(),)) if schedule == "ReduceLROnPlateau" else lambda loss: ()
    update, losses = compile(lambda: optimizer.step()), []
    for x in batches(count):
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        update()
        scheduler.step(*given(loss))
        losses.append(loss.detach())
    return losses, state(model, optimizer), [group["lr"] for group in optimizer.param_groups]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_same_as_eager(schedule: str, optimizer: str) -> None:
    expected = train(schedule, optimizer, as_it_is)
    with collecting() as events:
        assert_alike(expected, train(schedule, optimizer, compiled("eager")))
    assert 1 <= sum(event.ops > 0 for event in events) <= 2


@pytest.mark.parametrize("schedule", ["OneCycleLR", "ReduceLROnPlateau"])
def test_a_hundred_steps(schedule: str) -> None:
    """Of what changes more than the rate, and of what has not marked the rate as its own."""
    with collecting() as events:
        train(schedule, "SGD", compiled("aot_eager"), 100)
    assert 1 <= sum(event.ops > 0 for event in events) <= 2


def test_momentum_that_comes_and_goes() -> None:
    """Whether there is one is another update."""

    def run(compile: Any) -> Any:
        torch.manual_seed(3)
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        update = compile(lambda: optimizer.step())
        for step, x in enumerate(batches(12)):
            optimizer.param_groups[0]["momentum"] = max(0.0, 0.6 - 0.2 * (step % 6))
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            update()
        return state(model, optimizer)

    torchdynamo.reset()
    assert_alike(run(as_it_is), run(compiled("eager")))


def schedules_inside(compile: Any) -> Any:
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    schedule = lr_scheduler.CosineAnnealingLR(optimizer, 30)

    def train_step(x: torch.Tensor) -> Any:
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.detach()

    return loop(compile(train_step), model, optimizer, count=40), schedule.state_dict()


@pytest.mark.parametrize("backend", BACKENDS)
def test_same_as_eager_with_the_scheduler_inside(backend: str) -> None:
    """It runs as it is: what it computes with is another number in each call. Three graphs, one between each two of
    backward, scheduler and the end.
    """
    with collecting() as events:
        assert_feature(schedules_inside, backend)
    assert sum(event.ops > 0 for event in events) == 3
    assert "learning-rate schedule" in {event.reason for event in events}
