"""Checkpoints are one operation of the graph, whose body is made again by the backward."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
    noop_context_fn,
)

import torchdynamo
from torchdynamo.backends import BACKENDS
from torchdynamo.graph.check import check


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 4), nn.GELU())
        self.second = nn.Linear(4, 4)

    def forward(self, x):
        y = checkpoint(self.first, x, use_reentrant=False)
        left = checkpoint(lambda u, v: (u.tanh() * v).split(2, -1)[0], x, y, use_reentrant=False)
        return self.second(y) + left.sum()


def names(gm: Any) -> list[str]:
    return [torch.typename(node.target) for node in gm.graph.nodes if node.op == "call_function"]


def test_the_graph() -> None:
    graphs: list[Any] = []
    model = Model()
    torchdynamo.compile(model, backend=lambda gm, args: graphs.append(gm) or gm.forward, fullgraph=True)(
        torch.ones(2, 4)
    )
    (gm,) = graphs
    check(gm)
    assert names(gm).count("torch.utils.checkpoint.checkpoint") == 2
    assert len(names(gm.body_0)) == 2 and not any("gelu" in name or "tanh" in name for name in names(gm))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_gradients(backend: str) -> None:
    theirs = Model()
    mine = copy.deepcopy(theirs)
    compiled = torchdynamo.compile(mine, backend=backend, fullgraph=True)
    for _ in range(2):
        x = torch.randn(3, 4, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        wanted, got = theirs(x), compiled(y)
        torch.testing.assert_close(got, wanted)
        wanted.sum().backward()
        got.sum().backward()
        for a, b in zip([x, *theirs.parameters()], [y, *mine.parameters()]):
            torch.testing.assert_close(b.grad, a.grad)


def test_a_backend_changes_nothing() -> None:
    """AOTAutograd marks the nodes of bodies; it has its own."""
    graphs: list[Any] = []

    def backend(gm: Any, args: Any) -> Any:
        graphs.append(gm)
        return BACKENDS["aot_eager"](gm, args)

    torchdynamo.compile(Model(), backend=backend, fullgraph=True)(torch.ones(2, 4)).sum().backward()
    check(graphs[0])


def test_a_backward_inside() -> None:
    """What runs again in a compiled function's backward is no program to be captured."""
    graphs: list[Any] = []
    model = Model()

    @torchdynamo.optimize(lambda gm, args: graphs.append(gm) or gm.forward)
    def step(x: torch.Tensor) -> None:
        model(x).sum().backward()

    for _ in range(3):
        step(torch.ones(2, 4))
    assert len(graphs) == 1


BODIES: dict[str, Any] = {
    "layers": lambda: Model().first,
    "with dropout": lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Tanh()),
    "with attention": lambda: nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True),  # an operator that might draw
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("body", BODIES)
def test_nothing_is_kept(body: str, backend: str) -> None:
    """What the body computes is not there for the backward, but made again."""
    model = BODIES[body]()

    def kept(fn: Any) -> int:
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
            fn(torch.ones(256, 16, 4)).sum()
        return sum(sizes)

    def with_checkpoint(x):
        return checkpoint(model, x, use_reentrant=False)

    assert kept(torchdynamo.compile(with_checkpoint, backend=backend)) < 0.6 * kept(model)


MULTIPLY = torch.ops.aten.mm.default
ASKED: list[Any] = []


