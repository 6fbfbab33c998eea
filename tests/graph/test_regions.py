"""Repeated blocks of a graph: which are found, where they begin, and which are left as they are, and why."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx
from torch import nn

import torchdynamo
from torchdynamo.graph.mutation import effects_of
from torchdynamo.graph.regions.blocks import CannotOutline
from torchdynamo.graph.regions.families import Family, Limits, families
from torchdynamo.graph.regions.outline import outline
from torchdynamo.graph.regions.search import Repetition, largest, recurring, repetitions

F = nn.functional
Layer = Callable[..., Any]


def plain(x: Any, layer: Any, at: int) -> Any:
    """Ten operators, four of them linear."""
    h = F.linear(F.layer_norm(x, (8,)), layer.a)
    h = F.linear(F.gelu(h), layer.b)
    h = F.linear(F.relu(h), layer.a)
    return x + F.linear(F.silu(h) * 2, layer.b)


class Layers(nn.Module):
    """Applies a function of (x, parameters, number) several times."""

    def __init__(self, layer: Layer = plain, count: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = layer
        self.weights = nn.ModuleList(nn.Module() for _ in range(count))
        for each in self.weights:
            each.a = nn.Parameter(torch.randn(8, 8) / 3)
            each.b = nn.Parameter(torch.randn(8, 8) / 3)
            each.register_buffer("seen", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for at, layer in enumerate(self.weights):
            x = self.layer(x, layer, at)
        return x


def graph_of(fn: Callable[..., Any], *args: Any) -> tuple[torch.fx.GraphModule, list[Any]]:
    """The graph of a function, and the inputs of this call."""
    given: list[tuple[torch.fx.GraphModule, list[Any]]] = []

    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        given.append((gm, list(inputs)))
        return gm.forward

    torchdynamo.compile(fn, backend=backend, fullgraph=True)(*args)
    (graph,) = given
    return graph


def written(gm: torch.fx.GraphModule) -> frozenset[str]:
    names = effects_of(gm).overwritten
    assert names is not None
    return names


def found(fn: Callable[..., Any], *args: Any, limits: Limits = Limits()) -> list[Family]:  # noqa: B008
    gm, _ = graph_of(fn, *args)
    return families(gm.graph, written(gm), limits)


def call(body: torch.fx.GraphModule, name: str, *slots: Any) -> Any:
    return body(*slots)


def check_outlined(fn: Callable[..., Any], *args: Any) -> list[Family]:
    """Outline the graph, compare what it gives, and return the families."""
    gm, inputs = graph_of(fn, *args)
    want = gm(*inputs)
    made = outline(gm, written(gm), Limits(), call)
    gm.graph.lint()
    calls = gm.graph.find_nodes(op="call_function", target=call)
    assert len(calls) == sum(len(family.blocks) for family in made)
    assert all(map(torch.equal, want, gm(*inputs)))
    return made


def outside(family: Family, name: str) -> bool:
    """Whether no block reads an input whose name has this in it."""
    return not any(name in node.name for block in family.blocks for node in block.slots)


# -- the search -------------------------------------------------------------------------------------------------------
def test_the_shortest_period_is_found() -> None:
    labels = [9, 8, *[1, 2, 3, 4, 1, 5] * 6, 7]
    first, *_ = repetitions(labels, 4, 3)
    assert first == Repetition(2, 2, 6, 6, 6)


def test_a_run_that_goes_on_leaves_a_choice_where_blocks_begin() -> None:
    labels = [9, *[1, 2, 3, 4, 5] * 4, 1, 2, 8]
    first, *_ = repetitions(labels, 4, 3)
    assert first == Repetition(1, 3, 5, 5, 4)


def test_windows_with_something_else_between_them_are_found() -> None:
    labels = [label for at in range(5) for label in (1, 2, 3, 4, 5, 100 + at)]
    first, *_ = repetitions(labels, 4, 3)
    assert first == Repetition(0, 0, 5, 6, 5)


@pytest.mark.parametrize("labels", [[], [1], [1, 2, 3], list(range(40)), [1, 2, 3, 4] * 2])
def test_nothing_is_found_where_nothing_is_repeated_often_enough(labels: list[int]) -> None:
    assert list(repetitions(labels, 4, 3)) == []


def test_a_recurring_label_is_counted() -> None:
    assert recurring([1, 2, 1, 2, 1, 3], 2) == [2, 1, 1, 0, 0, 0]
    assert largest([2, 1, 1, 0, 0, 0], 2, 3, 2) is None


# -- families ---------------------------------------------------------------------------------------------------------
def test_blocks_are_found_and_outlined() -> None:
    with torch.no_grad():
        (family,) = check_outlined(Layers(), torch.randn(2, 8))
    assert len(family.blocks) >= 3
    assert len(family.blocks[0].nodes) == 10
    assert family.lost == 0


def test_two_families_are_found() -> None:
    def other(x: Any, layer: Any, at: int) -> Any:
        h = F.linear(F.softmax(x, -1), layer.b)
        for _ in range(2):
            h = F.linear(F.tanh(h), layer.a)
            h = F.linear(F.relu(h) - 1, layer.b)
        return x * h

    model = nn.Sequential(Layers(), Layers(other))
    with torch.no_grad():
        made = check_outlined(model, torch.randn(2, 8))
    assert len(made) == 2


def test_the_border_lies_where_nothing_would_be_fused() -> None:
    """Not between the sum and the norm that reads it, which are one kernel."""
    with torch.no_grad():
        (family,) = found(Layers(), torch.randn(2, 8))
    block = family.blocks[0]
    targets = [block.nodes[at].target for at in family.results]
    assert targets != [operator.add]
    assert family.lost == 0


def test_tied_weights_are_inputs_like_others() -> None:
    model = Layers()
    for each in model.weights:
        each.b = model.weights[0].b
    with torch.no_grad():
        (family,) = found(model, torch.randn(2, 8))
    shared = {node for block in family.blocks for node in block.slots if "_b" in node.name}
    assert len(shared) == 1


# -- refusals ---------------------------------------------------------------------------------------------------------
def constants(x: Any, layer: Any, at: int) -> Any:
    return plain(x, layer, at) * (1.0 + at)


def one_constant(x: Any, layer: Any, at: int) -> Any:
    return F.linear(plain(x, layer, at) * (2 if at == 2 else 3), layer.a)


def one_alias(x: Any, layer: Any, at: int) -> Any:
    return plain(x, layer, at) @ (layer.a if at == 2 else layer.seen.diag())


def one_stride(x: Any, layer: Any, at: int) -> Any:
    h = F.linear(plain(x, layer, at), layer.a)
    return F.linear(h.t().contiguous().t() if at == 2 else h.t().t(), layer.b)


@pytest.mark.parametrize("layer", [constants, one_constant, one_alias, one_stride])
def test_what_differs_is_outside_of_blocks(layer: Layer) -> None:
    """Blocks that differ are left out, or the borders are drawn around what differs: the results are the same."""
    with torch.no_grad():
        made = check_outlined(Layers(layer, 6), torch.randn(2, 8))
    for family in made:
        first, *others = family.blocks
        for other in others:
            assert [node.args[1:] for node in first.nodes if node.target is operator.mul] == [
                node.args[1:] for node in other.nodes if node.target is operator.mul
            ]


def test_a_block_that_uses_one_weight_twice_is_left_out() -> None:
    model = Layers(count=6)
    model.weights[2].b = model.weights[2].a
    with torch.no_grad():
        (family,) = check_outlined(model, torch.randn(2, 8))
    for block in family.blocks:
        uses = [node for node in block.nodes for each in node.all_input_nodes if "weights_2_a" in each.name]
        assert len(uses) <= 1


@pytest.mark.parametrize("change", ["stride", "dtype", "frozen"])
def test_a_block_whose_parameter_differs_is_left_out(change: str) -> None:
    model = Layers(lambda x, layer, at: plain(x, layer, at) * layer.b.sum().float(), count=6)
    weights: Any = model.weights[2]
    if change == "stride":
        weights.a = nn.Parameter(weights.a.detach().t().contiguous().t())
    if change == "frozen":
        weights.a.requires_grad_(False)
    if change == "dtype":
        weights.seen = weights.seen.double()
        model.layer = lambda x, layer, at: plain(x, layer, at) * layer.seen.sum().float()
    (family,) = check_outlined(model, torch.randn(2, 8, requires_grad=True))
    assert outside(family, "weights_2_" + ("seen" if change == "dtype" else "a"))


def refusal(fn: Callable[..., Any], *args: Any) -> str:
    with pytest.raises(CannotOutline) as raised:
        found(fn, *args)
    return str(raised.value)


@torch.no_grad()
def test_too_few_blocks_are_no_family() -> None:
    assert "often enough" in refusal(Layers(count=2), torch.randn(2, 8))


@torch.no_grad()
def test_blocks_of_too_few_operators_are_no_family() -> None:
    assert "often enough" in refusal(Layers(lambda x, layer, at: F.relu(F.linear(x, layer.a)), 3), torch.randn(2, 8))


@torch.no_grad()
def test_memory_that_is_written_to_enters_no_block() -> None:
    def counting(x: Any, layer: Any, at: int) -> Any:
        x = F.linear(F.silu(F.relu(F.gelu(x)) * 2), layer.a) + layer.seen
        layer.seen.add_(x.sum(0))
        return F.linear(torch.sigmoid(torch.tanh(x) - 1), layer.b)

    assert "written" in refusal(Layers(counting, 3), torch.randn(2, 8))


@torch.no_grad()
def test_a_view_of_an_input_leaves_no_block() -> None:
    def views(x: Any, layer: Any, at: int) -> Any:
        for shape in [(4, 4), (8, 2), (16,), (2, 2, 4), (4, 2, 2), (16, 1), (1, 16), (2, 4, 2), (2, 8)]:
            x = x.view(shape)
        return x

    assert "a view of an input leaves" in refusal(Layers(views), torch.randn(2, 8))


@torch.no_grad()
def test_results_of_a_block_share_no_memory() -> None:
    def pairs(x: Any, layer: Any, at: int) -> Any:
        a, b = x
        a = F.linear(F.relu(a) * 2 + F.silu(b), layer.a)
        a = F.linear(torch.tanh(a) - 1, layer.b)
        return a, a.view(1, 16).view(2, 8)

    def run(x: torch.Tensor) -> torch.Tensor:
        pair = (x, x + 1)
        for at, each in enumerate(model.weights):
            pair = pairs(pair, each, at)
        return pair[0] + pair[1]

    model = Layers()
    for family in check_outlined(run, torch.randn(2, 8)):
        for block in family.blocks:
            leaving = [block.nodes[at].meta["example_value"].untyped_storage()._cdata for at in family.results]
            assert len(set(leaving)) == len(leaving)


@torch.no_grad()
def test_modes_are_set_in_no_block() -> None:
    def autocast(x: Any, layer: Any, at: int) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return plain(x, layer, at)

    assert "often enough" in refusal(Layers(autocast), torch.randn(2, 8))


def test_where_a_border_costs_too_much_is_no_family() -> None:
    def pointwise(x: Any, layer: Any, at: int) -> Any:
        return torch.sin(torch.cos(torch.exp(torch.sigmoid(torch.tanh(x) * 2) - 1) * 3) - 4) * layer.a[0]

    with torch.no_grad(), pytest.raises(CannotOutline, match="border"):
        found(Layers(pointwise, 4), torch.randn(64, 8), limits=Limits(most_lost=0.05))
