"""Programs that test_backend_warm_start.py runs in two processes, with the same folder for Inductor's caches.

    python warm_start.py cold FOLDER    runs each, and writes the artifacts of all into the folder
    python warm_start.py warm FOLDER    runs each again, as another version of the package would compile it, and with
                                        other caches, into which the artifacts have been loaded

Prints, as JSON, what the caches have said: of each way, of each program.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.utils import counters

import torchdynamo
from torchdynamo.backends import cache_key
from torchdynamo.errors import TorchDynamoWarning

COUNTS = ("fxgraph_cache_hit", "fxgraph_cache_miss", "fxgraph_cache_bypass")
AOT_COUNTS = ("autograd_cache_hit", "autograd_cache_miss", "autograd_cache_bypass")
Program = Callable[[], tuple[Any, Any]]
PROGRAMS: dict[str, Program] = {}


def program(fn: Program) -> Program:
    PROGRAMS[fn.__name__] = fn
    return fn


def wave(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * x.cos()).softmax(-1)


def results(fn: Callable[..., Any], *inputs: Any, **options: Any) -> tuple[Any, Any]:
    compiled = torchdynamo.compile(fn, **options)
    return [compiled(x) for x in inputs], [fn(x) for x in inputs]


def gradients(fn: Callable[..., Any], *sizes: int, **options: Any) -> tuple[Any, Any]:
    compiled = torchdynamo.compile(fn, **options)
    leaves = [torch.linspace(-1, 1, size * 3).view(size, 3).requires_grad_() for size in sizes]
    return tuple([torch.autograd.grad(run(x).square().sum(), x) for x in leaves] for run in (compiled, fn))  # type: ignore[return-value]


@program
def inference() -> tuple[Any, Any]:
    return results(wave, torch.ones(4, 3))


@program
def inference_with_sizes_that_vary() -> tuple[Any, Any]:
    return results(wave, torch.ones(4, 3), torch.ones(7, 3), dynamic=True)


@program
def sizes_that_the_backend_asks() -> tuple[Any, Any]:
    """What AOTAutograd or Inductor wants to know of a size is a guard, whether it is compiled or found."""
    return results(lambda x: torch.einsum("ij,kj->ik", x, x), *(torch.ones(n, 3) for n in (4, 1, 7)), dynamic=True)


@program
def training() -> tuple[Any, Any]:
    return gradients(wave, 4)


@program
def training_with_sizes_that_vary() -> tuple[Any, Any]:
    return gradients(wave, 4, 7, dynamic=True)


@program
def forward_mode() -> tuple[Any, Any]:
    """Begins with zeros that have no memory, and calls a function of ours in the graph."""

    def pushed(x: torch.Tensor) -> torch.Tensor:
        return torch.func.jvp(wave, (x,), (x.cos(),))[1]

    return results(pushed, torch.ones(4))


@program
def a_mode() -> tuple[Any, Any]:
    return results(wave, torch.ones(5, 3), mode="max-autotune-no-cudagraphs")


@torch.library.custom_op("warm_start::theirs", mutates_args=())
def theirs(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@theirs.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@program
def an_operator_of_others() -> tuple[Any, Any]:
    return results(lambda x: theirs(x).sin(), torch.ones(4, 3))


def told() -> dict[str, dict[str, int]]:
    """Run each program as if nothing were compiled, and collect the counters of the caches."""
    found = {}
    for name, run in PROGRAMS.items():
        counters.clear()
        torchdynamo.reset()
        got, want = run()
        torch.testing.assert_close(got, want)
        counts = [(counters["inductor"], COUNTS), (counters["aot_autograd"], AOT_COUNTS)]
        found[name] = {key: count[key] for count, keys in counts for key in keys if count[key]}
    return found


def main() -> None:
    way, folder = sys.argv[1], Path(sys.argv[2])
    warnings.simplefilter("error", TorchDynamoWarning)
    ways = {way: told()}
    if way == "cold":
        artifacts = torch.compiler.save_cache_artifacts()
        assert artifacts is not None
        (folder / "artifacts").write_bytes(artifacts[0])
    else:
        digest, cache_key.digest_of_sources = cache_key.digest_of_sources, lambda: "that of other sources"
        ways["other"] = told()
        cache_key.digest_of_sources = digest
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "filled")
        assert torch.compiler.load_cache_artifacts((folder / "artifacts").read_bytes()) is not None
        ways["loaded"] = told()
    print(json.dumps(ways))


if __name__ == "__main__":
    main()
