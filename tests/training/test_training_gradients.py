"""`.grad` as a frame writes it: kept beside the graph, so that letting go of gradients costs no graph."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from training import BACKENDS, Net, assert_feature, batches, compiled, loop

from torchdynamo.report.explain import collecting

Step = Callable[[torch.Tensor], Any]
Program = Callable[[torch.nn.Module, torch.optim.Optimizer], Step]


def around_a_step(forget: Callable[[Any, Any], Any], *, after: bool = False) -> Program:
    """A whole step, gradients let go of at its start or its end."""

    def program(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Step:
        def train_step(x: torch.Tensor) -> Any:
            if not after:
                forget(model, optimizer)
            loss = model(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            if after:
                forget(model, optimizer)
            return loss.detach(), [p.grad for p in model.parameters()]

        return train_step

    return program


def written(write: Callable[[torch.nn.Module, torch.Tensor], Any]) -> Program:
    """What a step of a model writes and reads, with gradients of a whole backward there."""

    def program(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Step:
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        return lambda x: write(model, x)

    return program


def by_hand(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for p in model.parameters():
        p.grad = None


def deleted(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for p in model.parameters():
        del p.grad


def if_there(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for p in model.parameters():
        if p.grad is not None:
            p.grad.detach_()
            p.grad.zero_()


def made(model: Any, x: torch.Tensor) -> Any:
    """Written, read, written to, and read once more."""
    for p in model.parameters():
        p.grad = torch.full_like(p, 2.0) * x.sum()
    first = model.first.weight.grad
    first.mul_(3)
    model.first.bias.grad = None
    return model.first.weight.grad is first, model.first.bias.grad, first.sum()


def swapped(model: Any, x: torch.Tensor) -> Any:
    a, b = model.first.weight, torch.zeros_like(model.first.weight)
    b.grad, a.grad = a.grad, torch.ones_like(a)
    setattr(model.second.weight, "grad", None)  # noqa: B010
    return b, b.grad, model.second.weight.grad is None


def scaled(model: Any, x: torch.Tensor) -> Any:
    """The old gradients are wanted when the new ones are there."""
    norm = sum(p.grad.pow(2).sum() for p in model.parameters())
    kept = [p.grad for p in model.parameters()]
    for p in model.parameters():
        p.grad = p.grad / norm + x.mean()
    return norm, kept


def let_go(model: Any, x: torch.Tensor) -> Any:
    """What is None afterwards is added up before."""
    norm = sum(p.grad.pow(2).sum() for p in model.parameters())
    for p in model.parameters():
        p.grad = None
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    model.first.weight.grad = None
    result = norm, model.first.weight.grad is None
    model.first.weight.grad = torch.ones_like(model.first.weight) * norm
    return result


def on_results(model: Any, x: torch.Tensor) -> Any:
    """Of a tensor without gradients, and of one that is no leaf."""
    plain, hidden = x.clone(), model.first(x)
    plain.grad, hidden.grad = x * 2, x.new_ones(5, 4)
    return plain, plain.grad, hidden.detach()


# Of three graphs, one is for a step that finds no gradients.
STEPS: dict[str, tuple[Program, int]] = {
    "optimizer": (around_a_step(lambda model, optimizer: optimizer.zero_grad()), 2),
    "model": (around_a_step(lambda model, optimizer: model.zero_grad()), 2),
    "by hand": (around_a_step(by_hand), 2),
    "deleted": (around_a_step(deleted), 2),
    "at the end": (around_a_step(lambda model, optimizer: optimizer.zero_grad(), after=True), 2),
    "zeros": (around_a_step(lambda model, optimizer: optimizer.zero_grad(set_to_none=False)), 3),
    "zeros of a model": (around_a_step(lambda model, optimizer: model.zero_grad(False)), 3),
    "if there": (around_a_step(if_there), 3),
    **{fn.__name__: (written(fn), 1) for fn in (made, swapped, scaled, let_go, on_results)},
}


def run(program: Program, compile: Any, optimizer: str, **kwargs: Any) -> Any:
    model = Net()
    update = getattr(torch.optim, optimizer)(model.parameters(), **kwargs)
    return loop(compile(program(model, update)), model, update, count=5)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", STEPS)
def test_same_as_eager(name: str, backend: str) -> None:
    """In as few graphs as there are: before the backward, and after it."""
    program, graphs = STEPS[name]
    with collecting() as events:
        assert_feature(lambda compile: run(program, compile, "Adam", lr=0.1), backend)
    assert sum(event.ops > 0 for event in events) == graphs
    assert {event.reason_text for event in events if event.reason and "backward" not in event.reason_text} == set()


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("set_to_none", [False, True])
def test_several_tensors_at_once(set_to_none: bool, foreach: bool) -> None:
    program = around_a_step(lambda model, optimizer: optimizer.zero_grad(set_to_none))
    assert_feature(lambda compile: run(program, compile, "SGD", lr=0.1, momentum=0.9, foreach=foreach), "aot_eager")


def test_memory_is_free_while_the_graph_runs() -> None:
    """As in eager: what is let go of before the forward is not there during it."""
    model = Net()
    alive: list[bool] = []

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            alive.append(old() is not None)
            return gm.forward(*args)

        return run

    def forward(x: torch.Tensor) -> Any:
        model.zero_grad()
        return model(x)

    fast = compiled(backend)(forward)
    for x in batches(3):
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        old = weakref.ref(model.first.weight.grad)
        fast(x)
    assert alive == [False] * 3


def test_what_may_begin_again_keeps_its_gradients() -> None:
    """A check that fails runs the frame once more, from its start, with the gradients it began with."""
    p = torch.nn.Parameter(torch.ones(3))

    def step(x: torch.Tensor) -> Any:
        norm = p.grad.sum() if p.grad is not None else None
        p.grad = None
        if (x < 0).any():
            raise ValueError(norm)
        return x * p

    fast = compiled()(step)
    for x in (torch.ones(3), -torch.ones(3)):
        p.grad = torch.full((3,), 5.0)
        if x[0] > 0:
            fast(x)
        else:
            with pytest.raises(ValueError, match="15"):
                fast(x)
        assert p.grad is None


@pytest.mark.parametrize(
    "wrong",
    [lambda p: torch.ones(4), lambda p: p.detach().double(), lambda p: 3, lambda p: p, lambda p: p.detach().to("meta")],
    ids=["size", "dtype", "number", "itself", "device"],
)
def test_what_torch_does_not_take(wrong: Callable[[Any], Any]) -> None:
    p = torch.nn.Parameter(torch.ones(3))

    def step(x: torch.Tensor) -> Any:
        try:
            p.grad = wrong(p)
        except (RuntimeError, TypeError) as error:
            return x + 1, str(error)
        return x

    x = torch.ones(2)
    assert compiled("eager")(step)(x)[1] == step(x)[1]
    assert p.grad is None


def test_a_dtype_of_gradients() -> None:
    """Which may be another than the tensor's; whose it is, is asked again."""

    def step(x: torch.Tensor, p: torch.Tensor) -> Any:
        p.grad = x.double()
        return x + 1

    fast, x = compiled("eager")(step), torch.ones(3)
    for wanted in (torch.float64, None):
        p = torch.nn.Parameter(torch.ones(3))
        p.grad_dtype = wanted
        fast(x, p)
        assert p.grad is not None and p.grad.dtype == torch.float64
    with pytest.raises(RuntimeError, match="grad_dtype|dtype"):
        fast(x, torch.nn.Parameter(torch.ones(3)))
