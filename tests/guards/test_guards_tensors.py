"""Tensors: what is compared, what is not, and what of it can be written to disk."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from guarding import Guarded, X

from torchdynamo.core.source import Guard, Source
from torchdynamo.guards.kinds.tensor_match import TensorMeta, meta

MATCH = Guard(X, "TENSOR_MATCH")


class Sub(torch.Tensor):
    pass


class Asked(torch.Tensor):
    """Everything about it is answered in Python, and nobody may ask."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"asked for {func}")


class Wrapped(torch.Tensor):
    """A tensor that dispatches to Python, its device and layout included."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, dispatch_sizes_strides_policy="sizes", dispatch_device=True
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"asked for {func}")


def in_inference() -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(2, 3)


TENSORS: dict[str, Any] = {
    "plain": lambda: torch.ones(2, 3),
    "another shape": lambda: torch.ones(3, 2),
    "another rank": lambda: torch.ones(2, 3, 1),
    "a scalar": lambda: torch.ones(()),
    "empty": lambda: torch.ones(0),
    "many dimensions": lambda: torch.ones(1, 2, 1, 2, 1, 2, 1),
    "transposed": lambda: torch.ones(3, 2).t(),
    "half": lambda: torch.ones(2, 3, dtype=torch.half),
    "complex": lambda: torch.ones(2, 3, dtype=torch.complex64),
    "conjugated": lambda: torch.ones(2, 3, dtype=torch.complex64).conj(),
    "negated": lambda: torch.ones(2, 3, dtype=torch.complex64).conj().imag,
    "with grad": lambda: torch.ones(2, 3, requires_grad=True),
    "parameter": lambda: torch.nn.Parameter(torch.ones(2, 3)),
    "frozen parameter": lambda: torch.nn.Parameter(torch.ones(2, 3), requires_grad=False),
    "subclass": lambda: torch.ones(2, 3).as_subclass(Sub),
    "asked": lambda: torch.ones(2, 3).as_subclass(Asked),
    "wrapped": lambda: Wrapped(torch.ones(2, 3)),
    "meta": lambda: torch.ones(2, 3, device="meta"),
    "inference": in_inference,
    "sparse": lambda: torch.ones(2, 3).to_sparse(),
    "sparse rows": lambda: torch.ones(2, 3).to_sparse_csr(),
    "sparse columns": lambda: torch.ones(2, 3).to_sparse_csc(),
    "mkldnn": lambda: torch.ones(2, 3).to_mkldnn(),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 0, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "jagged": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
}


@pytest.mark.filterwarnings("ignore")
def test_each_is_itself_and_no_other() -> None:
    """Made twice they match, and none matches another, without a question that a subclass would answer."""
    first = {name: make() for name, make in TENSORS.items()}
    again = {name: make() for name, make in TENSORS.items()}
    for name, x in first.items():
        asked = Guarded([MATCH], x=x)
        for other, y in again.items():
            asked.roots = Guarded([], x=y).roots
            assert asked.holds() is (other == name), (name, other)


def test_where_its_data_is_does_not_matter() -> None:
    whole = torch.arange(10.0)
    asked = Guarded([MATCH], x=whole[:4])
    asked.roots = Guarded([], x=whole[3:7]).roots
    assert asked.holds()


@pytest.mark.parametrize(
    ("size", "stride", "holds"),
    [
        ((None, 3), (None, None), [(2, 3), (5, 3)]),
        ((None, 3), (3, 1), [(2, 3), (5, 3)]),
        ((None, None), None, [(2, 3), (5, 3), (3, 5), (0, 0)]),
        (None, None, [(2, 3), (5, 3), (3, 5), (0, 0), (2, 3, 4), (), (6,)]),
        ((2, 3), (3, 1), [(2, 3)]),
    ],
)
def test_dimensions_left_open(size: Any, stride: Any, holds: list[Any]) -> None:
    arg = meta(torch.ones(2, 3))._replace(size=size, stride=stride)
    for shape in [(2, 3), (5, 3), (3, 5), (0, 0), (2, 3, 4), (), (6,)]:
        asked = Guarded([MATCH._replace(arg=arg)], x=torch.ones(shape))
        assert asked.holds() is (shape in holds)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TENSORS)
def test_metadata_can_be_written_to_disk(name: str) -> None:
    made = meta(TENSORS[name]())
    again = pickle.loads(pickle.dumps(made))
    assert type(again) is TensorMeta
    assert again == made


def test_attributes_are_read_without_running_python() -> None:
    x = torch.ones(2, requires_grad=True)
    for name, value in [("grad", None), ("requires_grad", True), ("is_leaf", True), ("_base", None)]:
        source = Source("attr", X, name)
        assert Guarded([Guard(source, "EQUALS_MATCH", value)], x=x).native()
        hidden = x.detach().requires_grad_().as_subclass(Asked)
        assert Guarded([Guard(source, "TYPE_MATCH", type(value))], x=hidden).native() is (name != "_base")
    assert not Guarded([Guard(Source("attr", X, "shape"), "LENGTH", 1)], x=x.detach().as_subclass(Asked)).native()
    assert Guarded([Guard(Source("attr", X, "shape"), "LENGTH", 1)], x=x).native()


def test_gradients_are_one_object_each_time() -> None:
    x = torch.ones(2, requires_grad=True)
    x.sum().backward()
    grad = Source("attr", X, "grad")
    asked = Guarded([Guard(grad, "TENSOR_MATCH")], bound=[grad], x=x)
    for _ in range(3):
        fetched = asked.fetch()
        assert fetched is not None
        assert fetched[0] is x.grad
    x.grad = None
    assert asked.fetch() is None
    y = (x * 2).sum()
    assert Guarded([Guard(grad, "EQUALS_MATCH", None)], x=y).native()  # a tensor that is no leaf: no warning


def test_something_that_is_no_tensor() -> None:
    asked = Guarded([MATCH], x=torch.ones(2))
    for other in (None, 1, [torch.ones(2)], torch.Tensor, "x"):
        asked.roots = Guarded([], x=other).roots
        assert not asked.holds()


def test_nonsense_is_refused() -> None:
    good = meta(torch.ones(2))
    for bad in [good[:-1], (1, *good[1:]), good._replace(size=(1, 2)), good._replace(size="ab"), 1, None]:
        with pytest.raises((TypeError, ValueError)):
            Guarded([MATCH._replace(arg=bad)], settled=False)
