"""What a rank compiles does not depend on how many there are."""

import pytest
import torch
import torch.distributed as dist
from process_groups import among
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import torchdynamo

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="torch was built without torch.distributed")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return self.down(self.up(x).relu())


def graphs_of(rank, size):
    """Return how many graphs a rank compiles that trains a parallel block and reduces what it has found."""
    torchdynamo.reset()
    with among(rank, size):
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        block = parallelize_module(Block(), init_device_mesh("cpu", (size,)), plan)
        block = torchdynamo.compile(block, backend="aot_eager")

        @torchdynamo.compile(backend="aot_eager", fullgraph=True)
        def mean(x):
            total = x.sum(0)
            dist.all_reduce(total)
            return total / dist.get_world_size() + dist.get_rank()

        for _ in range(4):
            block(torch.ones(2, 8)).sum().backward()
            mean(torch.ones(3))
        assert block.up.weight.grad is not None
        return torchdynamo.report()["totals"]["graphs"]


def test_ranks_of_eight_compile_as_many_graphs_as_one_of_two():
    assert {graphs_of(rank, size) for rank, size in ((0, 2), (1, 2), (0, 8), (3, 8), (7, 8))} == {2}
