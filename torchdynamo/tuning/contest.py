"""Measure the members that are right for one recorded graph in turn, while no other process of ours measures."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from torchdynamo.backends.ensemble import measure
from torchdynamo.backends.ensemble.database import Row
from torchdynamo.backends.ensemble.identity import graph_hash
from torchdynamo.backends.ensemble.recorded import load
from torchdynamo.backends.ensemble.requests import TrialAnswer, TrialRequest, load_users_members
from torchdynamo.backends.ensemble.settings import Settings
from torchdynamo.backends.ensemble.trial import candidate_of
from torchdynamo.backends.preserve import mutated_positions
from torchdynamo.backends.verify import copied


@contextlib.contextmanager
def alone_on_the_machine() -> Iterator[None]:
    """Hold a lock that every process of this machine takes to measure: two at once measure each other."""
    path = Path(tempfile.gettempdir()) / "torchdynamo-measure.lock"
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(text: str) -> None:
    """TrialAnswer a request with eager's row and a row for each member."""
    request = TrialRequest.of(text)
    load_users_members(request.imports)
    recorded = load(Path(request.folder), constants=request.constants)
    subgraph = recorded.subgraph
    with recorded.as_captured():
        built = [candidate_of(recorded, name, Settings(constants=request.constants)) for name in request.members]
        runs = {"eager": subgraph.gm.forward, **{each.name: each.run for each in built if each.run is not None}}
        written = mutated_positions(subgraph.gm)
        inputs = [copied(each) if i in written else each for i, each in enumerate(subgraph.example_inputs)]
        on_gpu = any(each.is_cuda for each in subgraph.tensors)
        with alone_on_the_machine():
            calls = {name: functools.partial(run, *inputs) for name, run in runs.items()}
            timings = measure.in_turn(calls, request.seconds, on_gpu)
        for each in built:
            each.timing = timings.get(each.name)
        key = graph_hash(subgraph) or ""
    eager = Row("eager", "built", timing=timings["eager"])
    TrialAnswer([eager, *(each.measured() for each in built)], key).write(request.out)


if __name__ == "__main__":
    main(sys.argv[1])
