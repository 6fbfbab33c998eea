"""Every optimizer of torch.optim, with a schedule for its learning rate: the same to the bit, in at most two graphs."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
from pictures import assert_alike
from training import Net, as_it_is, batches, compiled, state

import torchdynamo
from torchdynamo.errors import FallbackWarning
from torchdynamo.report.explain import CompileEvent, collecting

OPTIONS: dict[str, list[dict[str, Any]]] = {
    "SGD": [{}, {"momentum": 0.9, "nesterov": True}, {"momentum": 0.5, "weight_decay": 0.1, "maximize": True}],
    "Adam": [{}, {"amsgrad": True, "weight_decay": 0.1}, {"maximize": True, "betas": (0.5, 0.7)}],
    "AdamW": [{}, {"amsgrad": True}, {"maximize": True}],
    "RMSprop": [{}, {"momentum": 0.9, "centered": True}, {"maximize": True, "weight_decay": 0.1}],
    "Adagrad": [{}, {"lr_decay": 0.1, "weight_decay": 0.1}, {"maximize": True, "initial_accumulator_value": 0.1}],
    "Adadelta": [{}, {"weight_decay": 0.1}, {"maximize": True}],
    "NAdam": [{}, {"decoupled_weight_decay": True, "weight_decay": 0.1}, {"maximize": True}],
    "RAdam": [{}, {"decoupled_weight_decay": True, "weight_decay": 0.1}, {"maximize": True, "betas": (0.8, 0.99)}],
    "Adamax": [{}, {"maximize": True}, {"weight_decay": 0.1}],
    "Rprop": [{}, {"maximize": True}],
    "ASGD": [{}, {"weight_decay": 0.1}, {"maximize": True, "t0": 5.0}],
}
FUSED = [("SGD", {"momentum": 0.9}), ("Adam", {"amsgrad": True}), ("AdamW", {"maximize": True}), ("Adagrad", {})]
GRAPHS = {"RAdam": 3}  # its first five steps update in another way
ROWS = [
    *((name, {"foreach": way, **kwargs}) for name, rows in OPTIONS.items() for way in (False, True) for kwargs in rows),
    *((name, {"fused": True, **kwargs}) for name, kwargs in FUSED),
]
# Maximizing is a sign of gradients: each run of the tests shows it where an optimizer takes all tensors together.
SAME = [
    pytest.param(*row, marks=pytest.mark.long) if row[1].get("maximize") and row[1].get("foreach") is False else row
    for row in ROWS
]


def backend_of(kwargs: dict[str, Any]) -> str:
    """By AOTAutograd with each optimizer's own settings, and fused; other settings change what is captured."""
    return "aot_eager" if kwargs.keys() <= {"foreach"} or "fused" in kwargs else "eager"


def train(name: str, compile: Any, **kwargs: Any) -> Any:
    torch.manual_seed(3)
    model = Net()
    optimizer = getattr(torch.optim, name)(model.parameters(), **kwargs)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    loss_of = compile(lambda x: model(x).pow(2).mean())
    update = compile(stepping(optimizer))
    losses = []
    for x in batches():
        optimizer.zero_grad()
        loss = loss_of(x)
        loss.backward()
        update()
        schedule.step()
        losses.append(loss.detach())
    return losses, state(model, optimizer)


def stepping(optimizer: torch.optim.Optimizer) -> Any:
    def update() -> None:
        optimizer.step()

    return update


def updates(events: list[CompileEvent]) -> list[CompileEvent]:
    return [event for event in events if event.function in ("step", "update") and event.ops]


@pytest.mark.parametrize(("name", "kwargs"), SAME, ids=lambda row: str(row).replace(" ", ""))
def test_same_to_the_bit(name: str, kwargs: dict[str, Any]) -> None:
    expected = train(name, as_it_is, **kwargs)
    with collecting() as events, warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        assert_alike(expected, train(name, compiled(backend_of(kwargs)), **kwargs))
    assert 1 <= len(updates(events)) <= GRAPHS.get(name, 2)


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", OPTIONS)
def test_steps_and_learning_rates_do_not_recompile(name: str, foreach: bool) -> None:
    """A hundred steps of a schedule: a graph for what comes first, and one that goes on."""
    model = Net()
    optimizer = getattr(torch.optim, name)(model.parameters(), foreach=foreach)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=101, cycle_momentum=False)
    update = torchdynamo.optimize("eager")(stepping(optimizer))
    with collecting() as events:
        for x in batches(100):
            model(x).pow(2).mean().backward()
            update()
            schedule.step()
    assert 1 <= len(updates(events)) <= GRAPHS.get(name, 2)


def test_an_update_with_a_closure() -> None:
    def run(compile: Any) -> Any:
        torch.manual_seed(3)
        model = Net()
        optimizer = torch.optim.Adam(model.parameters())

        def update(x: torch.Tensor) -> Any:
            def closure() -> torch.Tensor:
                optimizer.zero_grad()
                loss = model(x).pow(2).mean()
                loss.backward()
                return loss

            return optimizer.step(closure).detach()

        update = compile(update)
        return [update(x) for x in batches()], state(model, optimizer)

    assert_alike(run(as_it_is), run(compiled()))


