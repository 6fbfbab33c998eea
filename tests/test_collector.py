"""The garbage collector rests while a frame is compiled, works for backends, and is left as it was."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.hook.collector import awake, resting


@pytest.fixture
def turned_off() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_it_rests_and_wakes() -> None:
    with resting():
        assert not gc.isenabled()
        with awake():
            assert gc.isenabled()
        with resting():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with awake():
        assert gc.isenabled()


def test_it_stays_off_for_a_user_who_turned_it_off(turned_off: None) -> None:
    with resting(), awake():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_two_threads() -> None:
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with resting():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with resting():
        thread.start()
        inside.wait(10)
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


@pytest.mark.parametrize("fails", [False, True])
def test_backends_have_it(fails: bool) -> None:
    seen = []

    def backend(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        seen.append(gc.isenabled())
        if fails:
            raise ValueError
        return gm.forward

    if fails:
        with pytest.warns(torchdynamo.errors.FallbackWarning):
            torchdynamo.compile(lambda x: x + 1, backend=backend)(torch.ones(3))
    else:
        torchdynamo.compile(lambda x: x + 1, backend=backend)(torch.ones(3))
    assert seen == [True]
    assert gc.isenabled()


class Asked:
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


ASKED = Asked()


def swallows(x: torch.Tensor) -> torch.Tensor:
    return x + hasattr(ASKED, "missing")


def test_captures_leave_it_nothing(turned_off: None) -> None:
    """What a capture was made of goes with it, also where the program raised and caught."""
    torchdynamo.compile(swallows, backend="eager", fullgraph=True)(torch.ones(3))
    assert not [each for each in gc.get_objects() if type(each) is Machine]
