"""Backends on a GPU: recordings replay right, and decline what they would get wrong."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from graphs import build

from torchdynamo.backends import BACKENDS, compile_graph
from torchdynamo.backends.builtin.cudagraphs import Recording

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
F = torch.nn.functional


def layer(t: Any, x: Any, w: Any, b: Any) -> Any:
    return t("relu", t(F.linear, x, w, b)), t("sum", x)


def layer_inputs() -> list[torch.Tensor]:
    return [torch.randn(4, 8, device="cuda"), torch.randn(8, 8, device="cuda"), torch.randn(8, device="cuda")]


def test_a_recording_follows_its_inputs() -> None:
    inputs = layer_inputs()
    gm = build(layer, *inputs, static=[1, 2])
    compiled = BACKENDS["cudagraphs"](gm, inputs)
    assert isinstance(compiled, Recording)
    results = []
    for _ in range(3):
        inputs[0] = torch.randn(4, 8, device="cuda")
        inputs[1].mul_(1.5)  # where it is
        results.append((gm(*inputs), compiled(*inputs)))
    inputs[2].data = torch.randn(8, device="cuda")  # elsewhere
    results.append((gm(*inputs), compiled(*inputs)))
    for want, got in results:
        assert all(map(torch.equal, want, got))


def test_what_a_recording_declines() -> None:
    x = torch.randn(4, 4, device="cuda")
    cudagraphs = BACKENDS["cudagraphs"]
    assert cudagraphs(build(lambda t, x: t("add_", x, 1), x), [x]) is None
    assert cudagraphs(build(lambda t, x: t(F.dropout, x), x), [x]) is None
    assert cudagraphs(build(lambda t, x: t("t", x), x), [x]) is None
    assert cudagraphs(build(lambda t, x: t("cpu", x), x), [x]) is None
    wide = x[:, :1].expand(4, 4)
    assert cudagraphs(build(lambda t, x: t("sin", x), wide), [wide]) is None
    trained = x.clone().requires_grad_()
    gm = build(lambda t, x: t("sin", x), trained)
    assert cudagraphs(gm, [trained]) is None
    with torch.no_grad():
        assert cudagraphs(gm, [trained]) is not None


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
            torch.testing.assert_close(gm(*inputs), tuple(t.clone() for t in compiled(*inputs)))
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