def test_two_models_share_what_was_compiled() -> None:
    """State is found by where parameters are, not by which they are."""
    with collecting() as events:
        for _ in range(3):
            train("Adam", compiled("eager"))
    assert len(updates(events)) == 1


def test_groups_with_settings_of_their_own() -> None:
    def run(compile: Any) -> Any:
        torch.manual_seed(3)
        model = Net()
        groups: list[Any] = [
            {"params": model.first.parameters(), "lr": 0.1},
            {"params": model.second.parameters(), "weight_decay": 0.5},
        ]
        optimizer = torch.optim.AdamW(groups, lr=0.01)
        update = compile(stepping(optimizer))
        for x in batches():
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            update()
            optimizer.param_groups[0]["lr"] *= 0.9
        return state(model, optimizer)

    assert_alike(run(as_it_is), run(compiled()))


def test_a_learning_rate_that_is_a_tensor() -> None:
    expected = train("Adam", as_it_is, lr=torch.tensor(0.01))
    assert_alike(expected, train("Adam", compiled(), lr=torch.tensor(0.01)))


class OwnAdam(torch.optim.Optimizer):
    """As many are written: steps are counted in Python, for each parameter."""

    def __init__(self, params: Any, lr: float = 0.01) -> None:
        super().__init__(params, {"lr": lr, "betas": (0.9, 0.99)})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                state, (beta1, beta2) = self.state[p], group["betas"]
                if not state:
                    state.update(step=0, mean=torch.zeros_like(p), square=torch.zeros_like(p))
                state["step"] += 1
                state["mean"].lerp_(p.grad, 1 - beta1)
                state["square"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                first, second = 1 - beta1 ** state["step"], math.sqrt(1 - beta2 ** state["step"])
                p.addcdiv_(state["mean"], (state["square"].sqrt() / second).add_(1e-8), value=-group["lr"] / first)


@pytest.mark.parametrize("make", [OwnAdam, torch.optim.Adam, torch.optim.RMSprop], ids=lambda cls: str(cls.__name__))
def test_a_whole_step_of_what_it_is_given(make: Any) -> None:
    """Model and optimizer are arguments. The first update sets state up, and is no graph of the program."""

    def run(compile: Any) -> Any:
        torch.manual_seed(3)
        model = Net()
        optimizer = make(model.parameters())

        def train_step(model: Any, optimizer: Any, x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = model(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        train_step = compile(train_step)
        return [train_step(model, optimizer, x) for x in batches()], state(model, optimizer)

    torchdynamo.reset()
    expected = run(as_it_is)
    with collecting() as events:
        assert_alike(expected, run(compiled()))
    assert sum(event.ops > 0 for event in events) == 2


def test_parameters_that_join_end_no_graph() -> None:
    """Their state is put beside that of the others."""
    model = Net()
    model.first.requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters())
    update = torchdynamo.optimize("eager")(stepping(optimizer))
    with collecting() as events:
        for step, x in enumerate(batches(6)):
            model.first.requires_grad_(step > 2)
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            update()
    assert not [event.reason for event in events if event.reason]
    assert len(optimizer.state) == 3


def test_lbfgs_with_a_closure() -> None:
    def run(compile: Any) -> Any:
        torch.manual_seed(3)
        model = Net()
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4, history_size=3)
        for x in batches(5):

            def closure(x: torch.Tensor = x) -> torch.Tensor:
                optimizer.zero_grad()
                loss = model(x).pow(2).mean()
                loss.backward()
                return loss

            compile(lambda closure=closure: optimizer.step(closure))()
        return state(model), optimizer.state_dict()["state"]

    assert_alike(run(as_it_is), run(compiled()))


def test_hooks_of_optimizers_run() -> None:
    model, seen = Net(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(lambda *args: seen.append("before"))
    optimizer.register_step_post_hook(lambda *args: seen.append("after"))
    update = torchdynamo.optimize("eager")(stepping(optimizer))
    for x in batches(2):
        model(x).sum().backward()
        update()
    assert seen == ["before", "after"] * 2


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_inductor_is_close(name: str) -> None:
    kwargs = {"foreach": False, "lr": 0.01}
    losses, after = train(name, as_it_is, **kwargs)
    theirs, ours = train(name, compiled("inductor"), **kwargs)
    torch.testing.assert_close(theirs, losses)
    torch.testing.assert_close(ours[:3], after[:3])


def test_a_schedule_is_known_from_the_start() -> None:
    """The second learning rate needs no second graph."""

    def update() -> None:  # of this test alone: its first call sets the state up, and is no graph of the program
        optimizer.step()

    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    fast = torchdynamo.optimize("eager")(update)
    with collecting() as events:
        for x in batches(10):
            model(x).sum().backward()
            fast()
            schedule.step()
    assert len(updates(events)) == 1
