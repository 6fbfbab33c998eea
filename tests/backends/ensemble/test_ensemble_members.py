"""Each of PyTorch's own compilers builds what it takes, as eager computes it, and says why it declines the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from backends.ensemble.competing import compiled, reasons, states, the_choice
from torch import nn
from torch._dynamo.utils import counters

import torchdynamo
from torchdynamo.backends.ensemble.member import MEMBERS

CPU = ["linear", "inductor", "inductor_linear", "inductor_freezing", "onednn_graph", "ofi", "ts"]


def small_conv() -> nn.Module:
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 8, 3), nn.ReLU6(inplace=True)]
    return nn.Sequential(
        *layers, nn.Hardtanh(), nn.Conv2d(8, 8, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    )


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)), (8, 16)),
    "conv": (small_conv, (2, 3, 12, 12)),
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.1), (2, 8, 16)),
}


@pytest.mark.parametrize(
    ("name", "constants"),
    [
        ("mlp", False),
        ("conv", True),
        ("encoder", False),
        *(
            pytest.param(*others, marks=pytest.mark.long)
            for others in [("mlp", True), ("conv", False), ("encoder", True)]
        ),
    ],
)
def test_members_are_right_or_out(name: str, constants: bool) -> None:
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model, x = make().eval(), torch.randn(shape)
    with torch.no_grad():
        fn = compiled(model, tune="now", constants=constants)
        for _ in range(3):
            torch.testing.assert_close(fn(x), model(x))
    found = [each for each in torchdynamo.backends.ensemble.choices if each.candidates]
    assert found and all(each.state != "failed" for one in found for each in one.candidates.values())
    assert any(one.candidates["inductor"].state == "built" for one in found)


def test_freezing_keeps_nan_through_activations() -> None:
    model, x = small_conv().eval(), torch.randn(2, 3, 12, 12)
    x[0, 0, 0, 0] = float("nan")
    with torch.no_grad():
        fn = compiled(model, tune="now", constants=True, members=["inductor_freezing"])
        torch.testing.assert_close(fn(x), model(x), equal_nan=True)
    assert states() == {"inductor_freezing": "built"}, reasons()


def test_batch_norms_are_folded_into_convolutions_of_constants() -> None:
    model, x = small_conv().eval(), torch.randn(2, 3, 12, 12)
    counters.clear()
    with torch.no_grad():
        fn = compiled(model, tune="now", constants=True, members=["inductor_freezing"])
        torch.testing.assert_close(fn(x), model(x))
    assert counters["inductor"]["binary_folding_conv"] == 4  # subtract the mean, times the root, weight, plus bias


def linear(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
    return F.linear(x, w, b)


@pytest.mark.parametrize("kind", ["no bias", "empty batch", "transposed", "addmm", "vector", "nan"])
def test_linear_is_eagers_to_the_tolerance(kind: str) -> None:
    x, w, b = torch.randn(16, 8), torch.randn(4, 8), torch.randn(4)
    fn = compiled(linear, tune="now", members=["linear"])
    given: tuple[Any, ...] = (x, w, b)
    wanted: Any = linear
    if kind == "no bias":
        given = (x, w, None)
    elif kind == "empty batch":
        given = (x[:0], w, b)
    elif kind == "transposed":
        given = (torch.randn(8, 16).t(), torch.randn(8, 4).t(), b)
    elif kind == "vector":
        given = (x[0], w, b)
    elif kind == "nan":
        given = (x.masked_fill(x > 1, float("nan")), w, b)
    elif kind == "addmm":
        wanted = lambda x, w, b: torch.addmm(b, x, w.t())  # noqa: E731
        fn = compiled(wanted, tune="now", members=["linear"])
    with torch.no_grad():
        found, expected = fn(*given), wanted(*given)
    torch.testing.assert_close(found, expected, equal_nan=True)
    assert found.stride() == expected.stride() and states()["linear"] in ("built", "declined")


def test_linear_declines_gradients_other_dtypes_autocast_and_no_onednn() -> None:
    model = nn.Linear(8, 8)
    x = torch.randn(16, 8)

    def reason(model: nn.Module, x: torch.Tensor) -> str:
        torchdynamo.reset()
        torchdynamo.backends.ensemble.choices.clear()
        fn = compiled(model, tune="now", members=["linear"])
        result = fn(x)
        assert result.dtype == model(x).dtype and torch.equal(result, model(x))
        return reasons()["linear"]

    assert "trained" in reason(model, x)
    with torch.no_grad():
        assert "float32" in reason(nn.Linear(8, 8).double(), x.double())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert "autocast" in reason(model, x)
        torch.backends.mkldnn.enabled = False
        try:
            assert "switched off" in reason(model, x)
        finally:
            torch.backends.mkldnn.enabled = True


def test_gradients_come_through() -> None:
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Tanh()), torch.randn(16, 8)
    compiled(model, tune="now")(x).sum().backward()
    found = [each.grad.clone() for each in model.parameters()]
    model.zero_grad()
    model(x).sum().backward()
    for have, want in zip(found, model.parameters()):
        torch.testing.assert_close(have, want.grad)
    assert states()["inductor"] == "built" and states()["linear"] == "declined"


def test_flag_of_onednn_graph_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchdynamo.backends.ensemble.members import torchscript

    seen: list[bool] = []

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        seen.append(torch.jit.onednn_fusion_enabled())
        raise RuntimeError("interrupted")

    monkeypatch.setattr(torch.jit, "trace", interrupted)
    with torch.no_grad():
        compiled(nn.Linear(4, 4), tune="now", members=["onednn_graph"])(torch.randn(2, 4))
    assert seen == [True] and not torch.jit.onednn_fusion_enabled()
    assert "interrupted" in reasons()["onednn_graph"] and torchscript.WARM_UPS >= 3


def test_gpu_members_say_that_they_need_one() -> None:
    with torch.no_grad():
        compiled(nn.Linear(4, 4), tune="now", members=["cudagraphs", "inductor_cudagraphs"])(torch.randn(2, 4))
    assert all("cuda" in reason for reason in reasons().values())


def test_ranks_and_files() -> None:
    ranks = [member.rank for member in MEMBERS.values()]
    assert ranks == sorted(ranks) and set(CPU) <= set(MEMBERS)


def test_symbols_are_for_inductor() -> None:
    fn = torchdynamo.compile(
        lambda x: torch.tanh(x) + 1,
        backend="ensemble",
        dynamic=True,
        options={"tune": "now", "members": ["inductor", "ts"]},
    )
    with torchdynamo.config.patch(cache_size_limit=1):
        for size in (3, 4, 5):
            x = torch.randn(size)
            torch.testing.assert_close(fn(x), torch.tanh(x) + 1)
    symbolic = [each for each in torchdynamo.backends.ensemble.choices if each.candidates["ts"].state == "declined"]
    assert [each.candidates["inductor"].state for each in symbolic] == ["built"]


def test_rows_show_every_member() -> None:
    with torch.no_grad():
        compiled(nn.Linear(4, 4), tune="now", members=["ts", "linear"])(torch.randn(2, 4))
    rows = the_choice().rows()
    assert [row[0] for row in rows] == ["eager", "linear", "ts"]
    assert rows[0][2].endswith(" ms") and "eight rows" in rows[1][3] and "x)" in rows[2][2]
