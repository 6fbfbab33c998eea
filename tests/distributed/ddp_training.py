"""Run as one of two ranks: `ddp_training.py RANK FOLDER [CASE ...]` trains under DDP, compiled and not, and compares.

Losses and parameters have to be equal, bit for bit (with second derivatives, but for rounding), after each step. The
compiler is put on the module that DDP wraps, on DDP, on the whole step, on each block, and on the module when it has
run before it is wrapped.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import torchdynamo

TIMEOUT = timedelta(seconds=25)
WIDTH, ROWS, STEPS = 48, 8, 4


class Block(nn.Module):
    def __init__(self, normed: bool = False, again: bool = False) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH) if normed else nn.LayerNorm(WIDTH)
        self.up, self.down, self.again = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH), again

    def inner(self, x):
        return self.down(torch.nn.functional.gelu(self.up(self.norm(x))))

    def forward(self, x):
        return x + (checkpoint(self.inner, x, use_reentrant=False) if self.again else self.inner(x))


class Model(nn.Module):
    def __init__(self, tied: bool = False, spare: bool = False, **kinds: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(**kinds) for _ in range(3))
        self.head = nn.Linear(WIDTH, WIDTH, bias=False)
        self.tail = nn.Linear(WIDTH, WIDTH) if spare else None
        self.calls = 0
        if tied:
            self.head.weight = self.first = nn.Parameter(torch.randn(WIDTH, WIDTH) / 7)
        else:
            self.first = None

    def forward(self, x, with_tail=False):
        if self.first is not None:
            x = x @ self.first
        for block in self.blocks:
            x = block(x)
        x = self.head(x)
        return self.tail(x) if with_tail and self.tail is not None else x


def loss_of(out):
    return out.pow(2).mean()


class Trained(NamedTuple):
    """What a step gets: what is called, DDP, the module in it, the optimizer, the step's number, and its input."""

    run: Any
    ddp: Any
    module: Any
    optimizer: Any
    number: int
    x: torch.Tensor


# -- steps ------------------------------------------------------------------------------------------------------------
def plainly(t: Trained):
    loss = loss_of(t.run(t.x))
    loss.backward()
    return loss


def accumulating(t: Trained):
    with t.ddp.no_sync():
        for _ in range(2):
            loss_of(t.run(t.x)).backward()
    return plainly(t)


def under_autocast(t: Trained):
    with torch.autocast("cpu", torch.bfloat16):
        loss = loss_of(t.run(t.x)).float()
    loss.backward()
    return loss


def kept(t: Trained):
    loss = loss_of(t.run(t.x))
    with t.ddp.no_sync():
        loss.backward(retain_graph=True)
    loss.backward()
    return loss


def twice_differentiated(t: Trained):
    with t.ddp.no_sync():
        x = t.x.clone().requires_grad_()
        out = t.run(x)
        (slope,) = torch.autograd.grad(loss_of(out), x, create_graph=True)
        slope.pow(2).sum().backward()
    return plainly(t)


def of_some(t: Trained):
    x = t.x.clone().requires_grad_()
    with t.ddp.no_sync():
        found = torch.autograd.grad(loss_of(t.run(x)), [x, t.module.blocks[1].up.weight])
    return plainly(t) + sum(each.sum() for each in found)


def with_lengths(t: Trained):
    rows = ROWS + (t.number % 3 if dist.get_rank() else t.number % 2)
    loss = loss_of(t.run(t.x[:1].expand(rows, -1) * 2))
    loss.backward()
    return loss


def now_and_then(t: Trained):
    loss = loss_of(t.run(t.x, t.number % 2 == 0))
    loss.backward()
    return loss


def freezing(t: Trained):
    if t.number == 3:
        t.module.blocks[0].norm.requires_grad_(False)
    return plainly(t)


def looking(t: Trained):
    with torch.no_grad():
        before = loss_of(t.run(t.x))
    return plainly(t) + before


# -- what is done to a module ------------------------------------------------------------------------------------------
def hook_parameters(module: Any, ddp: Any) -> None:
    for each in module.parameters():
        each.register_hook(lambda grad: grad * 2)


def hook_after(module: Any, ddp: Any) -> None:
    module.seen = []
    for each in module.blocks.parameters():
        each.register_post_accumulate_grad_hook(lambda leaf: module.seen.append(tuple(leaf.shape)))


def hook_communication(module: Any, ddp: Any) -> None:
    def hook(state, bucket):
        halves = bucket.buffer().to(torch.bfloat16).div_(2)
        done = dist.all_reduce(halves, async_op=True).get_future()
        return done.then(lambda found: bucket.buffer().copy_(found.value()[0]))

    ddp.register_comm_hook(None, hook)


def ignore_some(module: Any, ddp: Any) -> None:
    names = ["blocks.1.up.weight"]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, names)


class Case(NamedTuple):
    """A model, how DDP is made, what a step does, and what is done to the module before and after it is wrapped."""

    model: Callable[[], nn.Module] = Model
    ddp: dict[str, Any] = {"bucket_cap_mb": 0.03}
    step: Callable[[Trained], Any] = plainly
    before: Callable[[Any, Any], None] | None = None
    after: Callable[[Any, Any], None] | None = None
    rounds: bool = False  # gradients are summed in another order


