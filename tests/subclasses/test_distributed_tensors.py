"""DTensor under a process group that only pretends: programs, and a tensor-parallel MLP as one graph."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from counting import Counting
from torch import nn

import torchdynamo

pytest.importorskip("torch.distributed.tensor")
pytest.importorskip("torch.testing._internal.distributed.fake_pg")

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore


@pytest.fixture(scope="module", autouse=True)
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Make a mesh of two ranks, one of which only pretends; of one, where such a group leaves results unwritten."""
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    ranks, found = 2, torch.zeros(1)
    dist.scatter(found, [torch.ones(1), torch.ones(1)])
    if not found:
        dist.destroy_process_group()
        where = tmp_path_factory.mktemp("world") / "store"
        ranks = 1
        dist.init_process_group("gloo", rank=0, world_size=1, init_method=f"file://{where}")
    yield init_device_mesh("cpu", (ranks,))
    dist.destroy_process_group()


def pointwise(mesh: Any, x: Any) -> Any:
    return x * 2 + 1


def local(mesh: Any, x: Any) -> Any:
    return x.to_local() * 2


def made(mesh: Any, x: Any) -> Any:
    return DTensor.from_local(x.to_local(), mesh, [Shard(0)]) * 2


def replicated(mesh: Any, x: Any) -> Any:
    return x.redistribute(mesh, [Replicate()]) + 1


def replicated_and_local(mesh: Any, x: Any) -> Any:
    return x.redistribute(placements=[Replicate()]).to_local()


def viewed(mesh: Any, x: Any) -> Any:
    return (x.view(4, 2, 2) + 1).reshape(4, 4)


def asked(mesh: Any, x: Any) -> Any:
    return x * x.placements[0].dim if x.placements[0].is_shard() else x


def multiplied(mesh: Any, x: Any) -> Any:
    return torch.mm(x, x).sum()


def written_to(mesh: Any, x: Any) -> Any:
    x.add_(1)
    return x * 2


PROGRAMS = [pointwise, local, made, replicated, replicated_and_local, viewed, asked, multiplied, written_to]


def sharded(mesh: Any, seed: int = 0, grad: bool = False) -> Any:
    torch.manual_seed(seed)
    return distribute_tensor(torch.randn(4, 4), mesh, [Shard(0)]).requires_grad_(grad)


def shown(value: Any) -> tuple[Any, ...]:
    if isinstance(value, DTensor):
        return type(value), value.placements, value.device_mesh, *shown(value._local_tensor)
    return value.shape, value.stride(), value.tolist() if type(value) is torch.Tensor else value.trigger_wait().tolist()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_programs_are_one_graph_and_as_in_eager(f: Callable[..., Any], backend: str, mesh: Any) -> None:
    counting = Counting(backend)
    fast = torchdynamo.compile(f, backend=counting, fullgraph=True)
    for seed in range(2):
        mine, theirs = sharded(mesh, seed), sharded(mesh, seed)
        assert shown(fast(mesh, mine)) == shown(f(mesh, theirs))
        assert shown(mine) == shown(theirs)
    assert len(counting.graphs) == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_other_placements_are_compiled_anew(backend: str, mesh: Any) -> None:
    fast = torchdynamo.compile(asked, backend=backend)
    for placement in (Shard(0), Shard(1), Replicate(), Shard(1)):
        x = distribute_tensor(torch.ones(4, 4), mesh, [placement])
        assert shown(fast(mesh, x)) == shown(asked(mesh, x))


def test_placements_that_are_set_later_are_seen(mesh: Any) -> None:
    fn = torchdynamo.compile(pointwise, backend="aot_eager")
    x = distribute_tensor(torch.ones(4, 4), mesh, [Replicate()])
    assert fn(mesh, x).placements == (Replicate(),)
    x._spec.placements = (Shard(1),)
    assert fn(mesh, x).placements == (Shard(1),)
    x._spec.placements = (Replicate(),)
    assert fn(mesh, x).placements == (Replicate(),)


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


@pytest.mark.parametrize("shape", [(2, 8), (2, 3, 8)], ids=["rows", "batches"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_tensor_parallel_mlp_is_one_graph(backend: str, shape: tuple[int, ...], mesh: Any) -> None:
    torch.manual_seed(0)
    counting = Counting(backend)
    net = parallelize_module(MLP(), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fast = torchdynamo.compile(net, backend=counting, fullgraph=True)
    for _ in range(2):
        x = torch.randn(shape)
        found: list[Any] = []
        for run in (net, fast):
            net.zero_grad()
            run(x).sum().backward()
            found.append((shown(run(x)), [shown(each.grad) for each in net.parameters()]))
        assert found[0] == found[1]
    assert len(counting.graphs) == 1


def backward(loss: torch.Tensor, weight: torch.Tensor) -> Any:
    go_back(loss)
    return shown(weight.grad)


def kept_backward(loss: torch.Tensor, weight: torch.Tensor) -> Any:
    go_back(loss, retain_graph=True)
    go_back(loss)
    return shown(weight.grad)


def hooked_backward(loss: torch.Tensor, weight: torch.Tensor) -> Any:
    put_hook: Any = weight.register_hook
    handle = put_hook(lambda grad: grad * 2)
    go_back(loss)
    handle.remove()
    return shown(weight.grad)


def backward_of_freed(loss: torch.Tensor, weight: torch.Tensor) -> Any:
    go_back(loss)
    with pytest.raises(RuntimeError, match="second time"):
        go_back(loss)
    return shown(weight.grad)


def go_back(loss: Any, **options: Any) -> None:
    loss.backward(**options)


def python_calls(call: Callable[[], Any]) -> list[str]:
    """Return the names of the functions written in Python that a call goes through."""
    names: list[str] = []
    sys.setprofile(lambda frame, event, arg: names.append(frame.f_code.co_name) if event == "call" else None)
    try:
        call()
    finally:
        sys.setprofile(None)
    return names


@pytest.mark.parametrize("use", [backward, kept_backward, hooked_backward, backward_of_freed])
def test_a_parallel_mlp_trains_as_in_eager_without_wrappers_of_its_forward(use: Callable[..., Any], mesh: Any) -> None:
    torch.manual_seed(0)
    net = parallelize_module(MLP(), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fast = torchdynamo.compile(net, backend="aot_eager")
    for _ in range(4):
        x = torch.randn(2, 8)
        found: list[Any] = []
        for run in (net, fast):
            net.zero_grad()
            out = run(x)
            found.append((shown(out), use(out.sum(), net.up.weight)))
        assert found[0] == found[1]
    assert "runtime_wrapper" not in python_calls(lambda: fast(x))
    with torch.no_grad():
        assert shown(fast(x)) == shown(net(x))
