"""DistributedDataParallel, compiled: results are eager's, and buckets are reduced while the backward runs."""

import pytest
import torch.distributed as dist
from process_groups import run_ranks

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="torch was built without gloo"
)


def test_results_are_eagers_and_communication_begins_early(tmp_path):
    run_ranks("ddp_training.py", tmp_path, "small buckets", seconds=200)


@pytest.mark.long
def test_all_settings_and_places(tmp_path):
    run_ranks("ddp_training.py", tmp_path, seconds=1500)
