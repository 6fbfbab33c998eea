"""What else training loops do: checkpoints of all kinds, scaled losses, states that are loaded, hooks that save."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from training import BACKENDS, Feature, Net, assert_feature, batches, loop, low_precision, named, sgd, state, stepping

F = torch.nn.functional
FEATURES: dict[str, Feature] = {}
feature = named(FEATURES)


# -- checkpoints ------------------------------------------------------------------------------------------------------
@feature
def checkpoints_by_policy(compile: Any) -> Any:
    model = Net()
    optimizer = sgd(model)

    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        kept = op == torch.ops.aten.addmm.default
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    def contexts() -> Any:
        return create_selective_checkpoint_contexts(policy)

    def loss_of(x: torch.Tensor) -> Any:
        return checkpoint(lambda x: torch.tanh(model(x)), x, use_reentrant=False, context_fn=contexts).pow(2).mean()

    return loop(compile(stepping(optimizer, loss_of)), model, optimizer)


@feature
def checkpoints_by_list(compile: Any) -> Any:
    model = Net()
    optimizer = sgd(model)
    contexts = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])

    def loss_of(x: torch.Tensor) -> Any:
        return checkpoint(model, x, use_reentrant=False, context_fn=contexts).pow(2).mean()

    return loop(compile(stepping(optimizer, loss_of)), model, optimizer)


@feature
def checkpoints_in_a_row(compile: Any) -> Any:
    model = torch.nn.Sequential(*[torch.nn.Linear(3, 3) for _ in range(4)])
    optimizer = sgd(model)

    def loss_of(x: torch.Tensor) -> Any:
        return torch.utils.checkpoint.checkpoint_sequential(model, 2, x, use_reentrant=False).pow(2).mean()

    return loop(compile(stepping(optimizer, loss_of)), model, optimizer)


@feature
def reentrant_checkpoints(compile: Any) -> Any:
    model = Net()
    optimizer = sgd(model)

    def loss_of(x: torch.Tensor) -> Any:
        return checkpoint(model, x.clone().requires_grad_(), use_reentrant=True).pow(2).mean()

    return loop(compile(stepping(optimizer, loss_of)), model, optimizer)


@feature
@low_precision
def checkpoints_in_checkpoints(compile: Any) -> Any:
    """With random numbers, under autocast."""
    model = Net()
    optimizer = sgd(model)

    def inner(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(torch.tanh(model.first(x)).float(), 0.3)

    def outer(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = model.second(checkpoint(inner, x, use_reentrant=False))
        return result

    def loss_of(x: torch.Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            result = checkpoint(outer, x, use_reentrant=False)
        return result.float().pow(2).mean()

    return loop(compile(stepping(optimizer, loss_of)), model, optimizer)


@feature
def checkpoints_round_a_compiled_function(compile: Any) -> Any:
    """What is run again is left as soon as all is there that was wanted: the graph is, too."""
    model = Net()
    optimizer = sgd(model)
    forward = compile(lambda x: F.dropout(torch.tanh(model.first(x)), 0.2))

    def loss_of(x: torch.Tensor) -> Any:
        hidden = checkpoint(forward, x, use_reentrant=False)
        return model.second(checkpoint(torch.tanh, hidden, use_reentrant=False)).pow(2).mean()

    return loop(stepping(optimizer, loss_of), model, optimizer)


@feature
def checkpoints_of_layers_that_count(compile: Any) -> Any:
    """Running statistics are written to twice, as in eager."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    optimizer = sgd(model)

    def loss_of(x: torch.Tensor) -> Any:
        return checkpoint(model, x, use_reentrant=False).pow(2).mean()

    return loop(compile(stepping(optimizer, loss_of)), model, optimizer)


# -- precision --------------------------------------------------------------------------------------------------------
@feature
def a_scale_that_overflows(compile: Any) -> Any:
    """Steps are left out until it fits; then it grows."""
    model = Net()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**123, growth_interval=2)

    def train_step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            result = model(x)
        loss = F.mse_loss(result.float(), x[:, :1])
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return loop(compile(train_step), model, optimizer), scaler.state_dict()


