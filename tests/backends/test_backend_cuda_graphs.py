"""CUDA graphs: loops that keep results replay, and the results are eager's, for good.

Each program runs on the CPU, over a stand-in for CUDA graphs, and on a GPU where there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from fake_cuda_graphs import FakeDevice

import torchdynamo
from torchdynamo.backends.cuda_graphs.device import DEVICES

pytestmark = pytest.mark.filterwarnings("error::torchdynamo.errors.FallbackWarning")
needs_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
Program = Callable[[Any], Any]
PROGRAMS: dict[str, tuple[Program, int]] = {}
KINDS = ["cpu", pytest.param("cuda", marks=needs_a_gpu)]
PLACE = {"device": "cpu"}


class Counted:
    """CUDA's own graphs, with their launches counted."""

    def __init__(self) -> None:
        self.launches = self.captures = 0


@pytest.fixture(params=KINDS)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    torchdynamo.reset()
    monkeypatch.setitem(PLACE, "device", request.param)
    if request.param == "cpu":
        found: Any = FakeDevice()
        monkeypatch.setitem(DEVICES, "cpu", found)
    else:
        found = Counted()
        count(monkeypatch, found, "replay", "launches")
        count(monkeypatch, found, "capture_begin", "captures")
    yield found
    torchdynamo.reset()


def count(monkeypatch: pytest.MonkeyPatch, counted: Counted, method: str, name: str) -> None:
    plain = getattr(torch.cuda.CUDAGraph, method)

    def counting(graph: Any, *args: Any, **kwargs: Any) -> Any:
        setattr(counted, name, getattr(counted, name) + 1)
        return plain(graph, *args, **kwargs)

    monkeypatch.setattr(torch.cuda.CUDAGraph, method, counting)


def net() -> tuple[torch.nn.Module, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4)).to(PLACE["device"])
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def batches(count: int = 10) -> list[torch.Tensor]:
    return [torch.full((2, 4), float(at), device=PLACE["device"]) for at in range(count)]


def program(least: int) -> Callable[[Program], Program]:
    """A program of `compile`, which gives what to compare, and how many launches of recordings there are at least."""

    def kept(fn: Program) -> Program:
        PROGRAMS[fn.__name__] = fn, least
        return fn

    return kept


@program(8)
def a_result_outlives_the_next_call(compile: Any) -> Any:
    run = compile(lambda x: x.sin() + 1)
    seen = []
    for x in batches():
        before = seen[-1] if seen else None
        y = run(x)
        seen += [y if before is None else before.clone(), y.clone()]
    return seen


@program(8)
def all_results_are_kept(compile: Any) -> Any:
    run = compile(lambda x: (x.sin(), {"cos": x.cos()}))
    return [run(x) for x in batches()]


@program(8)
def a_view_of_a_result_is_kept(compile: Any) -> Any:
    run = compile(lambda x: x.sin() + 1)
    return [run(x)[0, 1:] for x in batches()]


@program(8)
def results_share_memory(compile: Any) -> Any:
    def halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.exp()
        return y[:1], y

    run = compile(halves)
    kept = []
    for x in batches():
        half, whole = run(x)
        half.zero_()
        kept.append((half, whole))
    return kept


