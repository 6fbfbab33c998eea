"""Second derivatives across graph breaks, where what one graph hands to the next is dead when the backward runs."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo.graph import compiled_parts

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def kept_by_nobody(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y = w * 1.5
    torchdynamo.graph_break()
    return (y @ x).sin().sum()


def saved_by_the_kernels(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y = w.sin()
    torchdynamo.graph_break()
    return (y * y @ x).sum()


def beside_another_way(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Without an error, a part of the derivative may be missing here."""
    y = (w * 1.5).sin()
    torchdynamo.graph_break()
    return (y @ x).sin().sum() + w.cos().sum()


def one_of_two(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y = w.exp()
    torchdynamo.graph_break()
    return ((y + w) @ x).sin().sum()


def two_of_one_graph(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y, z = w.sin(), w.cos().exp()
    torchdynamo.graph_break()
    return ((y * z) @ x).sin().sum()


def of_different_graphs(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y = w.sin()
    torchdynamo.graph_break()
    z = (y * w).exp()
    torchdynamo.graph_break()
    return ((y * z) @ x).sin().sum()


def one_after_another(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    for _ in range(5):
        w = (w * 1.1).sin()
        torchdynamo.graph_break()
    return (w @ x).cos().sum()


CASES = [
    kept_by_nobody,
    saved_by_the_kernels,
    beside_another_way,
    one_of_two,
    two_of_one_graph,
    of_different_graphs,
    one_after_another,
]


def matrices() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    w, x = torch.randn(3, 4, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64)
    return w.requires_grad_(), x.requires_grad_()


def of_leaves(loss: Loss) -> list[torch.Tensor]:
    w, x = matrices()
    first = torch.autograd.grad(loss(w, x), [w, x], create_graph=True)
    return [*first, *torch.autograd.grad([each.cos().sum() for each in first], [w, x])]


def of_one_leaf(loss: Loss) -> list[torch.Tensor]:
    w, x = matrices()
    constant = x.detach()
    first = torch.autograd.grad(loss(w, constant), [w], create_graph=True)
    first[0].pow(3).sum().backward()
    assert w.grad is not None
    return [*first, w.grad]


def of_computed(loss: Loss) -> list[torch.Tensor]:
    leaf, x = matrices()
    w = leaf.exp()
    first = torch.autograd.grad(loss(w, x), [w, x], create_graph=True)
    return [*first, *torch.autograd.grad(first[0].cos().sum(), [w, leaf, x])]


def with_vector(loss: Loss) -> list[torch.Tensor]:
    w, x = matrices()
    return list(torch.autograd.functional.hvp(loss, (w, x), (w.cos().detach(), x.sin().detach()))[1])


def third(loss: Loss) -> list[torch.Tensor]:
    w, x = matrices()
    (first,) = torch.autograd.grad(loss(w, x), w, create_graph=True)
    (second,) = torch.autograd.grad(first.cos().sum(), w, create_graph=True)
    return list(torch.autograd.grad(second.sin().sum(), [w, x]))


def asked_twice(loss: Loss) -> list[torch.Tensor]:
    w, x = matrices()
    value = loss(w, x)
    found: list[torch.Tensor] = []
    for _ in range(2):
        (first,) = torch.autograd.grad(value, w, create_graph=True)
        found += torch.autograd.grad(first.cos().sum(), [w, x], retain_graph=True)
    return found


def penalized(loss: Loss) -> list[torch.Tensor]:
    w, x = matrices()
    value = loss(w, x)
    (first,) = torch.autograd.grad(value, w, create_graph=True)
    (value + first.square().sum()).backward()
    assert w.grad is not None and x.grad is not None
    return [w.grad, x.grad]


WAYS = [of_leaves, of_one_leaf, of_computed, with_vector, third, asked_twice, penalized]


def assert_as_eager(way: Callable[[Loss], list[torch.Tensor]], loss: Loss, backend: str) -> None:
    compiled = torchdynamo.compile(loss, backend=backend)
    expected = way(loss)
    for _ in range(2):  # the second calls are shorter
        torch.testing.assert_close(way(compiled), expected)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_as_in_eager(case: Loss, way: Any) -> None:
    assert_as_eager(way, case, "aot_eager")


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_as_in_eager_under_other_backends(backend: str) -> None:
    assert_as_eager(of_one_leaf, kept_by_nobody, backend)


@torchdynamo.disable
def made_in_eager(w: torch.Tensor) -> torch.Tensor:
    return w.sin()


def test_what_an_eager_operator_made_is_found_where_it_was_saved() -> None:
    def loss(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return (made_in_eager(w) ** 3 @ x).sum()

    assert_as_eager(of_leaves, loss, "aot_eager")


def test_a_leaf_that_nobody_holds() -> None:
    def derivatives(product: Loss) -> list[torch.Tensor]:
        w, x = matrices()
        value = product(w.detach().clone().requires_grad_(), x).sin().sum()
        (first,) = torch.autograd.grad(value, x, create_graph=True)
        return [first, *torch.autograd.grad(first.cos().sum(), x)]

    def product(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return w.sin() @ x

    assert_as_eager(derivatives, product, "aot_eager")


def made_with_random_numbers(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y = torch.dropout(w * 1.5, 0.5, True)
    torchdynamo.graph_break()
    return (y @ x).sin().sum() + w.cos().sum()


def made_by_an_eager_operator(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return (made_in_eager(w) @ x).sin().sum() + w.cos().sum()


def written_to_on_its_way(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y = w * 1.5
    torchdynamo.graph_break()
    with torch.no_grad():
        y.mul_(2.0)
    torchdynamo.graph_break()
    return (y @ x).sin().sum() + w.cos().sum()


def without_a_gradient(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y, shift = w * 1.5, x.detach() * 2
    torchdynamo.graph_break()
    return (y @ shift).sin().sum() + w.cos().sum()


@pytest.mark.parametrize(
    "loss", [made_with_random_numbers, made_by_an_eager_operator, written_to_on_its_way, without_a_gradient]
)
def test_what_is_not_found_again_raises(loss: Loss) -> None:
    w, x = matrices()
    (first,) = torch.autograd.grad(torchdynamo.compile(loss, backend="aot_eager")(w, x.detach()), w, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        torch.autograd.grad(first.cos().sum(), w)


def test_a_long_chain_of_graphs() -> None:
    step = torchdynamo.compile(lambda y: (y * 1.01).sin(), backend="aot_eager")
    w = torch.ones(3, requires_grad=True)

    def derivative(step: Any) -> torch.Tensor:
        y = w
        for _ in range(1200):
            y = step(y)
        (first,) = torch.autograd.grad(y.sum(), w, create_graph=True)
        return torch.autograd.grad(first.sum(), w)[0]

    torch.testing.assert_close(derivative(step), derivative(lambda y: (y * 1.01).sin()))


class Product(torch.autograd.Function):
    """Stands for a compiled graph."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> torch.Tensor:
        return args[0] * args[2] * args[3] * args[4]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError


class InParts:
    """The backward of one, in three parts."""

    positions = ((4, 0), (2,), (3,))

    def begin(self, args: list[Any]) -> Any:
        raise NotImplementedError


def test_inputs_of_a_graph_whose_backward_comes_in_parts() -> None:
    w, _ = matrices()
    inputs: list[Any] = [w * 1, 5, w * 2, w * 3, w.detach().clone().requires_grad_()]
    run = compiled_parts.chained(Product, InParts(), torch.device("cpu"), autocast=False)
    result = run(*inputs)
    node = result.grad_fn  # which says where it goes on as long as there is the result
    edges = compiled_parts.input_edges(node, [isinstance(each, torch.Tensor) for each in inputs])
    tensors = {at: each for at, each in enumerate(inputs) if isinstance(each, torch.Tensor)}
    assert edges == {at: tuple(torch.autograd.graph.get_gradient_edge(each))[:2] for at, each in tensors.items()}


def test_nothing_is_kept_after_the_backward() -> None:
    w, x = matrices()
    value = torchdynamo.compile(of_different_graphs, backend="aot_eager")(w, x)
    (first,) = torch.autograd.grad(value, w, create_graph=True)
    seen: list[Any] = [weakref.ref(value.grad_fn), weakref.ref(w)]
    del value, first, w
    gc.collect()
    assert [each() for each in seen] == [None, None]
