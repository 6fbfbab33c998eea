"""Spread trials over this machine's cores, or over a cluster of Ray."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from torchdynamo.backends.ensemble import processes
from torchdynamo.backends.ensemble.requests import TrialAnswer, TrialRequest

TRIAL = "torchdynamo.backends.ensemble.trial"
Pool = Callable[[Sequence[TrialRequest]], Iterator[TrialAnswer]]


def on_this_machine(jobs: int, timeout: float, memory: float) -> Pool:
    """Return a pool of so many processes at a time."""

    def answers(requests: Sequence[TrialRequest]) -> Iterator[TrialAnswer]:
        with ThreadPoolExecutor(jobs) as threads:
            yield from threads.map(functools.partial(_trial, timeout=timeout, memory=memory), requests)

    return answers


def on_ray(address: str, timeout: float, memory: float) -> Pool:
    """Return a pool on a cluster. address: as `ray.init` takes it; "local" starts one of two workers here.

    The recorded graphs must be on a file system that the cluster shares. Raises ImportError without Ray.
    """
    import ray

    if not ray.is_initialized():
        local = {"num_cpus": 2, "include_dashboard": False} if address == "local" else {"address": address}
        ray.init(**local, log_to_driver=False)
    trial = ray.remote(num_cpus=1, max_retries=0)(_trial)

    def answers(requests: Sequence[TrialRequest]) -> Iterator[TrialAnswer]:
        pending: list[Any] = [trial.remote(each, timeout, memory) for each in requests]
        for each in pending:
            yield ray.get(each)

    return answers


def _trial(request: TrialRequest, timeout: float, memory: float) -> TrialAnswer:
    return processes.run(TRIAL, request, timeout, memory)
