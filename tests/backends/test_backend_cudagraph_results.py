"""mode="reduce-overhead": loops that keep results replay, and the results are eager's, for good."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from fake_trees import Trees
from torch._inductor import compile_fx, cudagraph_trees

import torchdynamo
from torchdynamo.backends.cudagraph_results import copied_out

needs_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
pytestmark = pytest.mark.filterwarnings("error::torchdynamo.errors.FallbackWarning")
Program = Callable[[Any, Any], Any]
PROGRAMS: dict[str, tuple[Program, int]] = {}


@pytest.fixture
def trees(monkeypatch: pytest.MonkeyPatch) -> Trees:
    """Stand-ins for recordings round what Inductor compiles for the CPU."""
    torchdynamo.reset()
    PARAMETERS.clear()
    found = Trees()
    compile_inner = compile_fx.compile_fx_inner

    def recorded(gm: Any, example_inputs: Any, **kwargs: Any) -> Any:
        compiled = compile_inner(gm, example_inputs, **kwargs)
        kwargs["cudagraphs"].value = True
        compiled.device_idxs = {0}
        compiled.current_callable = found.wrap(compiled.current_callable, PARAMETERS)
        return compiled

    monkeypatch.setattr(compile_fx, "compile_fx_inner", recorded)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(cudagraph_trees, "get_manager", lambda device, create_if_none_exists: found)
    return found


PARAMETERS: set[int] = set()
DEVICE = {"models": "cpu"}


class RealTrees:
    """The same on a GPU: counts launches of recordings, and begins a step as users do."""

    def __init__(self) -> None:
        self.launches = 0

    @property
    def step(self) -> int:
        return 0

    @step.setter
    def step(self, to: int) -> None:
        torch.compiler.cudagraph_mark_step_begin()


@pytest.fixture
def real_trees(monkeypatch: pytest.MonkeyPatch) -> Iterator[RealTrees]:
    torchdynamo.reset()
    found = RealTrees()
    launch = torch.cuda.CUDAGraph.replay

    def counted(graph: Any) -> None:
        found.launches += 1
        launch(graph)

    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", counted)
    monkeypatch.setitem(DEVICE, "models", "cuda")
    yield found
    torchdynamo.reset()
    cudagraph_trees.reset_cudagraph_trees()


def net() -> tuple[torch.nn.Module, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4)).to(DEVICE["models"])
    PARAMETERS.clear()
    PARAMETERS.update(each.untyped_storage().data_ptr() for each in model.parameters())
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def batches(count: int = 10) -> list[torch.Tensor]:
    return [torch.full((2, 4), float(at), device=DEVICE["models"]) for at in range(count)]


def program(plain: int) -> Callable[[Program], Program]:
    """A program of `compile`, which gives what to compare, and how many of its last calls do not replay."""

    def kept(fn: Program) -> Program:
        PROGRAMS[fn.__name__] = fn, plain
        return fn

    return kept


@program(0)
def a_result_outlives_the_next_call(compile: Any, trees: Any) -> Any:
    run = compile(lambda x: x.sin() + 1)
    seen = []
    for x in batches():
        before = seen[-1] if seen else None
        y = run(x)
        seen += [y if before is None else before.clone(), y.clone()]
    return seen


@program(0)
def all_results_are_kept(compile: Any, trees: Any) -> Any:
    run = compile(lambda x: (x.sin(), {"cos": x.cos()}))
    return [run(x) for x in batches()]


@program(0)
def a_view_of_a_result_is_kept(compile: Any, trees: Any) -> Any:
    run = compile(lambda x: x.sin() + 1)
    return [run(x)[0, 1:] for x in batches()]


@program(0)
def results_share_memory(compile: Any, trees: Any) -> Any:
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


@program(0)
def a_result_is_written_to(compile: Any, trees: Any) -> Any:
    run = compile(lambda x: x.sin() + 1)
    kept = []
    for x in batches():
        kept.append(run(x))
        for each in kept:
            each.mul_(2)
    return kept


@program(0)
def one_feeds_the_other(compile: Any, trees: Any) -> Any:
    first, second = compile(lambda x: x.sin() + 1), compile(lambda x: x.exp() * 2)
    kept = []
    for x in batches():
        y = first(x)
        kept.append((y, second(y)))
    return kept


@program(0)
def a_loss_is_alive(compile: Any, trees: Any) -> Any:
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


@program(0)
def gradients_accumulate(compile: Any, trees: Any) -> Any:
    model, optimizer = net()
    run = compile(model)
    for at, x in enumerate(batches(12)):
        loss = run(x).square().mean()
        loss.backward()
        if at % 4 == 3:
            optimizer.step()
            optimizer.zero_grad(set_to_none=at != 7)
    return loss, list(model.parameters()), [each.grad for each in model.parameters()]


@program(0)
def gradients_are_kept(compile: Any, trees: Any) -> Any:
    model, _ = net()
    run = compile(model)
    return [torch.autograd.grad(run(x).square().mean(), list(model.parameters())) for x in batches()]


@program(0)
def two_forwards_before_their_backward(compile: Any, trees: Any) -> Any:
    model, _ = net()
    run = compile(model)
    for x in batches():
        (run(x).square().mean() + run(x + 1).square().mean()).backward()
    return [each.grad for each in model.parameters()]


@program(0)
def one_backward_of_two(compile: Any, trees: Any) -> Any:
    """Of each two forwards one has no backward; what it has saved goes with its result."""
    model, _ = net()
    run = compile(model)
    for x in batches():
        run(x)
        run(x + 1).square().mean().backward()
    return [each.grad for each in model.parameters()]


@program(6)
def forwards_without_a_backward(compile: Any, trees: Any) -> Any:
    """What was saved for a backward is alive, and its memory is not written to. Of five calls four replay."""
    model, _ = net()
    run = compile(model)
    y, kept = None, []
    for x in batches(30):
        y = run(x)
        kept.append(y.detach())
    y.sum().backward()
    return kept, [each.grad for each in model.parameters()]


@program(30)
def a_backward_is_run_twice(compile: Any, trees: Any) -> Any:
    model, _ = net()
    run = compile(model)
    for x in batches():
        loss = run(x).square().mean()
        loss.backward(retain_graph=True)
        loss.backward()
    return [each.grad for each in model.parameters()]


@program(30)
def what_is_saved_is_handed_to_somebody(compile: Any, trees: Any) -> Any:
    model, _ = net()
    run = compile(model)
    kept: list[Any] = []
    for x in batches():
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
            loss = run(x).square().mean()
        loss.backward()
    return [each.grad for each in model.parameters()]


@program(30)
def a_step_begins_while_a_backward_is_pending(compile: Any, trees: Any) -> Any:
    """`torch.compiler.cudagraph_mark_step_begin`, or a call of torch.compile's, in a bad place."""
    model, _ = net()
    run = compile(model)
    for x in batches():
        loss = run(x).square().mean()
        trees.step += 1
        other = run(x + 1).square().mean()
        trees.step += 1
        loss.backward()
        other.backward()
    return [each.grad for each in model.parameters()]


