"""What training loops do, as whole steps that are compiled: losses, gradients, state and random numbers as eager's."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._inductor.config
import torch.utils.checkpoint
from training import BACKENDS, Feature, Net, assert_feature, batches, compiled, loop, low_precision, named, state

import torchdynamo
from torchdynamo.backends import aot_autograd

F = torch.nn.functional
FEATURES: dict[str, Feature] = {}
feature = named(FEATURES)


def training(model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None) -> Callable[..., Any]:
    """The step of most of these programs."""

    def train_step(x: torch.Tensor) -> torch.Tensor:
        if optimizer is not None:
            optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        if optimizer is not None:
            optimizer.step()
        return loss.detach()

    return train_step


@feature
def whole_step(compile: Any) -> Any:
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    def train_step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        return loss.detach()

    return loop(compile(train_step), model, optimizer)


@feature
def arguments_of_the_step(compile: Any) -> Any:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    @compile
    def train_step(model: Any, optimizer: Any, x: torch.Tensor) -> float:
        optimizer.zero_grad(set_to_none=False)
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        number: float = loss.item()
        return number

    return loop(lambda x: train_step(model, optimizer, x), model, optimizer)


@feature
def a_break_in_the_forward(compile: Any) -> Any:
    model, seen = Net(), []

    def train_step(x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(model.first(x))
        seen.append(hidden.sum().item() > 0)
        loss = model.second(hidden).pow(2).mean()
        loss.backward()
        return loss.detach()

    return loop(compile(train_step), model), seen


@feature
def hooks_on_tensors(compile: Any) -> Any:
    model, seen = Net(), []

    def train_step(x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(model.first(x))
        hidden.register_hook(lambda grad: (seen.append(("hidden", grad.clone())), grad * 2)[1])
        loss = model.second(hidden).pow(2).mean()
        loss.backward()
        return loss.detach()

    return loop(compile(train_step), model), seen


@feature
def hooks_on_results(compile: Any) -> Any:
    model, seen = Net(), []
    forward = compile(lambda x: torch.tanh(model.first(x)))

    def train_step(x: torch.Tensor) -> torch.Tensor:
        hidden = forward(x)
        hidden.register_hook(lambda grad: (seen.append(grad.clone()), grad * 2)[1])
        model.second(hidden).pow(2).mean().backward()
        return hidden.detach()

    return loop(train_step, model), seen


@feature
def hooks_on_parameters(compile: Any) -> Any:
    model, seen = Net(), []
    model.first.weight.register_hook(lambda grad: grad.clamp(-0.1, 0.1))
    for name, p in model.named_parameters():
        p.register_post_accumulate_grad_hook(lambda p, name=name: seen.append((name, p.grad.clone())))

    return loop(compile(training(model)), model), sorted(seen, key=lambda pair: pair[0])


@feature
def hooks_on_modules(compile: Any) -> Any:
    model, seen = Net(), []
    model.first.register_full_backward_hook(lambda m, gi, go: seen.append(("full", go[0].clone())))
    model.first.register_full_backward_pre_hook(lambda m, go: (go[0] * 2,))
    model.second.register_forward_hook(lambda m, args, out: out * 3)
    model.second.register_forward_pre_hook(lambda m, args: (args[0] + 1,))

    return loop(compile(training(model)), model), seen


@feature
def optimizer_in_the_backward(compile: Any) -> Any:
    model = Net()
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def update(p: torch.Tensor) -> None:
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(update)

    return loop(compile(training(model)), model)


@feature
def accumulation_and_clipping(compile: Any) -> Any:
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    calls = 0

    def train_step(x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        loss = model(x).pow(2).mean() / 2
        loss.backward()
        calls += 1
        if calls % 2 == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            torch.nn.utils.clip_grad_value_(model.parameters(), 0.01)
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    return loop(compile(train_step), model, optimizer), calls


@feature
def moving_average(compile: Any) -> Any:
    model = Net()
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_step(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for mean, p in zip(average.parameters(), model.parameters(), strict=True):
                mean.mul_(0.9).add_(p, alpha=0.1)
        return loss.detach()

    return loop(compile(train_step), model), state(average)


@feature
def averaged_model(compile: Any) -> Any:
    model = Net()
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_step(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update_parameters(model)
        return loss.detach()

    return loop(compile(train_step), model), state(average)


@feature
def batch_norm(compile: Any) -> Any:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU(), torch.nn.Linear(4, 1))

    def train_step(x: torch.Tensor) -> Any:
        model.train()
        loss = model(x).pow(2).mean()
        loss.backward()
        model.eval()
        with torch.no_grad():
            return loss.detach(), model(x)

    return loop(compile(train_step), model)


@feature
def dropout(compile: Any) -> Any:
    model = torch.nn.Sequential(torch.nn.Linear(3, 64), torch.nn.Dropout(0.3), torch.nn.Linear(64, 1))

    def train_step(x: torch.Tensor) -> torch.Tensor:
        loss = (model(x) + torch.rand(1)).pow(2).mean()
        loss.backward()
        return loss.detach()

    return loop(compile(train_step), model)


@feature
def freezing(compile: Any) -> Any:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    calls = 0

    fast = compile(training(model, optimizer))

    def step(x: torch.Tensor) -> Any:
        nonlocal calls
        calls += 1
        model.first.weight.requires_grad_(calls % 3 != 0)
        return fast(x)

    return loop(step, model, optimizer)


@feature
def tied_weights(compile: Any) -> Any:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.out = torch.nn.Embedding(7, 3), torch.nn.Linear(3, 7, bias=False)
            self.out.weight = self.embed.weight

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.out(self.embed(ids).sum(1))
            return result

    model = Tied()
    optimizer = torch.optim.Adam(model.parameters())

    def train_step(x: torch.Tensor) -> torch.Tensor:
        ids = x.abs().mul(3).long().clamp(max=6)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids), ids[:, 0])
        loss.backward()
        optimizer.step()
        return loss.detach()

    return loop(compile(train_step), model, optimizer)


@feature
def retained_graph(compile: Any) -> Any:
    model = Net()
    forward = compile(lambda x: model(x).pow(2).mean())

    def train_step(x: torch.Tensor) -> torch.Tensor:
        loss = forward(x)
        loss.backward(retain_graph=True)
        (loss * 3).backward()
        return loss.detach()

    return loop(train_step, model)


@feature
def retained_graph_of_statistics(compile: Any) -> Any:
    """Which could not run again; the first of its backwards is not to be kept."""
    layers = [torch.nn.Linear(3, 40, bias=False), torch.nn.BatchNorm1d(40), torch.nn.Tanh(), torch.nn.Linear(40, 1)]
    model = torch.nn.Sequential(*layers)
    forward = compile(lambda x: model(x).sin().mean() * 2)

    def train_step(x: torch.Tensor) -> torch.Tensor:
        forward(x).backward()
        loss = forward(x)
        loss.backward(retain_graph=True)
        loss.backward(retain_graph=True)
        loss.backward()
        return loss.detach()

    return loop(train_step, model)


@feature
def detached_and_without_grad(compile: Any) -> Any:
    model = Net()

    def train_step(x: torch.Tensor) -> torch.Tensor:
        hidden = model.first(x)
        with torch.no_grad():
            scale = hidden.abs().max() + 1
            hidden.mul_(1.0)
        target = model.second(hidden).detach()
        loss = (model.second(hidden / scale) - target * 0.5).pow(2).mean()
        loss.backward()
        return loss.detach()

    return loop(compile(train_step), model)


@feature
def gradients_of_inputs(compile: Any) -> Any:
    model = Net()

    def train_step(x: torch.Tensor) -> Any:
        x = x.clone().requires_grad_()
        (grad,) = torch.autograd.grad(model(x).sum(), x)
        return grad

    return loop(compile(train_step), model)


@feature
def gradient_penalty(compile: Any) -> Any:
    """Gradients of gradients: the first ones keep their history."""
    model = Net()

    def train_step(x: torch.Tensor) -> Any:
        x = x.clone().requires_grad_()
        loss = model(x).sum()
        (grad,) = torch.autograd.grad(loss, x, create_graph=True)
        (loss + grad.pow(2).sum()).backward()
        return loss.detach(), grad.detach()

    return loop(compile(train_step), model)


@feature
def double_backward(compile: Any) -> Any:
    """The same from outside the compiled function."""
    model = Net()
    forward = compile(lambda x: model(x).pow(2).sum())

    def train_step(x: torch.Tensor) -> Any:
        x = x.clone().requires_grad_()
        loss = forward(x)
        (grad,) = torch.autograd.grad(loss, x, create_graph=True)
        grad.pow(2).sum().backward()
        return loss.detach(), grad.detach(), x.grad

    return loop(train_step, model)


@feature
def hessian(compile: Any) -> Any:
    model = Net()
    forward = compile(lambda x: model(x).pow(3).sum())
    return [torch.autograd.functional.hessian(forward, x) for x in batches(2)]


@feature
@low_precision
def autocast(compile: Any) -> Any:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_step(x: torch.Tensor) -> Any:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            out = model(x)
            loss = F.mse_loss(out.float(), x[:, :1])
        loss.backward()
        optimizer.step()
        return loss.detach(), out.detach()

    return loop(compile(train_step), model, optimizer)


@feature
@low_precision
def autocast_around(compile: Any) -> Any:
    model = Net()
    forward = compile(lambda x: model(x))

    def train_step(x: torch.Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            out = forward(x)
        out.float().pow(2).mean().backward()
        return out.detach()

    return loop(train_step, model)


@feature
def scaled_gradients(compile: Any) -> Any:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)

    def train_step(x: torch.Tensor) -> Any:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(x).float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return loop(compile(train_step), model, optimizer), scaler.state_dict()


@feature
def checkpointing(compile: Any) -> Any:
    model = Net()

    def train_step(x: torch.Tensor) -> torch.Tensor:
        hidden = torch.utils.checkpoint.checkpoint(lambda x: torch.tanh(model.first(x)), x, use_reentrant=False)
        loss = model.second(F.dropout(hidden, 0.2)).pow(2).mean()
        loss.backward()
        return loss.detach()

    return loop(compile(train_step), model)


@feature
def functional_call(compile: Any) -> Any:
    model = Net()
    weights = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}

    def train_step(x: torch.Tensor) -> Any:
        loss = torch.func.functional_call(model, weights, x).pow(2).mean()
        loss.backward()
        return loss.detach()

    return loop(compile(train_step), model), [w.grad for w in weights.values()]


@feature
def own_function(compile: Any) -> Any:
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, power: int) -> torch.Tensor:
            ctx.save_for_backward(x)
            ctx.power = power
            return x**power

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            (x,) = ctx.saved_tensors
            return grad * ctx.power * x ** (ctx.power - 1), None

    model = Net()

    def train_step(x: torch.Tensor) -> torch.Tensor:
        loss = Cube.apply(model(x), 3).mean()
        loss.backward()
        return loss.detach()

    return loop(compile(train_step), model)


@feature
def writes_past_autograd(compile: Any) -> Any:
    """A buffer that is filled behind autograd's back, between uses of its views, as torchdiffeq does."""

    class Assign(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, buffer: torch.Tensor, value: torch.Tensor, index: int) -> torch.Tensor:
            ctx.index = index
            buffer.data[..., index] = value
            return buffer

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return grad, grad[..., ctx.index], None

    model = Net()

    def train_step(x: torch.Tensor) -> torch.Tensor:
        buffer = Assign.apply(torch.zeros(5, 3), model(x)[:, 0], 0)
        for index in (1, 2):
            torchdynamo.graph_break()
            value = torch.tanh(model(buffer[..., :index].sum(-1, keepdim=True) + x))
            buffer = Assign.apply(buffer, value[:, 0], index)
        loss = buffer.pow(2).sum()
        loss.backward()
        return loss.detach()

    return loop(compile(train_step), model)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", FEATURES)
