"""Backends on a GPU: recordings replay right, and decline what they would get wrong."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from graphs import build

from torchdynamo.backends import BACKENDS, compile_graph
from torchdynamo.backends.cuda_graphs.seam import outcome_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
F = torch.nn.functional


def layer(t: Any, x: Any, w: Any, b: Any) -> Any:
    return t("relu", t(F.linear, x, w, b)), t("sum", x)


def layer_inputs() -> list[torch.Tensor]:
    return [torch.randn(4, 8, device="cuda"), torch.randn(8, 8, device="cuda"), torch.randn(8, device="cuda")]


def test_a_recording_follows_its_inputs() -> None:
    inputs = layer_inputs()
    gm = build(layer, *inputs, static=[1, 2])
    compiled = BACKENDS["cudagraphs"](gm, inputs, options={"cudagraphs": "required"})
    results = []
    for _ in range(6):
        inputs[0] = torch.randn(4, 8, device="cuda")
        inputs[1].mul_(1.5)  # where it is
        results.append((gm(*inputs), compiled(*inputs)))
    for _ in range(3):
        inputs[2].data = torch.randn(8, device="cuda")  # elsewhere
        results.append((gm(*inputs), compiled(*inputs)))
    for want, got in results:
        assert all(map(torch.equal, want, got))
    assert outcome_of(gm) == ["inference: 3 recordings, 7 replays, plain calls: 2 (the first calls are watched)"]


def test_a_graph_that_computes_on_the_cpu_too_is_never_recorded() -> None:
    x = torch.randn(4, 4, device="cuda")
    gm = build(lambda t, x: t("cpu", x), x)
    compiled = BACKENDS["cudagraphs"](gm, [x])
    assert torch.equal(compiled(x)[0], gm(x)[0])
    assert "is on cpu" in outcome_of(gm)[0]


@pytest.mark.parametrize("name", ["aot_eager", "inductor"])
@pytest.mark.parametrize("trained", [True, False])
def test_compiled_on_the_gpu(name: str, trained: bool) -> None:
    inputs = [t.requires_grad_(trained) for t in layer_inputs()]
    gm = build(layer, *inputs, static=[1, 2])
    want, got = gm(*inputs), BACKENDS[name](gm, inputs)(*inputs)
    torch.testing.assert_close(want, tuple(got))
    if trained:
        for a, b in zip(*(torch.autograd.grad(out[0].square().sum(), inputs) for out in (want, got)), strict=True):
            torch.testing.assert_close(a, b)


def test_inductor_records_and_copies_only_what_moves() -> None:
    """The input that lies elsewhere each time, and the results, in one call each."""
    inputs = layer_inputs()
    gm = build(layer, *inputs, static=[1, 2])
    with torch.no_grad():
        compiled = BACKENDS["inductor"](gm, inputs, mode="reduce-overhead")
        for _ in range(4):
            inputs[0] = torch.randn(4, 8, device="cuda")
            torch.testing.assert_close(gm(*inputs), tuple(compiled(*inputs)))
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            compiled(*inputs)
            torch.cuda.synchronize()
    copies = [event for event in profile.events() if "copy" in event.name.lower() or "memcpy" in event.name.lower()]
    assert len(copies) <= 2, [event.name for event in copies]


def test_random_numbers_of_the_gpu_are_put_back() -> None:
    x = torch.randn(64, device="cuda")
    gm = build(lambda t, x: t(operator.mul, t(F.dropout, x), 2), x)

    def nosy(gm: Any, example_inputs: Any) -> Any:
        gm(*example_inputs)
        return gm.forward

    before = torch.cuda.get_rng_state()
    compile_graph(gm, [x], nosy, "__compiled_fn_0")
    assert torch.equal(before, torch.cuda.get_rng_state())
