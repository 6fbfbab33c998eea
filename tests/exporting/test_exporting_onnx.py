"""`torch.onnx` takes exported programs: what ONNX Runtime computes is what the program does, at other sizes too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

import torchdynamo

WHY = "onnx, onnxscript and onnxruntime are not installed: make backends"
pytest.importorskip("onnxscript", reason=WHY)
onnxruntime = pytest.importorskip("onnxruntime", reason=WHY)


class Classifier(nn.Module):
    """Branches on its sizes and on a number, and returns a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
        self.register_buffer("mean", torch.randn(16))

    def forward(self, x: torch.Tensor, scale: float = 2.0) -> dict[str, torch.Tensor]:
        if x.shape[0] > 1:
            x = x - x.mean(0)
        scores = self.layers(x - self.mean) * scale
        return {"scores": scores, "best": scores.argmax(1)}


class Attention(nn.Module):
    """Two heads, with their mask made in the call."""

    def __init__(self) -> None:
        super().__init__()
        self.split = nn.Linear(16, 48)
        self.join = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        heads = [part.unflatten(-1, (2, 8)).transpose(1, 2) for part in self.split(x).chunk(3, -1)]
        found = nn.functional.scaled_dot_product_attention(*heads, attn_mask=mask)
        return self.join(found.transpose(1, 2).flatten(2))


def chosen(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


def run(file: Path, x: torch.Tensor) -> list[torch.Tensor]:
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    (only,) = session.get_inputs()
    return [torch.from_numpy(each) for each in session.run(None, {only.name: x.numpy()})]


@pytest.mark.parametrize(
    ("make", "shape", "others"),
    [
        (Classifier, (8, 16), [(3, 16), (21, 16)]),
        (Attention, (4, 5, 16), [(2, 5, 16), (9, 5, 16)]),
        (lambda: chosen, (4, 3), [(2, 3), (7, 3)]),
    ],
    ids=["classifier", "attention", "cond"],
)
def test_onnx_runtime_computes_what_the_program_does(
    make: Callable[[], Any], shape: tuple[int, ...], others: list[tuple[int, ...]], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    fn = make()
    if isinstance(fn, nn.Module):
        fn.eval()
    with torch.no_grad():
        program = torchdynamo.export(fn, torch.randn(shape), dynamic_shapes=({0: Dim("batch", min=2)},))
        file = tmp_path / "program.onnx"
        torch.onnx.export(program, f=file, verbose=False)
        for size in [shape, *others]:
            for x in (torch.randn(size), -torch.randn(size).abs()):
                want = fn(x)
                want = list(want.values()) if isinstance(want, dict) else [want]
                for expected, found in zip(want, run(file, x), strict=True):
                    torch.testing.assert_close(found, expected)