@feature
@low_precision
def autocast_in_parts(compile: Any) -> Any:
    model = torch.nn.Sequential(torch.nn.Conv1d(1, 4, 1), torch.nn.LayerNorm(3), torch.nn.Flatten())
    out = torch.nn.Linear(12, 3)
    optimizer = torch.optim.AdamW([*model.parameters(), *out.parameters()])

    @torch.autocast("cpu", dtype=torch.bfloat16)
    def forward(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = out(model(x[:, None]))
        return result

    def loss_of(x: torch.Tensor) -> Any:
        result = forward(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(result, x.argmax(1))
            with torch.autocast("cpu", enabled=False):
                return loss + result.float().pow(2).mean()

    return loop(compile(stepping(optimizer, loss_of)), model, optimizer), state(out)


@feature
@low_precision
def low_precision_parameters(compile: Any) -> Any:
    model = Net().to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    loss_of = lambda x: model(x.bfloat16()).float().pow(2).mean()  # noqa: E731
    return loop(compile(stepping(optimizer, loss_of)), model, optimizer)


# -- gradients, by hand and by hooks ----------------------------------------------------------------------------------
@feature
def gradients_by_hand(compile: Any) -> Any:
    model = Net()

    def train_step(x: torch.Tensor) -> Any:
        for p in model.parameters():
            p.grad = None
        loss = model(x).pow(2).mean()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p.grad.mul_(0.5)
                p -= 0.1 * p.grad
                p.data.clamp_(-1, 1)
        return loss.detach()

    return loop(compile(train_step), model)


@feature
def updates_by_gradients_asked_for(compile: Any) -> Any:
    """A step of gradient descent, in whole graphs."""
    model = Net()

    def train_step(x: torch.Tensor) -> Any:
        loss = model(x).pow(2).mean()
        gradients = torch.autograd.grad(loss, model.parameters())
        with torch.no_grad():
            for p, gradient in zip(model.parameters(), gradients, strict=True):
                p.sub_(gradient, alpha=0.1)
        return loss.detach(), gradients

    return loop(compile(train_step), model)


@feature
def learning_to_learn(compile: Any) -> Any:
    """The second loss goes through the first one's gradients."""
    model = Net()
    optimizer = sgd(model)

    def loss_of(x: torch.Tensor) -> Any:
        weights = dict(model.named_parameters())
        loss = torch.func.functional_call(model, weights, x).pow(2).mean()
        gradients = torch.autograd.grad(loss, weights.values(), create_graph=True)
        adapted = {name: p - 0.1 * g for (name, p), g in zip(weights.items(), gradients, strict=True)}
        return torch.func.functional_call(model, adapted, x).pow(2).mean()

    return loop(compile(stepping(optimizer, loss_of)), model, optimizer)


@feature
def backward_of_several(compile: Any) -> Any:
    model = Net()

    def train_step(x: torch.Tensor) -> Any:
        result = model(x)
        result.backward(torch.ones_like(result), retain_graph=True)
        torch.autograd.backward([result.sum(), (result * 2).mean()], inputs=list(model.first.parameters()))
        return result.detach()

    return loop(compile(train_step), model)


@feature
def gradients_that_are_retained(compile: Any) -> Any:
    model, seen = Net(), []
    torch.autograd.graph.register_multi_grad_hook(
        list(model.parameters()), lambda grads: seen.append([g.clone() for g in grads if g is not None])
    )

    def train_step(x: torch.Tensor) -> Any:
        hidden = model.first(x)
        hidden.retain_grad()
        loss = model.second(torch.tanh(hidden)).pow(2).mean()
        loss.backward()
        return loss.detach(), hidden.grad

    return loop(compile(train_step), model), seen


@feature
def hooks_on_what_is_saved(compile: Any) -> Any:
    model = Net()

    def train_step(x: torch.Tensor) -> Any:
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t):
            loss = model(x).pow(2).mean()
        with torch.autograd.graph.save_on_cpu():
            more = model(x + 1).pow(2).mean()
        (loss + more).backward()
        return loss.detach()

    return loop(compile(train_step), model)


@feature
def clipping_of_all_kinds(compile: Any) -> Any:
    model = Net()
    optimizer = sgd(model)

    def train_step(x: torch.Tensor) -> Any:
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        clip = torch.nn.utils.clip_grad_norm_
        largest = clip(model.parameters(), 0.5, norm_type=float("inf"), foreach=False)
        norm = clip(model.parameters(), 0.1, error_if_nonfinite=True)
        optimizer.step()
        return largest, norm

    return loop(compile(train_step), model, optimizer)


@feature
def steps_that_are_left_out(compile: Any) -> Any:
    model = Net()
    optimizer = sgd(model)

    def train_step(x: torch.Tensor) -> Any:
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        if not torch.isfinite(loss):
            return None
        loss.backward()
        optimizer.step()
        return loss.item()

    found = compile(train_step)
    odd = [found(x * (float("nan") if at % 5 == 4 else 1)) for at, x in enumerate(batches())]
    return odd, state(model, optimizer)


# -- state ------------------------------------------------------------------------------------------------------------
@feature
def states_that_are_loaded(compile: Any) -> Any:
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    train_step, found, saved = compile(stepping(optimizer, lambda x: model(x).pow(2).mean())), [], None
    for at, x in enumerate(batches(12)):
        found.append(train_step(x))
        if at == 3:
            saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        if at == 7 and saved is not None:
            model.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
    return found, state(model, optimizer)


@feature
def groups_that_are_added(compile: Any) -> Any:
    model = Net()
    optimizer = torch.optim.AdamW(model.first.parameters(), lr=0.1)
    train_step, found = compile(stepping(optimizer, lambda x: model(x).pow(2).mean())), []
    for at, x in enumerate(batches()):
        if at == 4:
            optimizer.add_param_group({"params": model.second.parameters(), "lr": 0.01})
        found.append(train_step(x))
    return found, state(model, optimizer)


@feature
def evaluation_between_steps(compile: Any) -> Any:
    """In inference mode, where something of the training is looked at as well."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    optimizer = sgd(model)

    def train_step(x: torch.Tensor) -> Any:
        model.train()
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.inference_mode(), torch.enable_grad():
            found = model(x)
            with torch.inference_mode(False):
                again = model(x).detach()
            return loss.detach(), found.mean().clone(), again

    return loop(compile(train_step), model, optimizer)


@feature
def weights_made_of_others(compile: Any) -> Any:
    """Spectral norm writes to its buffers in each call."""
    made = torch.nn.utils.parametrizations
    first = made.spectral_norm(torch.nn.Linear(3, 4))
    model = torch.nn.Sequential(first, torch.nn.ReLU(), made.weight_norm(torch.nn.Linear(4, 1)))
    optimizer = sgd(model)
    return loop(compile(stepping(optimizer, lambda x: model(x).pow(2).mean())), model, optimizer)


@feature
def embeddings_that_are_renormed(compile: Any) -> Any:
    """The forward writes to a weight."""
    table = torch.nn.Embedding(7, 3, max_norm=1.0, padding_idx=0, scale_grad_by_freq=True)
    model = torch.nn.ModuleList([table, torch.nn.EmbeddingBag(7, 3, mode="mean")])
    optimizer = sgd(model)

    def loss_of(x: torch.Tensor) -> Any:
        ids = x.abs().mul(3).long().clamp(max=6)
        return (model[0](ids).sum(1) * model[1](ids)).pow(2).mean()

    return loop(compile(stepping(optimizer, loss_of)), model, optimizer)


@feature
def random_layers(compile: Any) -> Any:
    layers = [torch.nn.Dropout1d(0.3), torch.nn.AlphaDropout(0.2), torch.nn.FeatureAlphaDropout(0.2), torch.nn.RReLU()]
    model = torch.nn.Sequential(torch.nn.Conv1d(1, 4, 1), *layers, torch.nn.Flatten(), torch.nn.Linear(12, 2))
    optimizer = sgd(model)

    def loss_of(x: torch.Tensor) -> Any:
        return (F.gumbel_softmax(model(x[:, None])) * torch.randn(5, 2)).pow(2).mean()

    return loop(compile(stepping(optimizer, loss_of)), model, optimizer)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", FEATURES)
def test_same_as_eager(name: str, backend: str) -> None:
    assert_feature(FEATURES[name], backend)
