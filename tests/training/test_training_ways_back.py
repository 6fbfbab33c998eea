"""Graphs with several results: gradients of some of them, one after the other, and what eager then does not reach."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from pictures import assert_alike
from training import (
    BACKENDS,
    Feature,
    OfGraphs,
    assert_feature,
    batches,
    compiled,
    loop,
    low_precision,
    named,
    state,
)

import torchdynamo
from torchdynamo.errors import FallbackWarning
from torchdynamo.graph.history import History, strands
from torchdynamo.report.explain import collecting

F = torch.nn.functional
FEATURES: dict[str, Feature] = {}
feature = named(FEATURES)


RECURRENT: list[Any] = [torch.nn.RNN, torch.nn.GRU, torch.nn.LSTM]


class Block(torch.nn.Module):
    """Without a bias before the norm: its gradient would be rounding and nothing else, and Adam makes steps of that."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.a, self.norm = torch.nn.Linear(before, 4, bias=False), torch.nn.BatchNorm1d(4)
        self.b = torch.nn.Linear(4, after)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.b(torch.relu(self.norm(self.a(x))))
        return result


class Heads(torch.nn.Module):
    """Results that share a beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.heads = Block(3, 4), torch.nn.ModuleList(torch.nn.Linear(4, 1) for _ in range(3))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        hidden = self.trunk(x)
        return [head(hidden) for head in self.heads]


@feature
def one_head_at_a_time(compile: Any) -> Any:
    """What the other heads are made of has no gradients, which an optimizer tells from zeros."""
    model = Heads()
    forward = compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    found = []
    for step, x in enumerate(batches(7)):
        optimizer.zero_grad()
        loss = forward(x)[step % 3].pow(2).mean()
        loss.backward()
        found += [loss.detach(), [p.grad for p in model.parameters()]]
        optimizer.step()
    return found, state(model, optimizer)


@feature
def two_heads_at_a_time(compile: Any) -> Any:
    model = Heads()
    forward = compile(model)

    def step(x: torch.Tensor) -> Any:
        first, _, last = forward(x)
        (first.sum() * last.sum()).backward()
        return first.detach(), last.detach()

    return loop(step, model)


@feature
def some_results_retained(compile: Any) -> Any:
    model = Heads()
    forward = compile(model)

    def step(x: torch.Tensor) -> Any:
        for p in model.parameters():
            p.grad = None
        first, second, _ = forward(x)
        first.sum().backward(retain_graph=True)
        before = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
        second.sum().backward()
        return before

    return loop(step, model)


@feature
def two_players(compile: Any) -> Any:
    """One network's loss goes back, and that network is updated, before the other's."""
    maker, judge = Block(3, 2), Block(2, 1)
    makers, judges = torch.optim.Adam(maker.parameters()), torch.optim.RMSprop(judge.parameters())

    def train_step(x: torch.Tensor) -> Any:
        judges.zero_grad()
        made = F.dropout(maker(x), 0.2)
        found = F.softplus(-judge(x[:, :2])).mean() + F.softplus(judge(made.detach())).mean()
        found.backward()
        judges.step()
        makers.zero_grad()
        fooled = F.softplus(-judge(made)).mean()
        fooled.backward()
        makers.step()
        return found.detach(), fooled.detach()

    return loop(compile(train_step), maker, makers), state(judge, judges)


@feature
def a_loss_that_has_gone_back(compile: Any) -> Any:
    """Scales the next loss as a number: its history, which is used up, is no part of the next way back."""
    model = Block(3, 2)

    def step(x: torch.Tensor) -> Any:
        first = model(x).square().mean()
        first.backward()
        second = torch.sigmoid(model(x)).mean() * first.detach()
        second.backward()
        return second.detach()

    return loop(compile(step), model)


@feature
@low_precision
def two_players_under_autocast(compile: Any) -> Any:
    """What was switched before a cut is switched after it, too."""
    first, second = Block(3, 2), Block(3, 1)

    def train_step(x: torch.Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            a = first(x)
            with torch.no_grad():
                scale = a.abs().max() + 1
            b = second(x) / scale
        c = second.b(x[:, :1].expand(5, 4)) @ first.b.weight[:1, :1].detach()
        (a.float().sum() + 0).backward()
        (b.float().sum() + c.sum()).backward()
        return a.detach(), b.detach(), c.detach()

    return loop(compile(train_step), first), state(second)


@feature
def in_turns_layer_by_layer(compile: Any) -> Any:
    left, right = ([torch.nn.Linear(3, 3) for _ in range(3)] for _ in range(2))

    def train_step(x: torch.Tensor) -> Any:
        a, b = x, x + 1
        for one, other in zip(left, right, strict=True):
            a, b = torch.tanh(one(a)), torch.sigmoid(other(b))
        first, second = a.sum(), b.sum()
        first.backward()
        second.backward()
        return first.detach(), second.detach()

    return loop(compile(train_step), torch.nn.ModuleList([*left, *right]))


@feature
def writes_from_piece_to_piece(compile: Any) -> Any:
    first, second, buffer = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3), torch.zeros(5, 3)

    def train_step(x: torch.Tensor) -> Any:
        w = x * 2
        a = (first(x) * 3).relu_()
        view = w[:, :2]
        b = second(x) * 2
        view.add_(1)
        buffer.add_(w.detach())
        b = b.add_(w).sigmoid_()
        one, two = a.sum(), b.sum()
        one.backward()
        two.backward()
        return one.detach(), two.detach(), w, buffer.clone()

    return loop(compile(train_step), torch.nn.ModuleList([first, second])), buffer


@feature
def recurrent_layers(compile: Any) -> Any:
    """They run as they are: not all their kernels can be traced with gradients."""
    layers = {
        "lstm": torch.nn.LSTM(3, 5, 2, bidirectional=True, dropout=0.2),
        "gru": torch.nn.GRU(10, 4),
        "rnn": torch.nn.RNN(4, 2),
        "out": torch.nn.Linear(2, 1),
    }
    model = torch.nn.ModuleDict(layers)
    optimizer = torch.optim.Adam(model.parameters())

    def train_step(x: torch.Tensor) -> Any:
        optimizer.zero_grad()
        hidden, (last, _) = layers["lstm"](x[:, None].repeat(1, 2, 1) + 1)
        hidden, _ = layers["rnn"](layers["gru"](hidden)[0])
        loss = layers["out"](hidden).pow(2).mean() + last.sum() * 0.1
        loss.backward()
        optimizer.step()
        return loss.detach()

    return loop(compile(train_step), model, optimizer)


def layers_that_drop(compile: Any) -> Any:
    """Also where nothing is differentiated."""
    layers = [cls(3, 4, num_layers=2, dropout=0.5).requires_grad_(False) for cls in RECURRENT]
    state = torch.zeros(2, 3, 4)

    def draw(x: torch.Tensor) -> Any:
        rnn, gru, lstm = layers
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, [4, 2, 1])
        return rnn(x)[0], gru(packed)[0].data, lstm(x, (state, state))[0] + 1, torch.rand(1)

    def only(x: torch.Tensor) -> Any:
        return layers[0](x, state)  # a graph of nothing else

    run, alone = compile(draw), compile(only)
    return [(run(x), alone(x)) for x in torch.randn(3, 4, 3, 3)]


@pytest.mark.parametrize("backend", [*BACKENDS, "inductor"])
def test_layers_that_drop(backend: str) -> None:
    """What tracers make of them would drop nothing."""
    assert_feature(layers_that_drop, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", FEATURES)
def test_same_as_eager(name: str, backend: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        assert_feature(FEATURES[name], backend)


def test_hooks_are_called_with_gradients() -> None:
    """Autograd calls the hooks of an input whether it has a gradient or not: they get zeros, not None."""
    model, seen = Heads(), []
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    compiled()(model)(next(batches()))[0].sum().backward()
    assert seen


def test_a_graph_that_runs_again_is_not_compiled_again() -> None:
    """It does so inside of `backward`, where frames of the program may be captured."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))

    def step(x: torch.Tensor) -> Any:
        model(x).pow(2).mean().backward(create_graph=True)
        size = sum(p.grad.pow(2).sum() for p in model.parameters())
        model.zero_grad()
        size.backward()
        return size.detach()

    torchdynamo.reset()
    with collecting() as events, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of cycles of gradients
        for x in batches(2):
            expected = step(x)
            gradients = [p.grad for p in model.parameters()]
            model.zero_grad()
            found = compiled()(step)(x), [p.grad for p in model.parameters()]
            assert_alike((expected, gradients), found, taking=OfGraphs)
            model.zero_grad()
    assert sum(event.ops > 0 for event in events) == 3


def graph_of(fn: Any, *args: Any) -> torch.fx.GraphModule:
    graphs: list[torch.fx.GraphModule] = []
    torchdynamo.optimize(lambda gm, _: graphs.append(gm) or gm.forward)(fn)(*args)  # type: ignore[func-returns-value]
    (gm,) = graphs
    return gm


def test_what_results_reach() -> None:
    a, b, c = (torch.ones(2, requires_grad=True) for _ in range(3))
    gm = graph_of(lambda a, b, c: ((a * b).sin(), (b * 2).detach() * c, a + 1), a, b, c)
    found = {at: {gm.graph.find_nodes(op="placeholder")[i].name for i in s} for at, s in History(gm).reached.items()}
    assert found == {0: {"a", "b"}, 1: {"c"}, 2: {"a"}}
    assert {node.name: way for node, way in strands(gm).items()} == {"mul": 0, "sin": 0, "mul_2": 1, "add": 2}


def test_one_way_back_is_not_cut() -> None:
    x = torch.ones(2, requires_grad=True)
    assert strands(graph_of(lambda x: ((x * 2).sin(), x.detach() * 3), x)) == {}
    assert strands(graph_of(lambda x: (y := x.exp(), y.sin(), y.cos() + y), x)) == {}