SMALL = {"bucket_cap_mb": 0.03}
CASES = {
    "small buckets": Case(),
    "tiny buckets": Case(ddp={"bucket_cap_mb": 0.01}),
    "one bucket": Case(ddp={"bucket_cap_mb": 25}),
    "no size given": Case(ddp={}),
    "unused": Case(lambda: Model(spare=True), {**SMALL, "find_unused_parameters": True}),
    "unused now and then": Case(lambda: Model(spare=True), {**SMALL, "find_unused_parameters": True}, now_and_then),
    "static": Case(ddp={**SMALL, "static_graph": True}),
    "views": Case(ddp={**SMALL, "gradient_as_bucket_view": True}),
    "accumulated": Case(step=accumulating),
    "buffers": Case(lambda: Model(normed=True)),
    "own buffers": Case(lambda: Model(normed=True), {**SMALL, "broadcast_buffers": False}),
    "autocast": Case(step=under_autocast),
    "checkpoint": Case(lambda: Model(again=True)),
    "tied": Case(lambda: Model(tied=True)),
    "kept": Case(step=kept),
    "second derivative": Case(step=twice_differentiated, rounds=True),
    "of some": Case(step=of_some),
    "lengths": Case(step=with_lengths),
    "frozen later": Case(ddp={**SMALL, "find_unused_parameters": True}, step=freezing),
    "looked at": Case(step=looking),
    "hooks": Case(after=hook_parameters),
    "hooks afterwards": Case(after=hook_after),
    "communication hook": Case(after=hook_communication),
    "ignored": Case(before=ignore_some),
}
PLACES = ("inside", "outside", "step", "blocks", "earlier")


def train(case: Case, place: str, compiled: Callable[[Any], Any]) -> list[Any]:
    """Train for some steps; return losses and states."""
    torch.manual_seed(0)
    module = inner = case.model()
    if case.before is not None:
        case.before(module, None)
    if place == "blocks":
        for at, block in enumerate(module.blocks):
            module.blocks[at] = compiled(block)
    elif place in ("inside", "earlier"):
        inner = compiled(module)
    x = torch.randn(ROWS, WIDTH)
    if place == "earlier":
        loss_of(inner(x)).backward()
        module.zero_grad()
    ddp = run = DistributedDataParallel(inner, **case.ddp)
    if case.after is not None:
        case.after(module, ddp)
    if place == "outside":
        run = compiled(ddp)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)

    def step(number: int, x: torch.Tensor):
        optimizer.zero_grad()
        loss = case.step(Trained(run, ddp, module, optimizer, number, x))
        optimizer.step()
        return loss.detach()

    whole = compiled(step) if place == "step" else step
    found: list[Any] = []
    generator = torch.Generator().manual_seed(dist.get_rank())
    for number in range(STEPS):
        found.append(whole(number, torch.randn(ROWS, WIDTH, generator=generator)))
        found += [each.clone() for each in (*module.parameters(), *module.buffers())]
    return found


def compare(name: str, place: str) -> str:
    """Return what differs in a case; empty if nothing does."""
    torchdynamo.reset()
    expected = train(CASES[name], place, lambda fn: fn)
    found = train(CASES[name], place, torchdynamo.optimize("aot_eager"))
    same = functools.partial(torch.allclose, atol=1e-6) if CASES[name].rounds else torch.equal
    wrong = [at for at, (one, other) in enumerate(zip(expected, found, strict=True)) if not same(one, other)]
    problems = [each["text"] for each in torchdynamo.report()["problems"]]
    if not wrong and not problems:
        return ""
    return f"{name}, {place}: {len(wrong)} of {len(found)} values differ, from {wrong[:1]} on; {problems}"


class Products(TorchDispatchMode):
    """Counts matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
        return func(*args, **kwargs or {})


def readiness(place: str, compiled: Callable[[Any], Any]) -> list[float]:
    """Return after what part of a backward's matrix products each bucket is ready, in the fifth step."""
    torch.manual_seed(0)
    module = nn.Sequential(*(Block() for _ in range(8)))
    inner = compiled(module) if place in ("inside", "earlier") else module
    x = torch.randn(ROWS, WIDTH)
    if place == "earlier":
        loss_of(inner(x)).backward()
    ddp = run = DistributedDataParallel(inner, bucket_cap_mb=0.05)
    if place == "outside":
        run = compiled(ddp)
    counts: list[int] = []
    products = Products()

    def hook(state, bucket):
        counts.append(products.count)
        return dist.all_reduce(bucket.buffer().div_(2), async_op=True).get_future().then(lambda done: done.value()[0])

    ddp.register_comm_hook(None, hook)
    for _ in range(5):
        counts.clear()
        loss = loss_of(run(x))
        with products:
            products.count = 0
            loss.backward()
    return [count / products.count for count in counts]


def overlaps() -> list[str]:
    """Return where communication does not begin while the backward runs."""
    torchdynamo.reset()
    wrong = []
    for place in ("inside", "outside", "earlier"):
        found = readiness(place, torchdynamo.optimize("aot_eager"))
        if not (len(found) > 4 and found[0] <= 0.25 and found[len(found) // 2] <= 0.7):
            wrong.append(f"{place}: buckets are ready at {found}")
    return wrong


def main() -> None:
    rank, folder, *names = sys.argv[1:]
    torch.set_num_threads(1)
    where = f"file://{folder}/store"
    dist.init_process_group("gloo", rank=int(rank), world_size=2, init_method=where, timeout=TIMEOUT)
    differences = overlaps()
    for name in names or CASES:
        for place in PLACES:
            found = compare(name, place)
            print(found or f"{name}, {place}: equal", flush=True)
            differences += [found] if found else []
    dist.barrier()
    dist.destroy_process_group()
    sys.exit("\n".join(differences) or 0)


if __name__ == "__main__":
    main()
