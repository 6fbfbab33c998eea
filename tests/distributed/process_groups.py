"""Process groups of one process, and programs that two processes run, for tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch.distributed as dist


@contextmanager
def alone(folder: Path) -> Iterator[Any]:
    """Make this process the only rank of a gloo world, and yield the default group."""
    with world("gloo", rank=0, world_size=1, init_method=f"file://{folder}/store") as group:
        yield group


@contextmanager
def among(rank: int, size: int) -> Iterator[Any]:
    """Make this process a rank of a world in which nobody else is, and nothing is sent; yield the default group."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    with world("fake", rank=rank, world_size=size, store=FakeStore()) as group:
        yield group


@contextmanager
def world(backend: str, **how: Any) -> Iterator[Any]:
    """Make the default group, and yield it."""
    hook = sys.excepthook
    dist.init_process_group(backend, **how)
    try:
        yield dist.group.WORLD
    finally:
        dist.destroy_process_group()
        sys.excepthook = hook


def run_ranks(program, folder, *cases, seconds):
    """Run two ranks, and fail if they do."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, Path(__file__).with_name(program), str(rank), folder, *cases],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for rank in (0, 1)
    ]
    try:
        errors = [rank.communicate(timeout=seconds)[1].decode() for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(errors)