def policy(ctx: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    ASKED.append((ctx.is_recompute, operator))
    return CheckpointPolicy.MUST_SAVE if operator == MULTIPLY else CheckpointPolicy.PREFER_RECOMPUTE


def makes_contexts() -> Any:
    return create_selective_checkpoint_contexts(policy)


PARTIAL = functools.partial(create_selective_checkpoint_contexts, policy)
CONTEXTS = {
    "a function": lambda: makes_contexts,
    "a partial": lambda: PARTIAL,
    "a partial that the frame makes": lambda: functools.partial(create_selective_checkpoint_contexts, policy),
    "operators": lambda: functools.partial(create_selective_checkpoint_contexts, [MULTIPLY]),
    "nothing": lambda: noop_context_fn,
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("kind", CONTEXTS)
@pytest.mark.filterwarnings("error::torchdynamo.exc.FallbackWarning")
def test_what_is_kept_of_it(kind: str, backend: str) -> None:
    """The program's policy is asked, by backend `eager` as often as in eager."""
    contexts = CONTEXTS[kind]

    def fn(x: Any) -> Any:
        return checkpoint(lambda u: (u @ u).sin() @ u, x, use_reentrant=False, context_fn=contexts())

    found = []
    for call in (fn, torchdynamo.compile(fn, backend=backend, fullgraph=True)):
        ASKED.clear()
        for _ in range(2):
            x = torch.arange(4.0).reshape(2, 2).requires_grad_()
            call(x).sum().backward()
        found.append((x.grad, [*ASKED]))
    torch.testing.assert_close(found[1][0], found[0][0])
    assert bool(found[1][1]) is bool(found[0][1])
    if backend == "eager":
        assert found[0][1] == found[1][1]


def test_what_is_kept_and_written_to() -> None:
    def fn(x: Any) -> Any:
        return checkpoint(lambda u: (u @ u).relu_().sin(), x, use_reentrant=False, context_fn=makes_contexts)

    for call in (fn, torchdynamo.compile(fn, backend="aot_eager")):
        with pytest.raises(RuntimeError, match="has been mutated"):
            call(torch.ones(2, 2, requires_grad=True)).sum().backward()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_random_numbers_that_are_not_kept(backend: str) -> None:
    """What draws none is the same without `preserve_rng_state`; a backward that would draw others is Python's."""

    def plain(x: Any) -> Any:
        return checkpoint(lambda u: (u @ u.T).sigmoid(), x, use_reentrant=False, preserve_rng_state=False)

    def draws(x: Any) -> Any:
        return checkpoint(nn.functional.dropout, x, use_reentrant=False, preserve_rng_state=False)

    for fn, whole in ((plain, True), (draws, False)):
        found = []
        for call in (fn, torchdynamo.compile(fn, backend=backend, fullgraph=whole)):
            x = torch.arange(8.0).reshape(2, 4).requires_grad_()
            torch.manual_seed(0)
            result = call(x)
            result.sum().backward()
            found.append((result.detach(), x.grad))
        assert all(torch.equal(a, b) for a, b in zip(*found))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_random_numbers_are_drawn_again(backend: str) -> None:
    """The same ones, in the body's second run; and those after it are as if it had not run twice."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = checkpoint(lambda x: (x * torch.rand(4)).sin(), x, use_reentrant=False)
        return (y * torch.rand(4)).sum()

    def run(fn: Any) -> list[torch.Tensor]:
        torch.manual_seed(3)
        x = torch.ones(4, requires_grad=True)
        loss = fn(x)
        between = torch.rand(4)
        loss.backward()
        return [loss.detach(), between, x.grad, torch.rand(4)]

    compiled = torchdynamo.compile(fn, backend=backend, fullgraph=True)
    for _ in range(2):
        for mine, theirs in zip(run(compiled), run(fn), strict=True):
            assert torch.equal(mine, theirs)


def draws_from_its_own(x: torch.Tensor) -> torch.Tensor:
    g = torch.Generator()
    g.manual_seed(3)
    return checkpoint(lambda t: (t * torch.rand(4, generator=g)).sin(), x, use_reentrant=False)


def rebinds(x: torch.Tensor) -> torch.Tensor:
    n = 2.0
    y = checkpoint(lambda t: (t * n).sin(), x, use_reentrant=False)
    n = 5.0
    return y


def rebinds_after_a_break(x: torch.Tensor) -> torch.Tensor:
    n = 2.0
    y = checkpoint(lambda t: (t * n).sin(), x, use_reentrant=False)
    torchdynamo.graph_break()
    n = 5.0
    return y + n


def rebinds_in_a_loop(x: torch.Tensor) -> torch.Tensor:
    for n in (2.0, 3.0):
        x = checkpoint(lambda t: (t * n).sin(), x, use_reentrant=False)  # noqa: B023
    return x


def rebinds_in_a_call(x: torch.Tensor) -> torch.Tensor:
    return rebinds(x * 2)


def writes_to_memory(x: torch.Tensor) -> torch.Tensor:
    k = x.detach() * 1
    y = checkpoint(lambda t: (t * k).sin(), x, use_reentrant=False)
    k.add_(1)
    return y


def writes_to_a_list(x: torch.Tensor) -> torch.Tensor:
    factors = [2.0]
    y = checkpoint(lambda t: (t * factors[0]).sin(), x, use_reentrant=False)
    factors[0] = 5.0
    return y


def writes_to_an_argument(x: torch.Tensor) -> torch.Tensor:
    factors = {"a": 2.0}
    y = checkpoint(lambda t, by: (t * by["a"]).sin(), x, factors, use_reentrant=False)
    factors["a"] = 5.0
    return y


def changes_nothing_that_is_read(x: torch.Tensor) -> torch.Tensor:
    n, seen = 2.0, []
    k = x.detach() * 1
    y = checkpoint(lambda t: (t * n * k).sin(), x, use_reentrant=False)
    seen.append(y)
    z = seen[0] * 2
    z.add_(1)
    return z


CHANGED = [draws_from_its_own, rebinds, rebinds_after_a_break, rebinds_in_a_loop, rebinds_in_a_call]
CHANGED += [writes_to_memory, writes_to_a_list, writes_to_an_argument]


@pytest.mark.parametrize("fn", [*CHANGED, changes_nothing_that_is_read], ids=lambda fn: fn.__name__)
def test_what_the_second_run_reads_is_what_is_there_then(fn: Any) -> None:
    def run(fn: Any) -> list[Any]:
        x = torch.arange(4.0, requires_grad=True)
        y = fn(x)
        y.sum().backward()
        return [y.detach(), x.grad]

    compiled = torchdynamo.compile(fn, backend="eager")
    for _ in range(2):
        for mine, theirs in zip(run(compiled), run(fn), strict=True):
            assert torch.equal(mine, theirs)
    graphs: list[Any] = []
    torchdynamo.compile(fn, backend=lambda gm, args: graphs.append(gm) or gm.forward)(torch.ones(4, requires_grad=True))
    whole = any("torch.utils.checkpoint.checkpoint" in names(gm) for gm in graphs)
    assert whole is (fn is changes_nothing_that_is_read)
