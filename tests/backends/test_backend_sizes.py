"""Backends that take no symbols: static graphs, as many as allowed, and sizes padded to buckets where users ask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo.backends.registry import fixed_sizes
from torchdynamo.errors import FallbackWarning

BUCKETS = {"buckets": {"x": {0: (8, 16)}}}


class Static:
    """A backend that takes no symbols, and remembers the sizes of first inputs."""

    fixed_sizes = True

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, gm: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        assert all(type(size) is int for each in inputs for size in each.shape)
        assert not any(isinstance(node.meta.get("example_value"), torch.SymInt) for node in gm.graph.nodes)
        self.sizes.append(inputs[0].shape[0])
        return gm.forward  # type: ignore[no-any-return]


def run(fn: Any, lengths: Sequence[int], make: Any = lambda n: torch.randn(n, 3), **settings: Any) -> list[int]:
    """The sizes that were compiled; what comes out is eager's each time."""
    torchdynamo.reset()
    backend = Static()
    compiled = torchdynamo.compile(fn, backend=backend, **settings)
    with torch.no_grad():
        for length in lengths:
            x = make(length)
            torch.testing.assert_close(compiled(x), fn(x))
    return backend.sizes


def test_a_graph_for_each_size_up_to_a_limit() -> None:
    def work(x: Any) -> Any:
        return x * 2 + x.shape[0], x.shape[0] + 1, x.view(-1)

    assert run(work, (5, 7, 1, 0, 5, 7)) == [5, 7, 1, 0]
    with torchdynamo.config.patch(cache_size_limit=2), pytest.warns(FallbackWarning, match="made 2 graphs of one"):
        assert run(work, (5, 7, 1, 0, 9, 7)) == [5, 7, 1]
    assert run(work, (5, 7, 1), dynamic=True) == [5, 7, 1]
    assert run(lambda x: x * x.sum().item(), (5, 7), fullgraph=True) == []


def test_sizes_are_padded_to_buckets() -> None:
    def rows(x: Any) -> Any:
        return torch.relu(x @ torch.ones(3, 4)), x.shape[0] * 2, (x * 2).t(), x.new_zeros(x.shape[0], 2)

    assert run(rows, (5, 7, 8, 3, 16, 9, 20), options=BUCKETS) == [8, 16, 20]
    assert run(rows, (8, 5), options=BUCKETS) == [8]
    assert run(lambda x: x.amax(1), (5, 7), options=BUCKETS) == [8]


@pytest.mark.parametrize(
    ("fn", "make"),
    [
        (lambda x: x.softmax(0), lambda n: torch.randn(n, 3)),
        (lambda x: x.mean(0), lambda n: torch.randn(n, 3)),
        (lambda x: x.amax(0), lambda n: torch.rand(n, 3)),
        (lambda x: x.amax(0), torch.arange),
        (lambda x: x.prod(0), lambda n: torch.ones(n, 3)),
        (lambda x: x + x.shape[0], lambda n: torch.randn(n, 3)),
        (lambda x: torch.cat([x, x]), lambda n: torch.randn(n, 3)),
        (lambda x: x.flip(0), lambda n: torch.randn(n, 3)),
        (lambda x: (x.t(), x + 1), lambda n: torch.randn(n, 3)),
        (lambda x: x.add_(1), lambda n: torch.randn(n, 3)),
        (lambda x: x + torch.randn_like(x) * 0, lambda n: torch.randn(n, 3)),
        (lambda x: x * 1 if x.shape[0] < 6 else x * 2, lambda n: torch.randn(n, 3)),
    ],
)
@pytest.mark.filterwarnings("ignore::torchdynamo.errors.FallbackWarning")
def test_what_padding_would_change_is_not_padded(fn: Any, make: Any) -> None:
    assert run(fn, (5, 4), lambda n: make(n), options=BUCKETS) == [5, 4]


def test_a_size_too_small_to_tell_is_not_padded() -> None:
    with pytest.warns(FallbackWarning, match="x cannot be padded"):
        assert run(lambda x: x.softmax(0), (0, 1, 5), options=BUCKETS) == [0, 1, 5]


def test_masks_are_padded_with_what_is_not_there() -> None:
    table = torch.nn.Embedding(10, 4)

    def attend(ids: Any, mask: Any) -> Any:
        rows = table(ids)
        return torch.nn.functional.scaled_dot_product_attention(rows, rows, rows, attn_mask=mask[:, None] != 0)

    backend = Static()
    buckets = {"ids": {1: (8,)}, "mask": {1: (8,)}}
    compiled = torchdynamo.compile(attend, backend=backend, options={"buckets": buckets})
    with torch.no_grad():
        for length in (5, 7, 2):
            ids, mask = torch.randint(0, 10, (2, length)), torch.ones(2, length, dtype=torch.long)
            torch.testing.assert_close(compiled(ids, mask), attend(ids, mask))
    assert len(backend.sizes) == 1


def test_gradients_are_not_padded() -> None:
    backend = Static()
    compiled = torchdynamo.compile(lambda x: torch.relu(x), backend=backend, options=BUCKETS)
    for length in (5, 7):
        x = torch.randn(length, 3, requires_grad=True)
        compiled(x).sum().backward()
        assert x.grad is not None and torch.equal(x.grad, (x > 0).float())
    assert backend.sizes == [5, 7]


@pytest.mark.parametrize("backend", ["ts", "aot_eager", "eager"])
def test_any_backend_can_have_buckets(backend: str) -> None:
    def work(x: Any) -> Any:
        return torch.relu(x) * 2

    compiled = torchdynamo.compile(work, backend=backend, options=BUCKETS)
    with torch.no_grad():
        for length in (5, 7, 12, 1, 0):
            x = torch.randn(length, 3)
            assert torch.equal(compiled(x), work(x))


@pytest.mark.parametrize(
    "buckets", [3, {"x": 8}, {"x": {0: 8}}, {"x": {"a": (8,)}}, {"x": {0: ("8",)}}, {"x": {0: (0,)}}]
)
def test_buckets_are_checked(buckets: Any) -> None:
    with pytest.raises(TypeError, match="buckets are"):
        torchdynamo.compile(torch.relu, backend="eager", options={"buckets": buckets})


def test_the_mark_of_such_a_backend() -> None:
    def backend(gm: Any, inputs: Any) -> Any:
        return gm.forward

    assert fixed_sizes(backend) is backend and backend.fixed_sizes  # type: ignore[attr-defined]