def test_same_as_eager(name: str, backend: str) -> None:
    assert_feature(FEATURES[name], backend)


@pytest.mark.parametrize("name", ["retained_graph", "retained_graph_of_statistics"])
def test_a_graph_that_is_kept_under_inductor(name: str) -> None:
    """Its backward uses up the memory of what it saved, where it may."""
    assert_feature(FEATURES[name], "inductor")


def test_eagers_random_numbers_under_inductor() -> None:
    """With `fallback_random`, which also decides what Inductor takes apart."""
    assert_feature(FEATURES["dropout"], "inductor")


@pytest.mark.parametrize("backend", [*BACKENDS, "aot_eager_decomp_partition", "inductor"])
@torch._inductor.config.patch(fallback_random=True)
def test_a_step_draws_as_often_as_in_eager(backend: str) -> None:
    """Also where torch takes random numbers for a side effect, which is then kept in the backward."""
    model = torch.nn.Sequential(torch.nn.Conv1d(1, 4, 3), torch.nn.MaxPool1d(2), torch.nn.Dropout(0.5))

    def states(fn: Any) -> list[torch.Tensor]:
        torch.manual_seed(3)
        found = []
        for _ in range(3):
            fn(torch.randn(2, 1, 8)).sum().backward()
            found.append(torch.get_rng_state())
        return found

    assert [each.tolist() for each in states(compiled(backend)(model))] == [each.tolist() for each in states(model)]


