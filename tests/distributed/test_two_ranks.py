"""Two processes that communicate by gloo."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist

PROGRAM = Path(__file__).with_name("two_ranks.py")


@pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available() and hasattr(dist, "all_gather_single")),
    reason="torch was built without gloo, or has older names",
)
def test_ranks_get_what_eager_gives_them(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen([sys.executable, PROGRAM, str(rank), tmp_path], env=environment, stderr=subprocess.PIPE)
        for rank in (0, 1)
    ]
    try:
        errors = [rank.communicate(timeout=100)[1].decode() for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(errors)
