"""Learning rates that are tensors, and averages that count in one: no graph ends, nothing is compiled for each."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pictures import assert_alike
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn, get_swa_multi_avg_fn
from training import Net, as_it_is, batches, compiled, state

from torchdynamo.report.explain import CompileEvent, collecting

RATES: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"momentum": 0.9, "weight_decay": 0.1}),
    ("Adam", {}),
    ("AdamW", {"amsgrad": True}),
    ("RMSprop", {"momentum": 0.9}),
    ("Adagrad", {}),
    ("Adadelta", {}),
    ("Adamax", {}),
    ("NAdam", {}),
]
AVERAGES: dict[str, dict[str, Any]] = {
    "mean": {},
    "lists of means": {"multi_avg_fn": get_swa_multi_avg_fn()},
    "exponential": {"avg_fn": get_ema_avg_fn(0.9)},
    "lists, exponential": {"multi_avg_fn": get_ema_multi_avg_fn(0.9)},
    "of buffers": {"avg_fn": get_ema_avg_fn(0.9), "use_buffers": True},
}


def rated(name: str, kwargs: dict[str, Any], compile: Any) -> Any:
    torch.manual_seed(3)
    model = Net()
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=torch.tensor(0.05), foreach=False, **kwargs)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    update = compile(lambda: optimizer.step())
    for x in batches():
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        update()
        schedule.step()
    return state(model, optimizer), optimizer.param_groups[0]["lr"]


def averaged(kwargs: dict[str, Any], compile: Any) -> Any:
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    average, seen = AveragedModel(model, **kwargs), []
    update = compile(lambda: average.update_parameters(model))
    for step, x in enumerate(batches(12)):
        model(x)
        with torch.no_grad():
            for p in model.parameters():
                p.add_(x.mean())
        if step == 8:
            average.n_averaged.zero_()  # begins anew
        update()
        seen.append([value.clone() for value in average.state_dict().values()])
    return seen


def assert_whole(events: list[CompileEvent]) -> None:
    assert not [event.reason for event in events if event.reason]
    assert 1 <= sum(event.ops > 0 for event in events) <= 2


@pytest.mark.parametrize(("name", "kwargs"), RATES, ids=lambda row: row if isinstance(row, str) else "")
def test_rates_in_tensors(name: str, kwargs: dict[str, Any]) -> None:
    expected = rated(name, kwargs, as_it_is)
    with collecting() as events:
        assert_alike(expected, rated(name, kwargs, compiled()))
    assert_whole(events)


@pytest.mark.parametrize("kind", AVERAGES)
def test_averages_of_models(kind: str) -> None:
    expected = averaged(AVERAGES[kind], as_it_is)
    with collecting() as events:
        assert_alike(expected, averaged(AVERAGES[kind], compiled()))
    assert_whole(events)
