"""What many versions of one function cost: a call that finds one of 64, and a call for which there is none, against the
same with one version.

    python benchmarks/specialisations.py               # a row for each way in which versions differ
    python benchmarks/specialisations.py --count 8

Microseconds per call, the better of five rounds. The graph computes nothing. `hit` calls the versions in random order
and `same` one of them over and over; a `miss` is a call that fits no version, in run mode, so that none is made: what
it costs over the same function of which nothing is known.
"""

from __future__ import annotations

import argparse
import os
import random
import time
import types
from collections.abc import Callable
from typing import Any

import torch

import torchdynamo
from torchdynamo import config

ROUNDS = 5
CALLS = 20_000
X = torch.arange(3.0)
DTYPES = (
    torch.float32,
    torch.float64,
    torch.int32,
    torch.int64,
    torch.int8,
    torch.uint8,
    torch.float16,
    torch.bfloat16,
)
Args = tuple[Any, ...]


class Scaled(torch.nn.Module):
    """An instance for each version: the factor is a constant of the graph."""

    def __init__(self, by: int) -> None:
        super().__init__()
        self.by = by
        self.fc = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x) * self.by


def by_value(x: torch.Tensor, by: Any) -> Any:
    return x + 1, by


def by_tensor(x: torch.Tensor) -> Any:
    return x + 1, x.dtype, x.shape


def by_module(module: Any, x: torch.Tensor) -> Any:
    return module(x)


MODULES = [Scaled(i) for i in range(1000)]
CASES: dict[str, tuple[Callable[..., Any], Callable[[int], Args]]] = {
    "int": (by_value, lambda i: (X, i)),
    "str": (by_value, lambda i: (X, f"mode {i}")),
    "shape": (by_tensor, lambda i: (torch.ones(i + 1),)),
    "dtype": (by_tensor, lambda i: (torch.ones(i // 8 + 1, dtype=DTYPES[i % 8]),)),
    "module": (by_module, lambda i: (MODULES[i], X)),
}


def computing_nothing(gm: Any, example_inputs: Any) -> Any:
    result = gm.forward(*example_inputs)
    return lambda *args: result


def per_call(fn: Callable[..., Any], calls: list[Args]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.thread_time()
        for args in calls:
            fn(*args)
        best = min(best, time.thread_time() - began)
    return best / len(calls) * 1e6


def measure(name: str, count: int) -> tuple[float, float, float]:
    """Hit in random order, the same hit again, and miss."""
    torchdynamo.reset()
    fn, args = CASES[name]
    compiled = torchdynamo.compile(fn, backend=computing_nothing, dynamic=False)
    known = [args(i) for i in range(count)]
    with config.patch(cache_size_limit=count):
        for _ in range(3):
            for each in known:
                compiled(*each)
    order = [random.Random(0).choice(known) for _ in range(CALLS)]
    hit, same = per_call(compiled, order), per_call(compiled, [known[0]] * CALLS)
    missing = [args(100 + i % 16) for i in range(2000)]
    other = types.FunctionType(fn.__code__.replace(co_name="other"), fn.__globals__)  # nothing is known of its code
    seconds = [(per_call(torchdynamo.run(fn), missing), per_call(torchdynamo.run(other), missing)) for _ in range(4)]
    return hit, same, min(each[0] for each in seconds) - min(each[1] for each in seconds)


def main() -> None:
    os.environ.setdefault("TORCHDYNAMO_CACHE", "0")  # what is measured is captured anew
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=64)
    count = parser.parse_args().count
    torch.set_num_threads(1)
    titles = ("hit 1", f"hit {count}", "ratio", "same", "miss 1", f"miss {count}")
    print(f"{'versions':10}" + "".join(f"{title:>9}" for title in titles))
    with torch.no_grad():
        for name in CASES:
            (hit1, _, miss1), (hit, same, miss) = measure(name, 1), measure(name, count)
            figures = (hit1, hit, hit / hit1, same, miss1, miss)
            print(f"{name:10}" + "".join(f"{figure:9.2f}" for figure in figures))


if __name__ == "__main__":
    main()