def test_what_cannot_be_differentiated_twice_says_so() -> None:
    """The graph wrote to running statistics: running it once more would be another step."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    forward = compiled()(lambda x: model(x).pow(3).sum())
    x = next(batches()).requires_grad_()
    (grad,) = torch.autograd.grad(forward(x), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        torch.autograd.grad(grad.sum(), x)


def test_nothing_is_kept_for_a_second_derivative() -> None:
    forward = compiled()(lambda x: x + 1)
    x = torch.ones(3, requires_grad=True) * 2
    seen = weakref.ref(x)
    result = forward(x)
    del x
    assert seen() is None
    result.sum().backward()


def test_no_backward_is_made_where_nothing_is_differentiated() -> None:
    """Without grad mode, in inference mode, and where nothing needs gradients: one graph, nothing to split."""
    graphs, split = [], []
    backend = aot_autograd(
        lambda gm, inputs: graphs.append(gm) or gm.forward,
        partition_fn=lambda *args, **kwargs: split.append(args),
    )
    model, frozen, x = Net(), Net().requires_grad_(False), next(batches())
    for context, net in ((torch.no_grad(), model), (torch.inference_mode(), model), (torch.enable_grad(), frozen)):
        torchdynamo.reset()
        with context:
            assert not compiled(backend)(lambda x, net=net: net(x))(x).requires_grad
    assert len(graphs) == 3 and not split


def test_a_backward_is_compiled_when_it_first_runs() -> None:
    seen: list[str] = []

    def compiling(what: str) -> Callable[..., Any]:
        return lambda gm, inputs: seen.append(what) or gm.forward

    forward = compiled(aot_autograd(compiling("forward"), compiling("backward")))(lambda x: x.sin().sum())
    x = torch.ones(3, requires_grad=True)
    loss = forward(x)
    assert seen == ["forward"]
    loss.backward()
    forward(x).backward()
    assert seen == ["forward", "backward"]
