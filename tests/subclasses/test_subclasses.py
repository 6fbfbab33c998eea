"""Wrapper subclasses and nested tensors: each program of the table, eager and compiled, with gradients and writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import subclasses.nested  # adds its programs to the table
import torch
from counting import Counting
from subclasses.comparing import differs, picture
from subclasses.programs import CASES, Case, masked, scaled, two
from subclasses.wrappers import Format, Int8Weight, Scaled, Two

import torchdynamo
from torchdynamo.errors import Unsupported

BACKENDS = ["eager", "aot_eager"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_programs_are_as_in_eager(case: Case, backend: str) -> None:
    assert differs(case, backend, fullgraph=case.whole) == ""


def test_nine_of_ten_are_whole() -> None:
    assert len(CASES) >= 60
    assert sum(case.whole for case in CASES) >= 0.9 * len(CASES)


def compiled(f: Callable[..., Any]) -> tuple[Callable[..., Any], Counting]:
    counting = Counting()
    return torchdynamo.compile(f, backend=counting, fullgraph=True), counting


def renew_inner(x: Any) -> None:
    x.a = x.a.double()
    x.b = x.b.double()


CHANGES: list[tuple[str, Callable[[], Any], Callable[[Any], Any]]] = [
    ("another inner size", lambda: two(2, 3), lambda x: two(4, 3)),
    (
        "an inner tensor of another size",
        lambda: Two(torch.ones(2), torch.ones(2)),
        lambda x: setattr(x, "b", torch.ones(1)),
    ),
    ("an inner tensor of another dtype", lambda: two(2, 3), renew_inner),
    ("an inner tensor that is another class", lambda: two(2, 3), lambda x: setattr(x, "a", two(2, 3))),
    ("inner tensors in another layout", lambda: two(3, 3), lambda x: setattr(x, "a", x.a.t())),
    ("a gradient", lambda: two(2, 3), lambda x: x.requires_grad_()),
    ("another context", lambda: scaled(2, 3), lambda x: setattr(x, "scale", 3.0)),
    ("another type in the context", lambda: scaled(2, 3), lambda x: setattr(x, "scale", 1)),
    ("another class", lambda: two(2, 3), lambda x: masked(2, 3)),
    ("a plain tensor", lambda: two(2, 3), lambda x: torch.ones(2, 3)),
    ("another inner context", lambda: Two(scaled(2, 3), scaled(2, 3)), lambda x: setattr(x.b, "scale", 4.0)),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("what", "make", "change"), CHANGES, ids=[row[0] for row in CHANGES])
def test_what_is_inside_is_guarded(what: str, make: Any, change: Any, backend: str) -> None:
    def f(x: Any) -> Any:
        return (x + 1) * 2

    fast = torchdynamo.compile(f, backend=backend)
    torch.manual_seed(0)
    x = make()
    fast(x)
    y = change(x)
    y = x if y is None else y
    for given in (y, y):
        assert shown(fast(given)) == shown(f(given))


def shown(value: Any) -> str:
    return repr(picture(value))


def test_a_second_call_is_a_hit() -> None:
    fast, counting = compiled(lambda x, w, s: torch.nn.functional.linear(x, w) + s.plain())
    for seed in range(3):
        torch.manual_seed(seed)
        fast(torch.randn(2, 3), Int8Weight.of(torch.randn(3, 3)), Scaled(torch.ones(3), 0.5))
    assert len(counting.graphs) == 1


def test_contexts_that_are_equal_and_not_one_object_are_a_hit() -> None:
    fast, counting = compiled(lambda w: w.dequantize() * w.format.bits)
    w = Int8Weight.of(torch.randn(3, 3))
    want = w.dequantize()
    for bits, graphs in ((8, 1), (8, 1), (4, 2), (8, 2)):
        other = Int8Weight(w.ints, w.scales, Format(bits), w.dtype)
        assert torch.equal(fast(other), want * bits)
        assert len(counting.graphs) == graphs


def test_memory_that_is_shared_by_wrappers() -> None:
    def f(x: Any, y: Any) -> Any:
        x.add_(1)
        return y * 2

    for backend in BACKENDS:
        fast = torchdynamo.compile(f, backend=backend)
        fast(two(2, 3), two(2, 3))
        for run in (f, fast):
            torch.manual_seed(0)
            a = torch.randn(2, 3)
            x, y = Two(a, torch.ones(2, 3)), Two(torch.zeros(2, 3), a)
            result = run(x, y)
            assert torch.equal(result.b, a * 2)


def test_python_of_the_class_runs_in_each_call_under_eager() -> None:
    seen: list[str] = []

    class Loud(Two):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func.__name__)
            return super().__torch_dispatch__(func, types, args, kwargs)

        @staticmethod
        def __tensor_unflatten__(inner: Any, meta: Any, size: Any, stride: Any) -> Any:
            return Loud(inner["a"], inner["b"])

    fast = torchdynamo.compile(lambda x: x * 2, backend="eager", fullgraph=True)
    fast(Loud(torch.ones(2), torch.ones(2)))
    seen.clear()
    fast(Loud(torch.ones(2), torch.ones(2)))
    assert seen == ["mul.Tensor"]


def test_a_class_that_cannot_be_taken_apart_ends_the_graph_with_its_reason() -> None:
    (closed,) = (case for case in CASES if case.name == "without_flatten")
    with pytest.raises(Unsupported, match="closed-subclass"):
        torchdynamo.compile(closed.f, backend="eager", fullgraph=True)(*closed.make())


def test_an_operator_that_replaces_what_is_inside_ends_the_graph() -> None:
    class Swapping(Two):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.add_.Tensor:
                args[0].a = args[0].a + args[1]
                return args[0]
            return super().__torch_dispatch__(func, types, args, kwargs)

        @staticmethod
        def __tensor_unflatten__(inner: Any, meta: Any, size: Any, stride: Any) -> Any:
            return Swapping(inner["a"], inner["b"])

    def f(x: Any) -> Any:
        x.add_(1)
        return x * 2

    for backend in BACKENDS:
        x = Swapping(torch.ones(2), torch.ones(2))
        result = torchdynamo.compile(f, backend=backend)(x)
        assert result.a.tolist() == [4, 4]
        assert x.a.tolist() == [2, 2]


@pytest.mark.parametrize("backend", BACKENDS)
def test_nested_tensors_of_other_lengths_are_served_by_one_graph(backend: str) -> None:
    net = torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.Linear(8, 8))
    counting = Counting(backend)

    def f(x: Any) -> Any:
        return (net(x) * x).values().sum()

    fast = torchdynamo.compile(f, backend=counting, fullgraph=True)
    for seed, lengths in enumerate([(2, 5, 3), (4, 1, 6), (3, 3, 3), (7, 8, 9), (1, 2, 3, 4), (6, 2, 5, 4), (2, 2)]):
        found = []
        for run in (f, fast):
            torch.manual_seed(seed)
            net.zero_grad()
            x = subclasses.nested.jagged(8, lengths, grad=True)
            result = run(x)
            result.backward()
            found.append([result, x.grad.values(), *(each.grad for each in net.parameters())])
        assert all(map(torch.allclose, *found))
    assert len(counting.graphs) <= 3  # for these lengths, for other lengths, for other numbers of them


def test_ragged_sizes_that_are_one_are_not_taken_for_two() -> None:
    def f(x: Any, y: Any) -> Any:
        return x + y

    for backend in BACKENDS:
        fast = torchdynamo.compile(f, backend=backend)
        x = subclasses.nested.jagged()
        assert torch.equal(fast(x, x * 2).values(), x.values() * 3)
        with pytest.raises(RuntimeError):
            fast(x, subclasses.nested.jagged())