@program(8)
def results_are_conjugates(compile: Any) -> Any:
    def conjugates(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.complex(x, x + 1).exp()
        return y.conj(), y, y.conj().imag, torch.complex(x, x - 1).sin().conj()

    run = compile(conjugates)
    return [run(x) for x in batches()]


@program(8)
def a_result_is_written_to(compile: Any) -> Any:
    run = compile(lambda x: x.sin() + 1)
    kept = []
    for x in batches():
        kept.append(run(x))
        for each in kept:
            each.mul_(2)
    return kept


@program(16)
def one_feeds_the_other(compile: Any) -> Any:
    first, second = compile(lambda x: x.sin() + 1), compile(lambda x: x.exp() * 2)
    kept = []
    for x in batches():
        y = first(x)
        kept.append((y, second(y)))
    return kept


@program(16)
def a_loss_is_alive(compile: Any) -> Any:
    model, optimizer = net()
    run = compile(model)
    losses = []
    for x in batches():
        loss = run(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return losses, list(model.parameters())


@program(20)
def gradients_accumulate(compile: Any) -> Any:
    model, optimizer = net()
    run = compile(model)
    for at, x in enumerate(batches(12)):
        loss = run(x).square().mean()
        loss.backward()
        if at % 4 == 3:
            optimizer.step()
            optimizer.zero_grad(set_to_none=at != 7)
    return loss, list(model.parameters()), [each.grad for each in model.parameters()]


@program(16)
def gradients_are_kept(compile: Any) -> Any:
    model, _ = net()
    run = compile(model)
    return [torch.autograd.grad(run(x).square().mean(), list(model.parameters())) for x in batches()]


@program(28)
def two_forwards_before_their_backward(compile: Any) -> Any:
    model, _ = net()
    run = compile(model)
    for x in batches():
        (run(x).square().mean() + run(x + 1).square().mean()).backward()
    return [each.grad for each in model.parameters()]


@program(14)
def one_backward_of_two(compile: Any) -> Any:
    """Of each two forwards one has no backward; what it has saved goes with its result."""
    model, _ = net()
    run = compile(model)
    for x in batches():
        run(x)
        run(x + 1).square().mean().backward()
    return [each.grad for each in model.parameters()]


@program(8)
def forwards_without_a_backward(compile: Any) -> Any:
    """What was saved for a backward is alive, and its memory is not written to. Of five calls four replay."""
    model, _ = net()
    run = compile(model)
    y, kept = None, []
    for x in batches(30):
        y = run(x)
        kept.append(y.detach())
    y.sum().backward()
    return kept, [each.grad for each in model.parameters()]


@program(14)
def a_backward_is_run_twice(compile: Any) -> Any:
    model, _ = net()
    run = compile(model)
    for x in batches():
        loss = run(x).square().mean()
        loss.backward(retain_graph=True)
        loss.backward()
    return [each.grad for each in model.parameters()]


@program(0)
def what_is_saved_is_handed_to_somebody(compile: Any) -> Any:
    model, _ = net()
    run = compile(model)
    kept: list[Any] = []
    for x in batches():
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
            loss = run(x).square().mean()
        loss.backward()
    return [each.grad for each in model.parameters()]


@pytest.mark.parametrize("backend", ["inductor", "cudagraphs"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_eagers_for_good(device: Any, name: str, backend: str) -> None:
    run, least = PROGRAMS[name]
    want = run(lambda fn: fn)
    options = {"cudagraphs": True}
    got = run(lambda fn: torchdynamo.compile(fn, backend=backend, options=options))
    torch.testing.assert_close(got, want)
    assert device.launches >= least, device.launches


def compiled(fn: Any, **options: Any) -> Any:
    return torchdynamo.compile(fn, backend="cudagraphs", options={"cudagraphs": True, **options})


def test_a_loop_replays_from_the_fourth_call_on(device: Any) -> None:
    """The third is recorded, once for results that are copied and once for each of two places, and launched."""
    run = compiled(lambda x: x.sin() + 1)
    seen = []
    for x in batches(5):
        y = run(x)
        seen.append((device.captures, device.launches))
    assert torch.equal(y, batches(5)[-1].sin() + 1)
    assert seen == [(0, 0), (0, 0), (3, 1), (3, 2), (3, 3)]


def test_explain_says_what_became_of_each_graph(device: Any) -> None:
    told = torchdynamo.explain(lambda x: x.sin() + 1, backend="cudagraphs", options={"cudagraphs": True}, calls=5)
    found = told(batches(2)[1])
    assert found.cuda_graphs == [
        "graph 0: inference: 1 recording, 3 replays, plain calls: 2 (the first calls are watched)"
    ]
    assert "CUDA graphs" in str(found)


def test_many_sizes_make_few_recordings(device: Any) -> None:
    run = torchdynamo.compile(
        lambda x: x.sin() + 1, backend="cudagraphs", dynamic=True, options={"cudagraph_recordings": 4}
    )
    for _ in range(4):
        for size in range(2, 42):
            x = torch.full((size, 3), 0.5, device=PLACE["device"])
            assert torch.equal(run(x), x.sin() + 1)
    assert 0 < device.captures <= 4


def test_parameters_that_move_a_thousand_times_are_recorded_a_few_times(device: Any) -> None:
    model, _ = net()
    run = compiled(model)
    with torch.no_grad():
        for at in range(1000):
            for each in model.parameters():
                each.data = each.detach() + 0.001
            x = torch.full((2, 4), at / 1000, device=PLACE["device"])
            torch.testing.assert_close(run(x), model(x))
    assert device.captures <= 5
    assert device.launches > 900


def test_a_call_in_somebody_elses_capture_runs_plain(device: Any) -> None:
    run = compiled(lambda x: x.sin() + 1)
    for x in batches(5):
        run(x)
    launches = device.launches
    if PLACE["device"] == "cpu":
        device.capturing = True
        assert torch.equal(run(x), x.sin() + 1)
        device.capturing = False
    else:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = run(x)
        assert device.launches == launches
        graph.replay()
        launches += 1
        assert torch.equal(y, x.sin() + 1)
    assert device.launches == launches


def test_required_recordings_raise_where_there_are_none() -> None:
    torchdynamo.reset()
    for backend in ("inductor", "cudagraphs"):
        run = torchdynamo.compile(lambda x: x.sin() + 1, backend=backend, options={"cudagraphs": "required"})
        with pytest.raises(torchdynamo.exc.RecordingError, match="its inputs are on cpu"):
            run(torch.ones(3))
    torchdynamo.reset()


def test_required_recordings_raise_for_a_call_that_cannot_replay(device: Any) -> None:
    model, _ = net()
    run = torchdynamo.compile(model, backend="cudagraphs", options={"cudagraphs": "required"})
    for x in batches(4):
        run(x).sum().backward()
    with pytest.raises(torchdynamo.exc.RecordingError, match="retain_graph=True"):
        run(x).sum().backward(retain_graph=True)


def test_dropout_draws_as_in_eager(device: Any) -> None:
    run = compiled(lambda x: torch.nn.functional.dropout(x, 0.5) + 1)
    x = torch.ones(64, device=PLACE["device"])
    for draw in (run, lambda x: torch.nn.functional.dropout(x, 0.5) + 1):
        torch.manual_seed(3)
        kept = [draw(x) for _ in range(6)]
        if draw is run:
            first = kept
    assert all(map(torch.equal, first, kept))
    assert not torch.equal(kept[4], kept[5])


def test_a_cache_that_keeps_its_address_is_not_copied(device: Any) -> None:
    """And a larger one in its place is recorded anew."""

    def step(cache: torch.Tensor, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        cache.index_copy_(0, at, x)
        return cache.sum(0)

    run = compiled(step)
    for size in (8, 16):
        mine, theirs = (torch.zeros(size, 4, device=PLACE["device"]) for _ in range(2))
        for number in range(8):
            at = torch.tensor([number], device=PLACE["device"])
            x = torch.full((1, 4), float(number), device=PLACE["device"])
            assert torch.equal(run(mine, x, at), step(theirs, x, at))
            assert torch.equal(mine, theirs)
    assert device.captures <= 4  # an address may be another's by chance
    assert device.launches >= 10


def test_a_training_step_is_one_recording(device: Any) -> None:
    """Forward, backward and an update in one compiled function."""

    def make(compile: Any) -> Any:
        model, _ = net()

        def step(x: torch.Tensor) -> torch.Tensor:
            loss = model(x).square().mean()
            gradients = torch.autograd.grad(loss, [*model.parameters()])
            with torch.no_grad():
                for each, gradient in zip(model.parameters(), gradients, strict=True):
                    each.sub_(gradient, alpha=0.1)
            return loss.detach()

        run = compile(step)
        return [run(x) for x in batches()], [each.detach() for each in model.parameters()]

    want, got = make(lambda fn: fn), make(lambda fn: torchdynamo.compile(fn, fullgraph=True, backend="cudagraphs"))
    torch.testing.assert_close(got, want)
    assert (device.captures, device.launches) == (1, 8)


@pytest.mark.parametrize("backend", ["inductor", "cudagraphs"])
def test_inputs_are_written_to_and_returned(device: Any, backend: str) -> None:
    def fn(x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        state.add_(x.sum())
        x.mul_(2)
        return x, x[0], state, state.t(), x + state

    run = torchdynamo.compile(fn, backend=backend, options={"cudagraphs": True})
    mine, theirs = torch.zeros(2, 2, device=PLACE["device"]), torch.zeros(2, 2, device=PLACE["device"])
    kept = []
    for at in range(8):
        x, y = (torch.full((2, 2), float(at), device=PLACE["device"]) for _ in range(2))
        got, want = run(x, mine), fn(y, theirs)
        assert got[0] is x and got[2] is mine
        got[1].add_(1)
        want[1].add_(1)
        kept.append((got, want))
    for got, want in kept:
        torch.testing.assert_close(got, want)
    assert device.launches == 6
