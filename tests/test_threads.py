"""Threads that call the same functions and others, first calls included: right results, each version compiled once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

import torchdynamo
from torchdynamo import config

THREADS = 32


def together(work: Callable[[int], Any]) -> list[Any]:
    """What each of 32 threads gives, which begin at once; none may hang."""
    start = threading.Barrier(THREADS)

    def begin(number: int) -> Any:
        start.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return [future.result(timeout=120) for future in [pool.submit(begin, number) for number in range(THREADS)]]


class Counting:
    """A backend that runs the graph, and counts the graphs by what they multiply with."""

    def __init__(self) -> None:
        self.made: Counter[Any] = Counter()

    def __call__(self, gm: Any, example_inputs: Any) -> Any:
        self.made[next(node.args[1] for node in gm.graph.nodes if "mul" in str(node.target))] += 1
        return gm.forward


def scaled(x: torch.Tensor, by: int) -> torch.Tensor:
    return torch.relu(x * by) + by


def test_one_function_in_many_threads() -> None:
    backend = Counting()
    compiled = torchdynamo.compile(scaled, backend=backend, dynamic=False)
    x = torch.arange(-2.0, 3.0)

    def work(number: int) -> bool:
        return all(torch.equal(compiled(x, by), scaled(x, by)) for by in [*range(2, 8)] * 5)

    assert all(together(work))
    assert backend.made == dict.fromkeys(range(2, 8), 1)


def test_many_functions_in_many_threads() -> None:
    backend = Counting()
    text = "def fn(x):\n    return (x * {0}).sum() + {0}\n"
    spaces: list[dict[str, Any]] = [{} for _ in range(THREADS)]
    for number, space in enumerate(spaces):
        exec(text.format(number + 2), space)
    compiled = [torchdynamo.compile(space["fn"], backend=backend) for space in spaces]
    x = torch.arange(4.0)

    def work(number: int) -> bool:
        order = [(number + step) % THREADS for step in range(THREADS)]
        return all(compiled[each](x).item() == 6 * (each + 2) + each + 2 for each in order)

    assert all(together(work))
    assert backend.made == dict.fromkeys(range(2, THREADS + 2), 1)


def test_settings_of_threads_are_not_mixed() -> None:
    compiled = torchdynamo.compile(lambda x: (x * 2, torch.is_grad_enabled()), backend="eager")

    def work(number: int) -> bool:
        with torch.set_grad_enabled(number % 2 == 0):
            results = [compiled(torch.ones(2, requires_grad=True)) for _ in range(10)]
        return all(made.requires_grad == on == (number % 2 == 0) for made, on in results)

    assert all(together(work))


def test_entries_come_and_go_under_threads() -> None:
    compiled = torchdynamo.compile(scaled, backend="eager", dynamic=False)
    x = torch.arange(-2.0, 3.0)

    def work(number: int) -> bool:
        if number == 0:
            for _ in range(20):
                torchdynamo.reset()
            return True
        return all(torch.equal(compiled(x, by), scaled(x, by)) for by in [2, 3, 4] * 10)

    with config.patch(cache_size_limit=100):
        assert all(together(work))
