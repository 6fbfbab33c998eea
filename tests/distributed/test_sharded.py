"""FSDP and tensor parallelism, compiled: results are eager's, bit for bit."""

import pytest
import torch.distributed as dist
from process_groups import run_ranks

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="torch was built without gloo"
)


def test_blocks_sharded_and_parallel(tmp_path):
    run_ranks("sharded.py", tmp_path, "blocks", "tensor parallel", seconds=200)


@pytest.mark.long
def test_all_ways_to_shard(tmp_path):
    run_ranks("sharded.py", tmp_path, seconds=600)
