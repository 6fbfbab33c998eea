"""The state of torch: whatever decides what an operator does, and belongs to no object of the frame."""

from __future__ import annotations

import contextlib
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from guarding import Guarded
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from torchdynamo.core.source import Guard, Source
from torchdynamo.guards.explain import first_failure

torch.set_float32_matmul_precision("highest")  # said aloud: what nobody has set is another state

STATE = Guard(Source("globals"), "GLOBAL_STATE")


class FunctionMode(TorchFunctionMode):
    pass


class DispatchMode(TorchDispatchMode):
    pass


@contextlib.contextmanager
def setting(get: Callable[[], Any], put: Callable[[Any], Any], value: Any) -> Iterator[None]:
    before = get()
    put(value)
    try:
        yield
    finally:
        put(before)


@contextlib.contextmanager
def vmap() -> Iterator[None]:
    torch._C._functorch._vmap_increment_nesting(3, "error")
    try:
        yield
    finally:
        torch._C._functorch._vmap_decrement_nesting()


@contextlib.contextmanager
def default_device(device: str) -> Iterator[None]:
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_device(None)


def autocast_dtype(dtype: torch.dtype) -> Any:
    return setting(lambda: torch.get_autocast_dtype("cpu"), lambda value: torch.set_autocast_dtype("cpu", value), dtype)


CHANGES: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu"),
    "autocast of another dtype": lambda: torch.autocast("cpu", torch.float16),
    "autocast without cache": lambda: torch.autocast("cpu", enabled=False, cache_enabled=False),
    "autocast dtype": lambda: autocast_dtype(torch.float16),
    "default dtype": lambda: setting(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "default device": lambda: default_device("meta"),
    "device context": lambda: torch.device("cpu"),
    "deterministic": lambda: setting(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True
    ),
    "function mode": FunctionMode,
    "dispatch mode": DispatchMode,
    "no torch function": torch._C.DisableTorchFunctionSubclass,
    "saved tensor hooks": lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x),
    "no saved tensor hooks": lambda: torch.autograd.graph.disable_saved_tensors_hooks("no"),
    "anomaly": lambda: torch.autograd.detect_anomaly(check_nan=False),
    "vmap": vmap,
    "no mkldnn": lambda: torch.backends.mkldnn.flags(enabled=False),
    "matmul precision": lambda: setting(
        torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"
    ),
    "no flash attention": lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
    "forward mode off": lambda: torch.autograd.forward_ad._set_fwd_grad_enabled(False),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.filterwarnings("ignore")
def test_a_change_is_noticed_and_named(name: str) -> None:
    outside = Guarded([STATE])
    assert outside.holds()
    with CHANGES[name]():
        inside = Guarded([STATE])
        assert inside.holds()
        assert not outside.holds()
        failure = first_failure(outside.guards, outside.roots)
        assert failure is not None
        assert failure.change.old != failure.change.new
    assert outside.holds()
    assert not inside.holds()


@pytest.mark.parametrize("name", [name for name in CHANGES if name not in ("function mode", "dispatch mode")])
@pytest.mark.filterwarnings("ignore")
def test_the_same_state_again_holds(name: str) -> None:
    with CHANGES[name]():
        inside = Guarded([STATE])
    with CHANGES[name]():
        assert inside.holds()


def test_default_devices_are_told_apart() -> None:
    with torch.device("meta"):
        meta = Guarded([STATE])
    with torch.device("cpu"):
        assert not meta.holds()
    with torch.device("meta"), torch.device("cpu"):
        assert not meta.holds()
    with torch.device("meta"):
        assert meta.holds()


def test_function_modes_are_told_apart() -> None:
    mode = FunctionMode()
    with mode:
        one = Guarded([STATE])
        assert one.holds()
    with FunctionMode():
        assert not one.holds()
    with mode:
        assert one.holds()


def test_each_thread_has_its_own() -> None:
    asked = Guarded([STATE])
    with torch.no_grad():
        within = Guarded([STATE])
    answers: list[bool] = []

    def ask() -> None:
        answers.append(asked.holds())
        with torch.no_grad():
            answers.extend([asked.holds(), within.holds()])

    for _ in range(20):
        threads = [threading.Thread(target=ask) for _ in range(2)]
        with torch.no_grad():
            assert not asked.holds()
            for thread in threads:
                thread.start()
            assert within.holds()
            for thread in threads:
                thread.join()
        assert asked.holds()
    assert answers.count(True) == 80 and answers.count(False) == 40


def test_it_can_be_written_to_disk() -> None:
    state = Guarded([STATE]).guards[0].arg
    assert pickle.loads(pickle.dumps(state)) == state


def test_a_state_of_another_build_is_refused() -> None:
    with pytest.raises(ValueError, match="another version"):
        Guarded([STATE._replace(arg=(b"short", ()))])
