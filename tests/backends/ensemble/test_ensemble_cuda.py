"""The ensemble on a GPU: members, timing by events, results that stay."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from backends.ensemble.competing import compiled, member, states, the_choice, work
from torch import nn

import torchdynamo
from torchdynamo.backends.ensemble import chosen
from torchdynamo.backends.ensemble.measure import MOST, WARM_UPS, Stopwatch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def mlp() -> nn.Module:
    return nn.Sequential(*(each for _ in range(8) for each in (nn.Linear(64, 64), nn.GELU()))).cuda().eval()


def test_members_compete_on_a_gpu() -> None:
    model, x = mlp(), torch.randn(8, 64, device="cuda")
    with torch.no_grad():
        fn = compiled(model, tune="now", budget=300.0)
        for _ in range(5):
            torch.testing.assert_close(fn(x), model(x))
    found = states()
    assert found["inductor"] == "built" and found["cudagraphs"] == "built" and found["linear"] == "declined"
    assert chosen() != ["eager"]  # sixteen small kernels wait for their launches


def test_results_of_recordings_are_not_overwritten() -> None:
    model, x = mlp(), torch.randn(8, 64, device="cuda")
    for name in ("cudagraphs", "inductor_cudagraphs"):
        torchdynamo.reset()
        with torch.no_grad():
            fn = compiled(model, tune="now", members=[name])
            first = fn(x)
            kept = first.clone()
            for _ in range(3):
                fn(x * 2)
            assert torch.equal(first, kept), name


def test_changed_weights_are_followed() -> None:
    model, x = mlp(), torch.randn(8, 64, device="cuda")
    with torch.no_grad():
        fn = compiled(model, tune="now", budget=300.0)
        fn(x)
        model[0].weight.mul_(2)
        torch.testing.assert_close(fn(x), model(x))


def test_real_calls_are_timed_without_waiting(compete: Callable[..., None]) -> None:
    compete(member("one", lambda run: run))
    x = torch.randn(256, 256, device="cuda")
    fn = compiled(work)
    for _ in range(2 * (WARM_UPS + 2 * MOST)):
        torch.testing.assert_close(fn(x), work(x))
        torch.cuda.synchronize()
    assert the_choice().winner is not None and the_choice().eager_timing is not None


def test_events_are_read_when_they_have_happened() -> None:
    watch = Stopwatch(cuda=True)
    watch.run("a", lambda: torch.cuda._sleep(1_000_000), ())
    watch.run("b", lambda: None, ())
    watch.wait()
    (first, slept), (second, nothing) = watch.finished()
    assert (first, second) == ("a", "b") and slept > nothing >= 0 and watch.finished() == []


def test_training_on_a_gpu() -> None:
    model, x = mlp().train(), torch.randn(8, 64, device="cuda")
    compiled(model, tune="now")(x).sum().backward()
    found = [each.grad.clone() for each in model.parameters()]
    model.zero_grad()
    model(x).sum().backward()
    for have, want in zip(found, model.parameters()):
        torch.testing.assert_close(have, want.grad, rtol=1e-4, atol=1e-5)
