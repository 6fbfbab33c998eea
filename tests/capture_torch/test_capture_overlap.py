"""Writes that operators refuse by where tensors lie: the error is raised where eager raises it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo.report.explain import collecting

Write = Callable[[torch.Tensor], Any]

REFUSED: dict[str, Write] = {
    "expanded": lambda x: x[:1].expand(4).add_(1),
    "expanded_item": lambda x: operator_setitem(x[:1].expand(4), slice(0, 2), 5),
    "expanded_out": lambda x: torch.add(x[:4], 1, out=torch.zeros(1).expand(4)),
    "shifted": lambda x: x[1:].copy_(x[:-1]),
    "shifted_out": lambda x: torch.add(x[1:], 1, out=x[:-1]),
    "transposed": lambda x: x[:4].view(2, 2).add_(x[:4].view(2, 2).T),
    "row_of_itself": lambda x: x.mul_(x[0]),
}
TAKEN: dict[str, Write] = {
    "filled": lambda x: x[:1].expand(4).fill_(3),
    "zeroed": lambda x: x[:1].expand(4).zero_(),
    "halves": lambda x: x[:2].add_(x[2:4]),
    "itself": lambda x: x.add_(x),
    "column": lambda x: x[:4].view(2, 2)[:, 0].add_(x[:4].view(2, 2)[:, 1]),
    "many": lambda x: torch._foreach_add_([x[:2], x[2:4]], [x[:2], x[2:4]]),
    "turned": lambda x: x[:4].view(2, 2).t_().add_(1),
}


def operator_setitem(x: torch.Tensor, index: Any, value: Any) -> None:
    x[index] = value


def handled(write: Write) -> Callable[[torch.Tensor], Any]:
    def fn(x: torch.Tensor) -> Any:
        try:
            write(x)
        except RuntimeError:
            return x * 3
        return x * 2

    return fn


def suppressed(write: Write) -> Callable[[torch.Tensor], Any]:
    def fn(x: torch.Tensor) -> Any:
        with contextlib.suppress(RuntimeError):
            write(x)
            x = x * 2
        return x + 1

    return fn


@pytest.mark.parametrize("how", [handled, suppressed])
@pytest.mark.parametrize("name", [*REFUSED, *TAKEN])
def test_as_in_eager(name: str, how: Callable[[Write], Callable[[torch.Tensor], Any]]) -> None:
    write = {**REFUSED, **TAKEN}[name]
    fn = how(write)
    torchdynamo.reset()
    compiled = torchdynamo.compile(fn, backend="eager")
    with collecting() as events:
        for _ in range(2):
            plain, given = torch.arange(5.0), torch.arange(5.0)
            assert compiled(given).tolist() == fn(plain).tolist()
            assert given.tolist() == plain.tolist()
    assert (events[0].reason is None) == (name in TAKEN)


@pytest.mark.parametrize("order", [(True, False), (False, True)])
def test_inputs_that_share_memory(order: tuple[bool, ...]) -> None:
    """Views of one tensor as arguments, before or after others."""

    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        try:
            a.add_(b)
        except RuntimeError:
            return a * 3
        return a * 2

    def args(shared: bool) -> tuple[torch.Tensor, torch.Tensor]:
        whole = torch.arange(5.0)
        return whole[1:], whole[:-1] if shared else torch.ones(4)

    compiled = torchdynamo.compile(fn, backend="eager")
    for shared in order * 2:
        assert compiled(*args(shared)).tolist() == fn(*args(shared)).tolist()


def test_what_the_frame_made_lies_across_no_input() -> None:
    """Inputs that share memory are none of the business of a write to what is new."""

    def fn(x: torch.Tensor, part: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        try:
            return torch.zeros(6).scatter_add_(0, i, x).add_(part.sum())
        except RuntimeError:
            return x

    x = torch.arange(4.0)
    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=True)
    for i in (torch.tensor([0, 5, 1, 1]), torch.tensor([0, 6, 1, 1]), torch.tensor([3, 3, 3, 3])):
        assert torch.equal(compiled(x, x[1:], i), fn(x, x[1:], i))


def test_nobody_hears() -> None:
    """Without a handler the error is the same one."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.expand(4).add_(1)

    with pytest.raises(RuntimeError, match="more than one element"):
        torchdynamo.compile(fn, backend="eager")(torch.ones(1))
