"""Writers that are killed at any moment, also while others write: what is read is whole, and results are eager's."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo import _native, events
from torchdynamo.backends.artifacts import digest_of
from torchdynamo.cache.store import eviction, files, places
from torchdynamo.storing import save

X = torch.ones(3)
CONTEXT = multiprocessing.get_context("fork")


def program(x: torch.Tensor, n: int) -> torch.Tensor:
    return (x * n).relu() + 1


def compiled() -> Any:
    return torchdynamo.compile(program, backend="eager", dynamic=False)


def write(first: int) -> None:
    """Write entries of the program's, and large blobs, until somebody ends this."""
    for n in range(first, 1 << 30):
        _native.clear_all()
        compiled()(X, n)
        blob = n.to_bytes(8, "little") * (1 << 15)
        save("blobs", {"number": b"%d" % n}, {digest_of(blob): blob})


def check(store: Path) -> None:
    """See that each file that has its own name is whole."""
    for path in store.rglob("*.td"):
        try:
            files.unpacked(places.contents(path))
        except FileNotFoundError:
            continue  # a writer has made room
    for path in places.blobs_in(store).glob("[!.]*"):
        assert digest_of(path.read_bytes()) == path.name


def kill_some(store: Path, writers: int, kills: int) -> int:
    """Start writers, and kill each at some moment; return how often an entry was found between two of these."""
    chance, hits = random.Random(kills), 0
    running: list[Any] = []
    compiled()(X, 1)  # imports what a capture needs
    for at in range(kills):
        while len(running) < writers:
            running.append(CONTEXT.Process(target=write, args=(2 + at % 4,)))
            running[-1].start()
        time.sleep(chance.random() * 0.1)
        gone = running.pop(0)
        assert gone.pid is not None
        os.kill(gone.pid, signal.SIGKILL)
        gone.join()
        assert gone.exitcode == -signal.SIGKILL
        _native.clear_all()  # another process
        events.clear()
        n = 2 + at % 4
        assert torch.equal(compiled()(X, n), program(X, n))
        hits += any(event.stored == "hit" for event in events.recent())
        if at % 50 == 0:
            check(store)
    for each in running:
        each.kill()
        each.join()
    check(store)
    return hits


@pytest.mark.parametrize(
    ("writers", "kills"),
    [(1, 40), pytest.param(1, 1000, marks=pytest.mark.long), pytest.param(16, 60, marks=pytest.mark.long)],
)
def test_writers_that_are_killed(store: Path, writers: int, kills: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", torchdynamo.errors.TorchDynamoWarning)
        assert kill_some(store, writers, kills) > 0
    left = [path for path in store.rglob(".*") if path.is_file()]
    for path in left:
        os.utime(path, (0, 0))  # nobody's, by now
    assert set(left) <= set(eviction.prune(store))
