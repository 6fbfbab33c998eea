"""Breaks inside torch's contexts: the rest runs under the same state, and the state is put back in the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from counting import Counting
from pictures import assert_alike

import torchdynamo

X = torch.randn(2, 4)
PROGRAMS: list[Callable[..., Any]] = []


def program(fn: Callable[..., Any]) -> Callable[..., Any]:
    PROGRAMS.append(fn)
    return fn


def state() -> tuple[Any, ...]:
    """What the contexts switch."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.backends.cuda.math_sdp_enabled(),
        torch.backends.cuda.flash_sdp_enabled(),
        torch.backends.cudnn.enabled,
        torch.empty(0).device,
    )


@program
def in_no_grad(x):
    with torch.no_grad():
        y = x * 2
        torchdynamo.graph_break()
        y = y + 1
        inside = state()
    return y * x, inside


@program
def in_autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.T
        torchdynamo.graph_break()
        z = y @ y
        inside = state()
    return y, z, x @ x.T, inside


@program
def in_inference_mode(x):
    with torch.inference_mode():
        y = x * 2
        torchdynamo.graph_break()
        z = y + 1
        inside = state()
    return y, z, x + 1, inside


@program
def in_device(x):
    with torch.device("meta"):
        y = torch.ones(2)
        torchdynamo.graph_break()
        z = torch.zeros(3)
        inside = state()
    return y.device, z.device, x + torch.ones(4), inside


@program
def in_kernel_choice(x):
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        y = F.scaled_dot_product_attention(x[None], x[None], x[None])
        torchdynamo.graph_break()
        inside = state()
        return y * 2, inside


@program
def in_flags(x):
    with torch.backends.cudnn.flags(enabled=False):
        y = x + 1
        torchdynamo.graph_break()
        return y * 2, state()


@program
def nested(x):
    with torch.no_grad(), torch.autocast("cpu"):
        for _ in range(2):
            with torch.enable_grad():
                x = x @ x.T.float()
                torchdynamo.graph_break()
                x = (x * 2).float()
        inside = state()
    return x, inside


@program
def switched_for_good(x):
    torch.set_grad_enabled(False)
    y = x * 2
    torchdynamo.graph_break()
    z = y + x
    torch.set_grad_enabled(True)
    return y, z


@program
def left_by_an_exception(x):
    try:
        with torch.no_grad():
            y = x + 1
            torchdynamo.graph_break()
            raise ValueError(str(state()[0]))
    except ValueError as error:
        return y * 2, str(error), state()


def quiet(x):
    with torch.no_grad():
        torchdynamo.graph_break()
        return x * 3, state()


@program
def in_a_callee(x):
    y = x * 2
    z, inside = quiet(y)
    return y + z, inside, state()


@program
def in_custom_function(x):
    return Doubled.apply(x) + 1, state()


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        torchdynamo.graph_break()
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


@program
def in_vmap(x):
    def row(r):
        torchdynamo.graph_break()
        return r.sum() * r

    return torch.vmap(row)(x + 1) * 2, state()


@program
def in_func_grad(x):
    def loss(y):
        torchdynamo.graph_break()
        return (y * y).sum()

    return torch.func.grad(loss)(x + 1) * 2, state()


@pytest.mark.parametrize("grad", [False, True], ids=["no_grad", "grad"])
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_break_inside(fn: Callable[..., Any], grad: bool) -> None:
    compiled = torchdynamo.compile(fn, backend="eager")
    before = state()
    for _ in range(2):
        mine, theirs = (X.clone().requires_grad_(grad) for _ in range(2))
        wanted = fn(theirs)
        got = compiled(mine)
        assert state() == before
        assert_alike((wanted, theirs), (got, mine))


def passes_on(x, odd):
    y = x + 1
    box = [odd, odd]
    return y, box, odd.device, isinstance(odd, torch.Tensor), odd is None, box[0] is odd, odd + odd


@pytest.mark.parametrize("odd", [torch.ones(2, device="meta"), torch.ones(2).to_sparse()], ids=["meta", "sparse"])
def test_tensors_that_cannot_be_followed_are_passed_on(odd: torch.Tensor) -> None:
    compiled = torchdynamo.compile(passes_on, backend="eager")
    for _ in range(2):
        got, wanted = compiled(X, odd), passes_on(X, odd)
        assert torch.equal(got[0], wanted[0])
        assert got[1][0] is got[1][1] is odd
        assert got[2:6] == wanted[2:6]
        assert got[6].layout is wanted[6].layout and got[6].device == wanted[6].device


def named_like_what_looks_at_frames(x):
    model.eval()
    x = torch.stack([x, x])
    torchdynamo.graph_break()
    return model(x) + 1


model = torch.nn.Dropout()


def test_only_what_looks_at_its_frame_is_not_taken_apart() -> None:
    backend = Counting()
    compiled = torchdynamo.compile(named_like_what_looks_at_frames, backend=backend)
    assert torch.equal(compiled(X), named_like_what_looks_at_frames(X))
    assert len(backend.graphs) == 2


def test_a_scalar_is_squeezed() -> None:
    for dims in ((), (-1,), (0,)):
        compiled = torchdynamo.compile(lambda x, dims=dims: x.sum().squeeze(*dims), backend="eager", fullgraph=True)
        assert compiled(X).shape == ()


def raises_behind_a_block(x, index):
    with torch.no_grad():
        y = x * 2
        torchdynamo.graph_break()
        y = y + 1
    return y[index]


def raises_in_a_block(x, index):
    with torch.no_grad():
        y = x * 2
        torchdynamo.graph_break()
        y = y[index]
    return y + 1


def raises_after_a_write(x, index):
    with torch.no_grad():
        y = x * 2
        torchdynamo.graph_break()
        x.detach().add_(1)
    return y[index]


@pytest.mark.parametrize("fn", [raises_behind_a_block, raises_in_a_block, raises_after_a_write])
def test_an_error_leaves_the_blocks_that_were_open_at_the_break(fn):
    compiled = torchdynamo.compile(fn, backend="eager")
    compiled(torch.ones(3), torch.tensor([0, 1]))
    with pytest.raises(IndexError):
        compiled(torch.ones(3), torch.tensor([7]))
    assert torch.is_grad_enabled()