@program(0)
def a_step_begins_in_its_place(compile: Any, trees: Any) -> Any:
    model, _ = net()
    run = compile(model)
    for x in batches():
        trees.step += 1
        loss = run(x).square().mean()
        loss.backward()
    return loss, [each.grad for each in model.parameters()]


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_eagers_for_good(trees: Trees, name: str) -> None:
    run, plain = PROGRAMS[name]
    want = run(lambda fn: fn, Trees())
    got = run(lambda fn: torchdynamo.compile(fn, mode="reduce-overhead"), trees)
    torch.testing.assert_close(got, want)
    assert trees.overwritten == 0
    rest = trees.ran[len(trees.ran) // 2 :]
    assert rest and sum(each != "replay" for each in rest) <= plain, " ".join(trees.ran)


@needs_a_gpu
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_eagers_for_good_on_a_gpu(real_trees: RealTrees, name: str) -> None:
    run, plain = PROGRAMS[name]
    want = run(lambda fn: fn, Trees())
    got = run(lambda fn: torchdynamo.compile(fn, mode="reduce-overhead"), real_trees)
    torch.testing.assert_close(got, want)
    assert real_trees.launches >= (0 if plain == 30 else 8)


def test_a_loop_replays_from_the_third_call_on(trees: Trees) -> None:
    a_result_outlives_the_next_call(lambda fn: torchdynamo.compile(fn, mode="reduce-overhead"), trees)
    assert trees.ran == ["warm", "record", *["replay"] * 8]


def test_training_replays_from_the_third_step_on(trees: Trees) -> None:
    a_loss_is_alive(lambda fn: torchdynamo.compile(fn, mode="reduce-overhead"), trees)
    assert trees.ran == ["warm", "warm", "record", "record", *["replay"] * 16]


def test_other_modes_record_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    monkeypatch.setattr(cudagraph_trees, "get_manager", lambda *args, **kwargs: called.append(args))
    run = torchdynamo.compile(lambda x: x.sin() + 1, mode="reduce-overhead")  # which has no GPU to record on
    assert torch.equal(run(torch.zeros(2)), torch.ones(2))
    assert not called


LAYOUTS: dict[str, Callable[[torch.Tensor], list[torch.Tensor]]] = {
    "whole": lambda memory: [memory.view(3, 4)],
    "turned": lambda memory: [memory.view(3, 4).t()],
    "a part": lambda memory: [memory[2:8:2]],
    "expanded": lambda memory: [memory[:1].expand(5)],
    "two of one": lambda memory: [memory.view(3, 4)[1], memory],
    "another type": lambda memory: [memory.view(torch.int32), memory],
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_copies_lie_as_what_they_are_copies_of(name: str) -> None:
    memory, other = torch.arange(12.0), torch.ones(2)
    results = [*LAYOUTS[name](memory), 3, None, other]
    address = frozenset({memory.untyped_storage().data_ptr()})
    copies = copied_out(results, address)
    assert copies[-3:] == [3, None, other] and copies[-1] is other
    for mine, theirs in zip(copies[:-3], results[:-3], strict=True):
        assert torch.equal(mine, theirs)
        assert (mine.stride(), mine.storage_offset(), mine.dtype) == (
            theirs.stride(),
            theirs.storage_offset(),
            theirs.dtype,
        )
        assert mine.untyped_storage().data_ptr() != theirs.untyped_storage().data_ptr()
    assert len({each.untyped_storage().data_ptr() for each in copies[:-3]}) == 1
    assert copied_out(results, frozenset()) == results


def test_results_are_let_go_of() -> None:
    memory = torch.arange(12.0)
    gone = weakref.ref(memory)
    copies = copied_out([memory], frozenset({memory.untyped_storage().data_ptr()}))
    del memory
    assert gone() is None and len(copies) == 1
