"""What a compile leaves changed for the process, or shows to other threads: as the tables in docs/limits.md say."""

from __future__ import annotations

import builtins
import gc
import importlib
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from apart import in_a_fork

import torchdynamo
from torchdynamo.backends.recursion_limit import recursion_limit_restored
from torchdynamo.graph.patches import PATCHES

LIMITS = Path(__file__).parent.parent / "docs" / "limits.md"
# Of torch, for good: what docs/limits.md says in the same words.
REPLACED = {target for target, patch in PATCHES.items() if patch.stays}
LOGGERS = ("torch._subclasses.fake_tensor", "torch.fx.experimental.symbolic_shapes")


def broken(x: torch.Tensor) -> torch.Tensor:
    y = torch.nn.functional.dropout(x, 0.5).relu()
    torchdynamo.graph_break()
    return y + y.shape[0]


def trained(x: torch.Tensor) -> torch.Tensor:
    w = torch.ones(3, requires_grad=True)
    loss = (torch.nn.functional.layer_norm(x, (3,)) * w).sum()
    loss.backward()
    assert w.grad is not None
    return w.grad


PROGRAMS: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (broken, trained)


def run_all(*backends: str) -> None:
    for backend in backends or ("eager", "aot_eager"):
        for program in PROGRAMS:
            compiled = torchdynamo.compile(program, backend=backend)
            for rows in (2, 5, 7):
                compiled(torch.randn(rows, 3))


def callables(module: ModuleType) -> Iterator[tuple[str, int]]:
    """Yield the functions and classes of a module, and what those classes define, with their identities."""
    for name, value in [*vars(module).items()]:
        if isinstance(value, type) and value.__module__ == module.__name__:
            yield from ((f"{name}.{part}", id(each)) for part, each in [*vars(value).items()] if callable(each))
        if callable(value):
            yield name, id(value)


def of_torch() -> dict[str, int]:
    return {
        f"{module.__name__}.{name}": identity
        for module in [*sys.modules.values()]
        if isinstance(module, ModuleType) and module.__name__.partition(".")[0] == "torch"
        for name, identity in callables(module)
    }


def replaced_in_torch() -> list[str]:
    """Return what of torch is another object once programs have been compiled."""
    for name in {name.rpartition(".")[0] for name in REPLACED}:
        importlib.import_module(name)
    before = of_torch()
    run_all()
    torchdynamo.reset()
    after = of_torch()
    return sorted(name for name, identity in before.items() if name in after and after[name] != identity)


@pytest.fixture(scope="module")
def fresh() -> str:
    """A program for a process in which nothing has been compiled."""
    return (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "import test_process_state as here\n"
        "import torch._functorch.aot_autograd, torch._subclasses.fake_tensor, torch.fx.experimental.symbolic_shapes\n"
    )


@pytest.mark.long
def test_the_table_of_what_stays_replaced_in_torch(fresh: str) -> None:
    program = f"{fresh}print('\\n'.join(here.replaced_in_torch()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == REPLACED
    text = LIMITS.read_text()
    assert all(f"`{name}`" in text for name in (*REPLACED, *LOGGERS))


def state() -> dict[str, Any]:
    """What another thread, or the program afterwards, can see of the process."""
    return {
        "recursion limit": sys.getrecursionlimit(),
        "filters": [*warnings.filters],
        "showwarning": warnings.showwarning,
        "builtins": {name: id(value) for name, value in vars(builtins).items()},
        "threshold": gc.get_threshold(),
        "switch interval": sys.getswitchinterval(),
        "hooks": (sys.excepthook, sys.unraisablehook, sys.displayhook, threading.excepthook),
        "streams": (sys.stdout, sys.stderr),
        "default dtype": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "threads": torch.get_num_threads(),
        "oblivious": torch.fx.experimental._config.backed_size_oblivious,  # type: ignore[attr-defined]
        "gradients": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
    }


def of_the_process(setting: str) -> bool:
    """Return whether another thread sees torch's own settings change: until PyTorch 2.13 they are of all threads."""
    with torch.fx.experimental._config.patch(**{setting: True}), ThreadPoolExecutor(1) as other:  # type: ignore[attr-defined]
        return bool(other.submit(getattr, torch.fx.experimental._config, setting).result())  # type: ignore[attr-defined]


@pytest.mark.parametrize(("backend", "shown"), [("eager", set()), ("aot_eager", {"filters"})])
def test_a_watching_thread_sees_nothing_but_the_collector_off(backend: str, shown: set[str]) -> None:
    """And what torch replaces of `warnings` where it makes fake tensors and in AOTAutograd."""
    shown = shown | {"threshold", "showwarning"}
    run_all(backend)  # what is imported, and set for good, comes with the first
    if of_the_process("backed_size_oblivious"):
        shown = shown | {"oblivious"}
    expected, seen, stop = state(), [], threading.Event()

    def watch() -> None:
        while not stop.is_set():
            now = state()
            seen.append({name for name in now if now[name] != expected[name]})

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        for _ in range(3):
            torchdynamo.reset()
            run_all(backend)
    finally:
        stop.set()
        thread.join()
    assert len(seen) > 10
    assert set().union(*seen) <= shown


def test_afterwards_all_is_as_it_was() -> None:
    run_all()
    torchdynamo.reset()
    expected, handler = state(), signal.getsignal(signal.SIGINT)
    run_all()
    assert state() == expected
    assert gc.isenabled()
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.parametrize(("asked", "left"), [(2000, 1000), (3000, 3000)])
def test_the_limit_that_inductor_raises_and_the_one_that_the_program_sets(asked: int, left: int) -> None:
    def compiled() -> int:
        sys.setrecursionlimit(1000)
        with recursion_limit_restored(), recursion_limit_restored():  # a thread and another one
            sys.setrecursionlimit(asked)
        return sys.getrecursionlimit()

    assert in_a_fork(compiled) == left


def raise_the_limit() -> int:
    """Return the limit that the program sets while a frame is compiled."""

    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        sys.setrecursionlimit(sys.getrecursionlimit() + 7)
        gc.set_threshold(123, 4, 5)
        return gm.forward

    before = sys.getrecursionlimit()
    torchdynamo.compile(lambda x: x + 1, backend=backend)(torch.ones(3))
    assert gc.get_threshold() == (123, 4, 5)
    return sys.getrecursionlimit() - before


def test_what_the_program_sets_meanwhile_stays() -> None:
    assert in_a_fork(raise_the_limit) == 7
