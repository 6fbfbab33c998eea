"""Ranks that differ: all ends as in eager, or in an error, before a time-out."""

import pytest
import torch.distributed as dist
from process_groups import run_ranks

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="torch was built without gloo"
)


def test_ranks_that_fail_or_disagree(tmp_path):
    cases = ("no kernel, first call", "a bad kernel", "branches", "agreed", "warming fails")
    run_ranks("faults.py", tmp_path, *cases, seconds=200)


@pytest.mark.long
def test_all_faults(tmp_path):
    run_ranks("faults.py", tmp_path, seconds=600)
