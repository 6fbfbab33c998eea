"""Try a member's result against eager before any of its results is handed out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch

from torchdynamo.backends.ensemble.member import Run
from torchdynamo.backends.ensemble.reference import Outcome, Probe, ProbeKind, Reference

TIMES_EAGER = 4.0  # a member may be off by this many times eager's own error
IMPLAUSIBLE = 1e-2  # float64 that differs from eager by more computes something else, and proves nothing
_WIDTH = {torch.float64: 1e-7, torch.float32: 1.3e-6, torch.bfloat16: 1.6e-2, torch.float16: 1e-3}


class Differs(Exception):
    """Raised for a member whose outcome is not eager's; its message says on which inputs, and in what."""


def validate(reference: Reference, run: Run, untried: Collection[ProbeKind] = ()) -> float:
    """Try a member on each probe. Returns its largest error against float64, relative to the largest value.

    untried: kinds of probes that are left out. Raises Differs.
    """
    error, first, kept = 0.0, None, None
    for probe in reference:
        if probe.kind in untried:
            continue
        found = reference.outcome(run, probe.inputs)
        try:
            error = max(error, compared(probe, found))
        except Differs as difference:
            raise Differs(f"on {probe.name}: {difference}") from None
        if first is None:
            first = found
            kept = [each.detach().clone() if isinstance(each, torch.Tensor) else each for each in found.results]
        elif kept is not None:
            _unchanged(first.results, kept)
    return error


def _unchanged(results: Sequence[Any], kept: Sequence[Any]) -> None:
    for result, copy in zip(results, kept, strict=True):
        if isinstance(result, torch.Tensor) and not torch.equal(bits(result), bits(copy)):
            raise Differs("a result changed in the next call: it lies in a buffer that is used again")


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in which equal means the same bits, NaN included."""
    plain = tensor.detach().contiguous()
    return (
        plain.view(torch.uint8) if plain.is_floating_point() and plain.numel() and plain.dim() else plain.nan_to_num()
    )


def compared(probe: Probe, found: Outcome) -> float:
    """Return the error of an outcome against float64. Raises Differs where it is not eager's within tolerance."""
    wanted = probe.wanted
    if wanted.error is not None or found.error is not None:
        if wanted.error is None:
            raise Differs(f"it raises {type(found.error).__name__}: {found.error}")
        if found.error is None:
            raise Differs(f"eager raises {type(wanted.error).__name__}, and it does not")
        return 0.0
    if len(wanted.values) != len(found.values):
        raise Differs(f"it gives {len(found.values)} values, and eager {len(wanted.values)}")
    if sharing(wanted) != sharing(found):
        raise Differs("its results share memory with other tensors than eager's")
    exact = probe.exact or []
    error = 0.0
    for index, (want, have) in enumerate(zip(wanted.values, found.values)):
        same_kind(want, have)
        if isinstance(want, torch.Tensor):
            error = max(error, close(want, have, exact[index] if index < len(exact) else None))
        elif want is not have and want != have:
            raise Differs(f"it gives {have!r} where eager gives {want!r}")
    return error


def sharing(outcome: Outcome) -> list[tuple[int, int] | None]:
    """Return, for each result, the first input or earlier result in whose memory it lies, and its offset there."""
    seen: dict[int, int] = {}
    for index, value in enumerate(outcome.given):
        if isinstance(value, torch.Tensor):
            seen.setdefault(value.untyped_storage()._cdata, index)
    found: list[tuple[int, int] | None] = []
    for index, value in enumerate(outcome.results, len(outcome.given)):
        if not isinstance(value, torch.Tensor):
            found.append(None)
            continue
        memory = value.untyped_storage()._cdata
        found.append((seen[memory], int(value.storage_offset())) if memory in seen else None)
        seen.setdefault(memory, index)
    return found


def same_kind(want: Any, have: Any) -> None:
    """Raise Differs unless both are tensors of one shape, dtype, device and stride, or neither is a tensor."""
    if not isinstance(want, torch.Tensor) or not isinstance(have, torch.Tensor):
        if type(want) is not type(have):
            raise Differs(f"it gives a {type(have).__name__} where eager gives a {type(want).__name__}")
        return
    for name in ("shape", "dtype", "device", "layout", "requires_grad"):
        if getattr(want, name) != getattr(have, name):
            raise Differs(f"{name} {getattr(have, name)} for eager's {getattr(want, name)}")
    if want.numel() and _strides(want) != _strides(have):
        raise Differs(f"strides {have.stride()} for eager's {want.stride()}")


def _strides(tensor: torch.Tensor) -> list[int]:
    return [stride for size, stride in zip(tensor.shape, tensor.stride()) if size > 1]


def close(want: torch.Tensor, have: torch.Tensor, exact: Any) -> float:
    """Return a tensor's largest error against float64, relative to the largest value; 0 without a float64 result.

    Raises Differs if NaN or infinities are elsewhere than eager's, or the error is above eager's by `TIMES_EAGER`.
    """
    want, have = want.detach(), have.detach()
    if not want.is_floating_point() and not want.is_complex():
        if not torch.equal(want, have):
            raise Differs(f"other values than eager's: {_count(want != have)}")
        return 0.0
    if want.is_complex():
        return close(torch.view_as_real(want), torch.view_as_real(have), None)
    finite = want.isfinite()
    special = want.nan_to_num(0.0, 1.0, -1.0).masked_fill(finite, 0.0)
    if not torch.equal(want.isnan(), have.isnan()):
        raise Differs(f"NaN elsewhere than eager: {_count(want.isnan() != have.isnan())}")
    if not torch.equal(special, have.nan_to_num(0.0, 1.0, -1.0).masked_fill(have.isfinite(), 0.0)):
        raise Differs("infinities elsewhere than eager")
    if not bool(finite.any()):
        return 0.0
    tolerance = _WIDTH.get(want.dtype, 1e-7)
    if isinstance(exact, torch.Tensor) and exact.shape == want.shape and exact.is_floating_point():
        usable = finite & exact.isfinite()
        right = exact.masked_fill(~usable, 0.0)
        scale = max(float(right.abs().max()), torch.finfo(torch.float32).tiny)
        eager, member = (
            float((each.double().masked_fill(~usable, 0.0) - right).abs().max()) / scale for each in (want, have)
        )
        if eager < IMPLAUSIBLE:
            allowed = max(TIMES_EAGER * eager, tolerance)
            if member > allowed:
                raise Differs(f"its error against float64 is {member:.1e}, eager's {eager:.1e}")
            return member
    largest = max(float(want.masked_fill(~finite, 0.0).abs().max()), torch.finfo(torch.float32).tiny)
    off = float((have.double() - want.double()).masked_fill(~finite, 0.0).abs().max()) / largest
    if off > 8 * tolerance:
        raise Differs(f"it differs from eager by {off:.1e} of the largest value")
    return 0.0


def _count(differs: torch.Tensor) -> str:
    return f"{int(differs.sum())} of {differs.numel()}"
