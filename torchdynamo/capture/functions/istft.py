"""`torch.istft`, step by step as in C++: of whether its windows overlap, only its steps can speak in a graph."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch

from torchdynamo.capture.vm.model import function, models
from torchdynamo.core.signals import Break
from torchdynamo.core.value import Known, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

LEAST = 1e-11
BY_ROOT_N, BY_N = 1, 2


def steps(input, n_fft, hop, width, window, center, normalized, half, length, return_complex):
    if width != n_fft:
        left = (n_fft - width) // 2
        window = torch.ops.aten.constant_pad_nd(window, [left, n_fft - width - left], 0)
    parts = torch.view_as_real(input.resolve_conj())
    if input.dim() == 2:
        parts = parts.unsqueeze(0)
    spectrum = torch.view_as_complex(parts.transpose(1, 2))
    norm = BY_ROOT_N if normalized else BY_N
    if return_complex:
        pieces = torch.ops.aten._fft_c2c(spectrum, [2], norm, False)
    else:
        spectrum = spectrum if half else spectrum[..., : n_fft // 2 + 1]
        pieces = torch.ops.aten._fft_c2r(spectrum, [2], norm, n_fft)
    frames = input.shape[-1]
    whole = n_fft + hop * (frames - 1)
    weighted = pieces * window.view([1, 1, n_fft])
    signal = torch.ops.aten.unfold_backward(weighted, [weighted.shape[0], whole], 1, n_fft, hop)
    squares = window.pow(2).expand([1, frames, n_fft])
    envelope = torch.ops.aten.unfold_backward(squares, [1, whole], 1, n_fft, hop)
    start = n_fft // 2 if center else 0
    end = whole - start if length is None else start + length
    signal, envelope = signal[:, start:end], envelope[:, start:end]
    if envelope.abs().min() < LEAST:
        raise RuntimeError("window overlap add min: 1")
    signal = signal / envelope
    return signal.squeeze(0) if input.dim() == 2 else signal


DEFAULTS: dict[str, Any] = {"hop_length": None, "win_length": None, "window": None, "center": True}
DEFAULTS |= {"normalized": False, "onesided": None, "length": None, "return_complex": False}
ORDER = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("input", "n_fft", *DEFAULTS)]
SIGNATURE = inspect.Signature(
    [each.replace(default=Known(DEFAULTS[each.name])) if each.name in DEFAULTS else each for each in ORDER]
)


@models(torch._C.TensorBase, "istft")
@function(torch.istft)
def istft(vm: Machine, /, *args: Value, **kwargs: Value) -> Value:
    """What it would warn of or refuse is left to Python."""
    try:
        bound = SIGNATURE.bind(*args, **kwargs)
        bound.apply_defaults()
        input, *rest = bound.arguments.values()
        size, hop, width, window, center, normalized, half, length, is_complex = (
            given if issubclass(given.pytype, torch.Tensor) else vm.known(given, "istft") for given in rest
        )
    except (TypeError, AttributeError):
        raise Break("unknown call", name="istft") from None
    hop = size // 4 if hop is None else hop
    width = size if width is None else width
    spectrum, weights = getattr(input, "fake", None), getattr(window, "fake", None)
    if spectrum is None or weights is None or not spectrum.is_complex() or spectrum.dim() not in (2, 3):
        raise Break("unknown call", name="istft")
    bins, frames = spectrum.shape[-2:]
    half = bins != size if half is None else half
    fits = 0 < hop <= width <= size and weights.shape == (width,) and bins == (size // 2 + 1 if half else size)
    there = size + hop * (frames - 1) - (size // 2 if center else 0)
    if not fits or weights.is_complex() or (is_complex and half) or (length is not None and length > there):
        raise Break("unknown call", name="istft")
    given = [Known(each) for each in (size, hop, width)]
    how = [Known(each) for each in (center, normalized, half, length, is_complex)]
    return vm.inline(Known(steps), [input, *given, window, *how], {})
