"""Parameters as constants under Inductor's option "freezing": folded and padded, followed when they change."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from fake_cuda_graphs import FakeDevice
from torch import nn
from torch._inductor.utils import run_and_get_code
from torch.utils import _pytree as pytree

import torchdynamo
from torchdynamo.backends import freezing
from torchdynamo.backends.cuda_graphs.device import DEVICES
from torchdynamo.graph.passes import padded_columns

F = nn.functional
FROZEN: dict[str, Any] = {"options": {"freezing": True}}
X = torch.linspace(-1, 1, 2 * 3 * 8 * 8).view(2, 3, 8, 8)


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    torchdynamo.reset()
    torch.manual_seed(0)
    yield
    torchdynamo.reset()


def net() -> nn.Sequential:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)).eval()
    model[1].running_mean.normal_()
    return model


def check(fn: Callable[..., Any], model: Callable[..., Any], *args: Any) -> Any:
    got, want = fn(*args), model(*args)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
    assert got.stride() == want.stride() and got.requires_grad == want.requires_grad
    return got


def mentions(fn: Callable[..., Any], *args: Any) -> list[str]:
    """The lines of `explain` on rewrites."""
    text = str(torchdynamo.explain(fn, backend="inductor", **FROZEN)(*args))
    return [" ".join(each.split()) for each in text.partition("\nRewrites\n")[2].splitlines()]


@torch.no_grad()
def test_batch_norms_are_folded_into_convolutions() -> None:
    model = net()
    fn = torchdynamo.compile(model, **FROZEN)
    _, code = run_and_get_code(fn, X)
    assert "sqrt" not in "".join(code)
    check(fn, model, X)
    assert "sqrt" in "".join(run_and_get_code(torchdynamo.compile(lambda x: model(x)), X)[1])
    torchdynamo.reset()
    assert mentions(model, X) == ["graph 0: parameters: 8 constants, 0.0 MiB"]


def load(model: Any) -> None:
    model.load_state_dict({name: torch.full_like(each, 0.5) for name, each in model.state_dict().items()})


def rebind(model: Any) -> None:
    model[4].weight = nn.Parameter(torch.ones_like(model[4].weight))


def other_data(model: Any) -> None:
    model[0].weight.data = torch.ones_like(model[0].weight)


def in_place(model: Any) -> None:
    model[1].running_mean.add_(1)


def step(model: Any) -> None:
    with torch.enable_grad():
        model(X).sum().backward()
    torch.optim.SGD(model.parameters(), 0.1).step()


@torch.no_grad()
def test_changes_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freezing, "MOST_REBUILDS", 9)
    model = net()
    fn = torchdynamo.compile(model, **FROZEN)
    before = check(fn, model, X)
    for change in (load, rebind, other_data, in_place, step):
        change(model)
        after = check(fn, model, X)
        assert not torch.equal(after, before), change.__name__
        before = check(fn, model, X)


@torch.no_grad()
def test_changes_end_in_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []
    built = freezing.WithConstants.built
    monkeypatch.setattr(freezing.WithConstants, "built", lambda *args: counted.append(1) or built(*args))
    model = nn.Linear(4, 4)
    fn = torchdynamo.compile(model, **FROZEN)
    for _ in range(8):
        check(fn, model, torch.ones(2, 4))
        model.weight.add_(1)
    assert len(counted) == 1 + freezing.MOST_REBUILDS


def test_a_model_that_is_trained_has_gradients() -> None:
    model = nn.Linear(4, 4)
    fn = torchdynamo.compile(model, **FROZEN)
    for _ in range(3):
        with torch.no_grad():
            check(fn, model, torch.ones(2, 4))
        fn(torch.ones(2, 4)).sum().backward()
        torch.optim.SGD(model.parameters(), 0.1).step()
    assert model.weight.grad is not None and torch.equal(model.weight.grad, torch.full((4, 4), 6.0))


@torch.no_grad()
def test_results_in_the_memory_of_parameters() -> None:
    model = nn.Linear(4, 4)

    def fn(x: Any) -> Any:
        return x @ model.weight, model.weight.t(), model.bias

    transposed, bias = torchdynamo.compile(fn, **FROZEN)(torch.ones(2, 4))[1:]
    assert bias is model.bias and transposed.data_ptr() == model.weight.data_ptr()
    transposed.fill_(3)
    assert (model.weight == 3).all()


@torch.no_grad()
@pytest.mark.parametrize(
    "computed",
    [
        lambda model: model.weight * 2,
        lambda model: model.weight.t().contiguous(),
        lambda model: model.weight.clone(),
        lambda model: (model.weight * 2).unbind(),
        lambda model: (model.weight + model.bias)[1:].sum(0),
    ],
)
def test_results_that_are_computed_of_parameters_alone_are_new_in_each_call(computed: Callable[[Any], Any]) -> None:
    check_new(lambda model, x: computed(model), dynamic=False)


@torch.no_grad()
@pytest.mark.parametrize("dynamic", [False, True])
def test_results_of_parameters_and_the_sizes_of_an_input_are_new_in_each_call(dynamic: bool) -> None:
    def computed(model: Any, x: Any) -> Any:
        bias, weight = model.bias * 2, (model.weight * 2).type_as(x)
        views = bias.expand_as(x), weight[:, ::2], (model.weight * 3).unfold(0, 3, 1).to(x)
        parts = (model.weight * 4).type_as(x).split(2)
        return views, parts, weight, bias.repeat(x.shape[0], 1).view_as(x), torch.cat([bias.expand_as(x), weight])

    check_new(computed, dynamic=dynamic)


def check_new(computed: Callable[..., Any], dynamic: bool) -> None:
    model = nn.Linear(4, 4)
    fn = torchdynamo.compile(lambda x: (model(x), computed(model, x)), dynamic=dynamic, **FROZEN)
    x = torch.ones(3, 4)
    want = computed(model, x)
    for _ in range(3):
        got = fn(x)[1]
        torch.testing.assert_close(got, want)
        for one, other in zip(pytree.tree_leaves(got), pytree.tree_leaves(want), strict=True):
            assert not one.requires_grad and one.storage_offset() == other.storage_offset()
            assert one.stride() == other.stride()
            one.untyped_storage().fill_(0)
            one.requires_grad_()


@torch.no_grad()
def test_what_a_graph_has_computed_of_parameters_can_be_written_to_after_it() -> None:
    model = nn.Linear(4, 4)

    def fn(x: Any) -> Any:
        doubled = model.weight * 2
        print(end="")
        doubled.add_(1)
        return x @ doubled

    compiled = torchdynamo.compile(fn, **FROZEN)
    for _ in range(3):
        check(compiled, fn, torch.ones(2, 4))


@torch.no_grad()
def test_a_graph_that_writes_has_its_parameters_as_inputs() -> None:
    weight = torch.ones(4)

    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", weight)

        def forward(self, x: Any) -> Any:
            x.mul_(2)
            return x + self.weight

    model = Writes()
    fn = torchdynamo.compile(model, **FROZEN)
    fn(torch.ones(4))
    assert torch.equal(fn(model.weight), torch.full((4,), 4.0)) and torch.equal(weight, torch.full((4,), 2.0))
    with torch.inference_mode():
        made = nn.Linear(4, 4)
        check(torchdynamo.compile(made, **FROZEN), made, torch.ones(2, 4))


@torch.no_grad()
def test_the_model_can_die() -> None:
    model = nn.Linear(4, 4)
    fn = torchdynamo.compile(lambda model, x: model(x), **FROZEN)
    fn(model, torch.ones(2, 4))
    gone = weakref.ref(model.weight)
    del model
    gc.collect()
    assert gone() is None


def held(size: int) -> int:
    """How many tensors are alive one of whose dimensions has this size."""
    gc.collect()
    return sum(type(each) in (torch.Tensor, nn.Parameter) and size in each.shape for each in gc.get_objects())


@torch.no_grad()
@pytest.mark.parametrize("recorded", [False, True])
def test_constants_die_with_what_was_compiled(recorded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DEVICES, "cpu", FakeDevice())
    options = {"freezing": True, "cudagraphs": recorded}
    model = nn.Sequential(nn.Conv2d(3, 517, 3), nn.BatchNorm2d(517), nn.Flatten(1, 2), nn.Linear(6, 523)).eval()
    fn = torchdynamo.compile(model, options=options)
    for _ in range(6):
        fn(X)
    once = held(517), held(523)
    for _ in range(2):
        model[3].weight.mul_(2)
        for _ in range(6):
            fn(X)
    assert (held(517), held(523)) == once
    del model, fn
    assert (held(517), held(523)) == (0, 0)


@torch.no_grad()
def test_buffers_prove_what_masks_are() -> None:
    class Causal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.ones(8, 8).tril())

        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return (q @ k.mT / 2).masked_fill(self.mask[:4, :4] == 0, float("-inf")).softmax(-1) @ v

    model, given = Causal(), [torch.randn(1, 2, 4, 4) for _ in range(3)]
    lines = mentions(model, *given)
    assert "is_causal" in " ".join(lines), lines
    fn = torchdynamo.compile(model, **FROZEN)
    check(fn, model, *given)
    model.mask.fill_(1)
    check(fn, model, *given)


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(513, 8)), nn.Parameter(torch.randn(513))

    def forward(self, x: Any) -> Any:
        one = F.linear(x, self.weight, bias=self.bias)
        return one.sin_(), torch.matmul(x, self.weight.t()).view(-1), x @ self.weight.T, F.linear(x, self.weight * 2)


@torch.no_grad()
def test_odd_columns_are_padded_with_the_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(padded_columns, "gains", lambda node: padded_columns.example(node).shape[-1] == 513)
    model = Head()
    fn = torchdynamo.compile(model, **FROZEN)  # for the second size, for all sizes
    x = torch.randn(3, 8)
    _, code = run_and_get_code(fn, x)
    assert "520" in "".join(code)
    for given in (x, torch.randn(5, 8)):
        for got, want in zip(fn(given), model(given), strict=True):
            torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
            assert got.stride() == want.stride()
    torchdynamo.reset()
    lines = " ".join(mentions(model, x))
    assert lines.count("513 columns padded to 520") == 2  # what the fourth weight is computed of is not looked at
    assert "with the weight (2 times)" in lines


@torch.no_grad()
def test_recorded_graphs_have_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice()
    monkeypatch.setitem(DEVICES, "cpu", device)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    fn = torchdynamo.compile(model, options={"freezing": True, "cudagraphs": True})
    kept = [check(fn, model, torch.full((2, 4), float(at))) for at in range(8)]
    launches = device.launches
    assert launches > 2
    model[0].weight.mul_(2)
    for at in range(8):
        check(fn, model, torch.full((2, 4), float(at)))
    assert device.launches > launches
    assert not torch.equal(kept[1], kept[2])
