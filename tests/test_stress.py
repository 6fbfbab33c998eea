"""Threads that share compiled functions while these are recompiled and forgotten, with the collector always at work.

A few seconds of it in the suite; `make stress` goes on for STRESS_SECONDS with STRESS_THREADS threads.
"""

from __future__ import annotations

import gc
import itertools
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import torchdynamo
from torchdynamo import config

SECONDS = float(os.environ.get("STRESS_SECONDS", "3"))
THREADS = int(os.environ.get("STRESS_THREADS", "8"))

Round = Callable[[int], None]  # given its number; asserts what it found


class Settings(threading.local):
    """Another one in each thread, made by Python code where a thread looks first."""

    def __init__(self) -> None:
        self.scale = float(threading.get_ident() % 7)


class Counted(torch.optim.Optimizer):
    """An optimizer of the user's own, which reads its step as a number."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for param in group["params"]:
                state = self.state[param]
                state["step"] = state.get("step", torch.zeros(())) + 1
                param.add_(param.grad, alpha=-group["lr"] / (1 + state["step"].item()))


def step(optimizer: torch.optim.Optimizer) -> None:
    optimizer.step()


def scaled(x: torch.Tensor, by: int) -> torch.Tensor:
    return torch.relu(x * by) + by


settings = Settings()
table: dict[Any, float] = {}


def by_thread(x: torch.Tensor) -> torch.Tensor:
    return x * settings.scale


def by_array(x: torch.Tensor, array: Any) -> torch.Tensor:
    return x * float(array.sum())


def by_key(x: torch.Tensor, key: Any) -> torch.Tensor:
    return x * (3 if key in table else 2)


OPTIMIZERS: tuple[Any, ...] = (torch.optim.RAdam, torch.optim.Adam, torch.optim.NAdam, torch.optim.SGD, Counted)
compiled_step = torchdynamo.compile(step, backend="eager")
compiled_scaled = torchdynamo.compile(scaled, backend="eager", dynamic=False)
compiled_thread = torchdynamo.compile(by_thread, backend="eager")
compiled_array = torchdynamo.compile(by_array, backend="eager")
compiled_key = torchdynamo.compile(by_key, backend="eager")


def training(number: int) -> Round:
    """An optimizer of the thread's own under the one compiled step, beside an eager twin."""

    def twin() -> tuple[nn.Parameter, torch.optim.Optimizer]:
        param = nn.Parameter(torch.ones(3))
        return param, OPTIMIZERS[number % len(OPTIMIZERS)]([param])

    (param, optimizer), (wanted, eager) = twin(), twin()

    def run(turn: int) -> None:
        param.grad = wanted.grad = torch.full((3,), 1.0 + turn % 5)
        compiled_step(optimizer)
        eager.step()
        assert torch.equal(param, wanted), f"step {turn}: {param} instead of {wanted}"

    return run


def recompiling(number: int) -> Round:
    x = torch.arange(-2.0, 3.0)

    def run(turn: int) -> None:
        by = (number + turn) % 9
        assert torch.equal(compiled_scaled(x, by), scaled(x, by))

    return run


def new_models(number: int) -> Round:
    def run(turn: int) -> None:
        model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1 + turn % 3))
        x = torch.ones(2, 3)
        compiled = torchdynamo.compile(model, backend="eager")
        for _ in range(3):
            assert torch.equal(compiled(x), model(x))

    return run


def asking(number: int) -> Round:
    """Functions whose guards ask code of others."""
    x = torch.ones(3)
    array = np.full(2, float(number))

    def run(turn: int) -> None:
        settings.scale = float(turn % 3)
        assert torch.equal(compiled_thread(x), by_thread(x))
        array[0] = turn % 2
        assert torch.equal(compiled_array(x, array), by_array(x, array))
        key = (number, turn % 3)
        table[key if turn % 2 else torch.Size(key)] = 1.0
        assert compiled_key(x, key).tolist() == [3, 3, 3]

    return run


def resetting(number: int) -> Round:
    def run(turn: int) -> None:
        time.sleep(0.4)
        torchdynamo.reset()

    return run


ROLES = (training, recompiling, training, asking, new_models, training, resetting, training)


@pytest.fixture
def always_collecting() -> Iterator[None]:
    threshold, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(1)
    sys.setswitchinterval(1e-5)
    yield
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("always_collecting")
def test_threads_under_stress() -> None:
    end = time.monotonic() + SECONDS
    failed = threading.Event()

    def work(number: int) -> int:
        run = ROLES[number % len(ROLES)](number)
        for turn in itertools.count():
            if turn > 2 and (time.monotonic() > end or failed.is_set()):
                return turn
            try:
                run(turn)
            except BaseException:
                failed.set()
                raise
        return 0

    with warnings.catch_warnings(), config.patch(cache_size_limit=64), ThreadPoolExecutor(THREADS) as pool:
        warnings.simplefilter("ignore")  # that a limit was reached: reset() comes as it will
        turns = [future.result(timeout=SECONDS + 240) for future in [pool.submit(work, n) for n in range(THREADS)]]
    print(dict(zip([role.__name__ for role in ROLES], turns, strict=False)))
    assert min(turns) > 2
