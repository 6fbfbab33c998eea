"""Training on a GPU: optimizers in all their ways, mixed precision, random numbers, and memory."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from pictures import assert_alike
from training import as_it_is, compiled, named

import torchdynamo
from torchdynamo.errors import FallbackWarning
from torchdynamo.report.explain import collecting

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
F = torch.nn.functional
Program = Callable[[Any], Any]
PROGRAMS: dict[str, Program] = {}
program = named(PROGRAMS)


class Net(torch.nn.Module):
    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Dropout(drop)
        )
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.body(x).mean((2, 3)))
        return result


def batches(count: int = 20) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(7)
    for _ in range(count):
        x, y = torch.randn(4, 3, 6, 6, generator=generator), torch.randint(5, (4,), generator=generator)
        yield x.cuda(), y.cuda()


def state(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[Any]:
    grads = [p.grad for p in model.parameters()]
    return [*model.state_dict().values(), grads, optimizer.state_dict()["state"], torch.cuda.get_rng_state()]


def trained(compile: Any, step: Callable[..., Any], model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    losses = [compile(step)(x, y) for x, y in batches()]
    return losses, state(model, optimizer)


def whole_step(compile: Any, optimizer_of: Callable[..., torch.optim.Optimizer], drop: float = 0.0) -> Any:
    model = Net(drop).cuda()
    optimizer = optimizer_of(model.parameters())

    def train_step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return trained(compile, train_step, model, optimizer)


WAYS: list[dict[str, Any]] = [{"foreach": False}, {"foreach": True}, {"fused": True}]
CAPTURABLE = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Rprop", "ASGD", "Adadelta", "RMSprop")
ROWS = [
    *((name, way) for name in ("SGD", "Adam", "AdamW") for way in WAYS),
    *((name, {"capturable": True, "foreach": foreach}) for name in CAPTURABLE for foreach in (False, True)),
    *((name, {"capturable": True, "fused": True}) for name in ("Adam", "AdamW")),
]


@pytest.mark.parametrize(("name", "way"), ROWS, ids=lambda row: str(row).replace(" ", ""))
def test_optimizers(name: str, way: dict[str, Any]) -> None:
    agrees(lambda compile: whole_step(compile, lambda params: getattr(torch.optim, name)(params, lr=0.01, **way)))


@program
def dropout(compile: Any) -> Any:
    return whole_step(compile, lambda params: torch.optim.SGD(params, lr=0.1), drop=0.3)


@program
def float16_with_a_scaler(compile: Any) -> Any:
    model = Net().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**20, growth_interval=4)

    def train_step(x: torch.Tensor, y: torch.Tensor) -> Any:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach(), norm, scaler.get_scale()

    return trained(compile, train_step, model, optimizer)


@program
def bfloat16_around(compile: Any) -> Any:
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    forward = compile(model)
    losses = []
    for x, y in batches():
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(forward(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, state(model, optimizer)


@program
def checkpointed(compile: Any) -> Any:
    model = Net(0.2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        hidden = torch.utils.checkpoint.checkpoint(model.body, x, use_reentrant=False)
        loss = F.cross_entropy(model.head(hidden.mean((2, 3))), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return trained(compile, train_step, model, optimizer)


@program
def batches_that_are_moved(compile: Any) -> Any:
    """From pinned memory, by a stream of their own."""
    model = Net().cuda()
    optimizer = torch.optim.Adam(model.parameters())
    stream = torch.cuda.Stream()

    def train_step(x: torch.Tensor, y: torch.Tensor) -> Any:
        device = next(model.parameters()).device
        with torch.cuda.stream(stream):
            x, y = x.to(device, non_blocking=True), y.cuda(non_blocking=True)
        torch.cuda.current_stream().wait_stream(stream)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        return loss.item(), x.get_device(), x.is_cuda, torch.cuda.current_device()

    step = compile(train_step)
    losses = [step(x.cpu().pin_memory(), y.cpu().pin_memory()) for x, y in batches()]
    return losses, state(model, optimizer)


@program
def random_numbers(compile: Any) -> Any:
    def draw(x: torch.Tensor) -> Any:
        noise = torch.randn_like(x) + torch.rand(4, 1, 1, 1, device="cuda")
        keep = torch.bernoulli(torch.full_like(x, 0.5))
        return F.dropout(x * keep, 0.4) + noise, torch.randperm(7, device=x.device)

    step = compile(draw)
    return [step(x) for x, _ in batches(6)], torch.cuda.get_rng_state()


@program
def averaged(compile: Any) -> Any:
    model = Net().cuda()
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        average.update_parameters(model)
        return loss.detach()

    return trained(compile, train_step, model, optimizer), list(average.state_dict().values())


def agrees(program: Program) -> None:
    torchdynamo.reset()
    torch.manual_seed(5)
    expected = program(as_it_is)
    torch.manual_seed(5)
    with warnings.catch_warnings(), collecting() as events:
        warnings.simplefilter("error", FallbackWarning)
        actual = program(compiled())
    assert_alike(expected, actual)
    assert any(event.ops for event in events)


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_to_the_bit(name: str) -> None:
    agrees(PROGRAMS[name])


def peak(compile: Any, step_of: Callable[[Any], Callable[[torch.Tensor], None]]) -> int:
    """The most memory that a step takes, in bytes, over what is there before."""
    torchdynamo.reset()
    torch.manual_seed(5)
    model = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU()) for _ in range(8)))
    step = compile(step_of(model.cuda()))
    x = torch.randn(8192, 256, device="cuda")
    for _ in range(3):
        step(x)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step(x)
    return torch.cuda.max_memory_allocated() - before


def plain(model: Any) -> Any:
    def step(x: torch.Tensor) -> None:
        model(x).pow(2).mean().backward()
        for p in model.parameters():
            p.grad = None

    return step


def recomputed(model: Any) -> Any:
    def step(x: torch.Tensor) -> None:
        for layer in model:
            x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
        x.pow(2).mean().backward()
        for p in model.parameters():
            p.grad = None

    return step


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("step_of", [plain, recomputed])
def test_no_more_memory_than_eager(step_of: Any, backend: str) -> None:
    eager = peak(as_it_is, step_of)
    assert peak(compiled(backend), step_of) <= 1.1 * eager
    assert peak(compiled(backend), recomputed) < 0.8 * peak(as_it_is, plain)


def test_a_model_is_moved() -> None:
    """What was compiled for one device is not used on the other."""
    model = Net().eval()
    fast, x = torchdynamo.compile(model, backend="aot_eager"), torch.randn(2, 3, 6, 6)
    for device in ("cpu", "cuda", "cpu"):
        model.to(device)
        want, got = copy.deepcopy(model)(x.to(device)), fast(x.to(device))
        assert got.device.type == device and torch.equal(want, got)
