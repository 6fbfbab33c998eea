"""Spread trials over this machine's cores, or over a cluster of Ray."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from torchdynamo.backends.ensemble import processes
from torchdynamo.backends.ensemble.requests import TrialAnswer, TrialRequest

TRIAL = "torchdynamo.backends.ensemble.trial"
TOKEN = "RAY_AUTH_TOKEN_PATH"
LONGEST = 24  # characters of a folder for temporary files: Ray's sockets below it have paths of up to 107
Pool = Callable[[Sequence[TrialRequest]], Iterator[TrialAnswer]]


@contextlib.contextmanager
def on_this_machine(jobs: int, timeout: float, memory: float) -> Iterator[Pool]:
    """Give a pool of so many processes at a time."""

    def answers(requests: Sequence[TrialRequest]) -> Iterator[TrialAnswer]:
        with ThreadPoolExecutor(jobs) as threads:
            yield from threads.map(functools.partial(_trial, timeout=timeout, memory=memory), requests)

    yield answers


@contextlib.contextmanager
def on_ray(address: str, timeout: float, memory: float) -> Iterator[Pool]:
    """Give a pool on a cluster. address: as `ray.init` takes it; "local" starts one of two workers here.

    The recorded graphs must be on a file system that the cluster shares. Raises ImportError without Ray.
    """
    with contextlib.ExitStack() as stack:
        local = stack.enter_context(files_of_a_cluster()) if address == "local" else {"address": address}
        import ray

        if not ray.is_initialized():
            ray.init(**local, log_to_driver=False)
            stack.callback(ray.shutdown)
        trial = ray.remote(num_cpus=1, max_retries=0)(_trial)

        def answers(requests: Sequence[TrialRequest]) -> Iterator[TrialAnswer]:
            pending: list[Any] = [trial.remote(each, timeout, memory) for each in requests]
            for each in pending:
                yield ray.get(each)

        yield answers


@contextlib.contextmanager
def files_of_a_cluster() -> Iterator[dict[str, Any]]:
    """Give the arguments of `ray.init` for a cluster here, whose files, its token too, are in a folder that goes."""
    usual = tempfile.gettempdir()
    root = usual if len(usual) <= LONGEST else "/tmp"
    with tempfile.TemporaryDirectory(prefix="td-ray-", dir=root, ignore_cleanup_errors=True) as folder:
        token = Path(folder, "token")
        token.write_text(os.urandom(32).hex())
        usual_token = os.environ.get(TOKEN)
        os.environ[TOKEN] = str(token)
        try:
            yield {"num_cpus": 2, "include_dashboard": False, "_temp_dir": folder}
        finally:
            if usual_token is None:
                del os.environ[TOKEN]
            else:
                os.environ[TOKEN] = usual_token


def _trial(request: TrialRequest, timeout: float, memory: float) -> TrialAnswer:
    return processes.run(TRIAL, request, timeout, memory)
