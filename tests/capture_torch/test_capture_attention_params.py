"""SDPAParams, made in a function, given to it, or found in a module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.backends.cuda import SDPAParams

import torchdynamo
from torchdynamo import _native

Q = torch.arange(32.0).view(1, 1, 4, 8)
HELD = SDPAParams(Q, Q + 1, Q + 2, None, 0.5, True, False)


def made(q: Any, params: Any) -> Any:
    params = SDPAParams(q, q + 1, q + 2, None, 0.1, False, True)
    return params.query * params.dropout, params.key, params.value, params.attn_mask, params.is_causal


def made_with_a_mask(q: Any, params: Any) -> Any:
    params = SDPAParams(q, q, q, q * 2, 0.0, True, False)
    return params.attn_mask + 1, params.enable_gqa, isinstance(params, SDPAParams)


def given(q: Any, params: Any) -> Any:
    return q * params.dropout + params.key, params.is_causal, params.attn_mask


def held(q: Any, params: Any) -> Any:
    return q * HELD.dropout + HELD.value, HELD.enable_gqa


USES: list[Callable[[Any, Any], Any]] = [made, made_with_a_mask, given, held]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", USES, ids=lambda fn: fn.__name__)
def test_captured_whole(fn: Callable[[Any, Any], Any], backend: str) -> None:
    compiled = torchdynamo.compile(fn, backend=backend, fullgraph=True)
    for _ in range(2):
        for wanted, found in zip(fn(Q, HELD), compiled(Q, HELD), strict=True):
            assert type(wanted) is type(found)
            assert torch.equal(wanted, found) if isinstance(wanted, torch.Tensor) else wanted == found
    assert len(_native.cache_entries(fn.__code__)) == 1  # type: ignore[attr-defined]


def test_other_contents_are_seen() -> None:
    compiled = torchdynamo.compile(given, backend="eager", fullgraph=True)
    for dropout, mask in ((0.5, None), (0.25, None), (0.5, Q), (0.5, Q * 2)):
        params = SDPAParams(Q, Q + dropout, Q, mask, dropout, False, False)
        (wanted, *_, a), (found, *_, b) = given(Q, params), compiled(Q, params)
        assert torch.equal(wanted, found)
        assert a is b or torch.equal(a, b)


def test_what_leaves_is_one_again_and_what_is_refused_raises_as_in_eager() -> None:
    def leaving(q: Any) -> Any:
        return SDPAParams(q, q * 2, q, None, 0.5, False, False)

    def refused(q: Any) -> Any:
        return SDPAParams(q, 1, q, None, 0.5, False, False)

    left = torchdynamo.compile(leaving, backend="eager", fullgraph=True)(Q)
    assert isinstance(left, SDPAParams) and torch.equal(left.key, Q * 2) and left.dropout == 0.5
    with pytest.raises(TypeError, match="incompatible constructor arguments"):
        torchdynamo.compile(refused, backend="eager")(Q)
