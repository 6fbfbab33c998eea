"""A collective of NCCL inside of a graph of Inductor."""

import pytest
import torch
import torch.distributed as dist
from process_groups import world

import torchdynamo

pytestmark = pytest.mark.skipif(
    not (torch.cuda.is_available() and dist.is_available() and dist.is_nccl_available()),
    reason="needs a CUDA device and NCCL",
)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_reduced_product(tmp_path, backend):
    def program(x, w):
        y = (x @ w).relu()
        dist.all_reduce(y)
        return y * 2 + dist.get_rank()

    with world("nccl", rank=0, world_size=1, init_method=f"file://{tmp_path}/store"):
        compiled = torchdynamo.optimize(backend, nopython=True)(program)
        x, w = torch.randn(8, 8, device="cuda"), torch.randn(8, 8, device="cuda")
        for _ in range(3):
            torch.testing.assert_close(compiled(x, w), program(x, w))
