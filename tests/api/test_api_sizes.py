"""What users say of sizes: dynamic=, marks on tensors, names in the configuration; and what backends say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from counting import Counting

import torchdynamo


def double(x: Any) -> Any:
    return x * 2 + x.shape[0]


def compiles(calls: list[Any], fn: Any = double, backend_name: str = "eager", **settings: Any) -> int:
    torchdynamo.reset()
    backend = Counting(backend_name)
    compiled = torchdynamo.compile(fn, backend=backend, **settings)
    for args in calls:
        args = args if isinstance(args, tuple) else (args,)
        torch.testing.assert_close(compiled(*args), fn(*args))
    return len(backend.graphs)


def rows(*lengths: int) -> list[Any]:
    return [torch.randn(length, 3) for length in lengths]


def test_the_policy() -> None:
    assert compiles(rows(5, 7, 1, 0)) == 2
    assert compiles(rows(5, 7, 1, 0), dynamic=True) == 1
    assert compiles(rows(5, 7, 1, 0), dynamic=False) == 4
    with torchdynamo.config.patch(dynamic_shapes=True):
        assert compiles(rows(5, 7, 1, 0)) == 1
    with torchdynamo.config.patch(dynamic_sources="y, x"):
        assert compiles(rows(5, 7, 1, 0)) == 1


def test_a_number_where_a_tensor_was_varies_at_once() -> None:
    backend = Counting()
    compiled = torchdynamo.compile(lambda x, y: x * y, backend=backend)
    for at, (size, other) in enumerate([(2, None), (3, 3), (4, None), (5, 4), (6, None)]):
        x = torch.ones(size)
        y = torch.ones(size) * at if other is None else other
        assert torch.equal(compiled(x, y), x * y)
    assert len(backend.graphs) == 3


def test_marks() -> None:
    first, *rest = rows(5, 7, 1, 0)
    torchdynamo.mark_dynamic(first, 0)
    assert compiles([first, *rest]) == 1
    first, second, *rest = rows(5, 7, 1, 0)
    torchdynamo.mark_dynamic(first, -2, min=2, max=8)
    assert compiles([first, second]) == 1
    assert compiles([first, second, *rest]) == 2
    marked = rows(5, 7, 1)
    for x in marked:
        torchdynamo.mark_static(x)
    assert compiles(marked) == 3
    with pytest.raises(IndexError):
        torchdynamo.mark_dynamic(first, 2)


def test_a_size_that_is_not_to_be_looked_at() -> None:
    first, *rest = rows(5, 7, 1, 0)
    torchdynamo.mark_unbacked(first, 0)
    assert compiles([first, *rest], lambda x: (x @ x.t()).sum(0) + len(x), fullgraph=True) == 1
    assert compiles([first, *rest], lambda x: x.view(-1) * x.reshape(-1), fullgraph=True, backend_name="aot_eager") == 1

    def branch(x: Any) -> Any:
        return x + 1 if x.shape[0] > 3 else x - 1

    def taught(x: Any) -> Any:
        torch._check(x.shape[0] > 3)
        return branch(x)

    with pytest.raises(torchdynamo.exc.Unsupported):
        torchdynamo.compile(branch, backend="eager", fullgraph=True)(first)
    assert compiles([first, rest[0]], taught, fullgraph=True) == 1


def test_torchs_own_marks() -> None:
    first, *rest = rows(5, 7, 1, 0)
    first._dynamo_weak_dynamic_indices = {0}
    assert compiles([first, *rest]) == 1


def test_numbers_of_every_origin() -> None:
    class Layer(torch.nn.Module):
        def __init__(self, index: int) -> None:
            super().__init__()
            self.layer_idx = index

        def forward(self, x: Any) -> Any:
            return x * (self.layer_idx + 1)

    x = torch.ones(2)
    assert compiles([(Layer(index), x) for index in range(6)], Layer.forward) == 2
    assert compiles([(x, number) for number in (3, 4, 1, 0, -7)], lambda x, number: x * number) == 2
    assert compiles([(x, [number]) for number in (3, 4, 1, 0, -7)], lambda x, numbers: x + numbers[0]) == 2
    assert compiles([(x, number) for number in (3, 4, 1 << 70, True)], lambda x, number: x + float(number)) == 4


def test_what_existed_is_found_without_compiling() -> None:
    backend = Counting()
    compiled = torchdynamo.compile(double, backend=backend)
    for x in rows(5, 7):
        compiled(x)
    only = torchdynamo.run(double)
    for x in rows(9, 5, 1, 0):
        assert torch.equal(only(x), double(x))
    assert len(backend.graphs) == 2


def test_an_input_that_is_a_number_comes_before_its_tensor() -> None:
    backend = Counting()
    torchdynamo.compile(double, backend=backend, dynamic=True)(torch.ones(4, 3))
    (gm,) = backend.graphs
    assert [node.name for node in gm.graph.find_nodes(op="placeholder")] == ["s0", "x"]


def test_a_backend_without_symbols_gets_fixed_sizes() -> None:
    compiled = torchdynamo.compile(double, backend="ts", dynamic=True)
    for x in rows(5, 7, 1):
        torch.testing.assert_close(compiled(x), double(x))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_training_at_any_size(backend: str) -> None:
    def loss(x: Any, w: Any) -> Any:
        return (x @ w).relu().sum()

    compiled = torchdynamo.compile(loss, backend=backend)
    for length in (5, 7, 1, 0, 9):
        x, w = torch.randn(length, 3, requires_grad=True), torch.randn(3, 4, requires_grad=True)
        expected = torch.autograd.grad(loss(x, w), (x, w))
        torch.testing.assert_close(torch.autograd.grad(compiled(x, w), (x, w)), expected)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_sizes_vary_in_inference_mode_too(backend: str) -> None:
    def work(x: Any) -> Any:
        return x.view(-1, 3) * 2 + x.shape[0]

    with torch.inference_mode():
        assert compiles(rows(5, 7, 1, 0), work, backend_name=backend) == 2
    assert compiles(rows(5, 7, 1), work, backend_name=backend) == 2


def test_a_size_that_has_a_version_of_its_own_gets_it() -> None:
    made: list[int] = []
    ran: list[int] = []

    def backend(gm: Any, inputs: Any) -> Any:
        number = len(made)
        made.append(number)
        return lambda *args: ran.append(number) or gm.forward(*args)  # type: ignore[func-returns-value]

    compiled = torchdynamo.compile(double, backend=backend)
    for x in rows(5, 7, 5, 9, 5, 7):
        compiled(x)
    assert made == [0, 1] and ran == [0, 1, 0, 1, 0, 1]
