"""What is known to change from call to call is not taken for constant first: a second call compiles nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torchdynamo

FIVE = [torch.randn(12, generator=torch.Generator().manual_seed(seed)) for seed in range(5)]


class Counted:
    """A backend that counts what it compiles."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, gm: Any, example_inputs: Any) -> Any:
        self.graphs += 1
        return gm.forward


def masked(x: torch.Tensor) -> torch.Tensor:
    y = x[x > 0]
    return y * 2 + y.numel()


def places(x: torch.Tensor) -> torch.Tensor:
    (rows,) = torch.nonzero(x > 0, as_tuple=True)
    return x[rows] + len(rows)


def counts(x: torch.Tensor) -> torch.Tensor:
    first = int((x > 0).sum())
    return x[:first] + first


def twice(x: torch.Tensor) -> torch.Tensor:
    """What was found before the first break goes through the second."""
    y = x[x > 0]
    z = (x * 3)[x < 0]
    return torch.cat([y, z * y.numel()])


def kept(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x[x > 0] + 1, x * 2


def handed_on(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return kept(x + 1)


def through_calls(x: torch.Tensor) -> torch.Tensor:
    found, all_of_them = handed_on(x * 2)
    return found * 3 + all_of_them.sum()


def numbers(x: torch.Tensor) -> list[int]:
    return [int(n) for n in torch.stack([(x > 0).sum(), (x < 0).sum()]).tolist()]


def split(x: torch.Tensor) -> list[torch.Tensor]:
    return [part + 1 for part in x.sort(descending=True).values.split(numbers(x))]


PROGRAMS = [masked, places, counts, twice, through_calls, split]


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_what_depends_on_data(fn: Callable[..., Any]) -> None:
    backend = Counted()
    compiled = torchdynamo.compile(fn, backend=backend)
    compiled(FIVE[0])
    after_one = backend.graphs
    for x in FIVE:
        torch.testing.assert_close(compiled(x), fn(x), rtol=0, atol=0)
    assert len({int((x > 0).sum()) for x in FIVE}) > 2
    assert backend.graphs == after_one


def test_what_does_not_depend_on_data_stays_constant() -> None:
    """Of what a call returns, only the sizes that the break made vary."""
    shapes: list[Any] = []

    def backend(gm: Any, example_inputs: Any) -> Any:
        examples = [node.meta["example_value"] for node in gm.graph.nodes if node.op == "placeholder"]
        shapes.append([tuple(x.shape) for x in examples if isinstance(x, torch.Tensor)])
        return gm.forward

    torchdynamo.compile(through_calls, backend=backend)(FIVE[0])
    assert (12,) in shapes[-1]
    assert any(isinstance(size, torch.SymInt) for shape in shapes[-1] for size in shape)


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls, self.decay = 0, 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.decay *= 0.5
        return x * self.calls + self.decay


def test_what_the_frame_itself_counts() -> None:
    backend = Counted()
    module, plain = Counter(), Counter()
    compiled = torchdynamo.compile(module, backend=backend)
    for x in FIVE:
        assert torch.equal(compiled(x), plain(x))
        assert (module.calls, module.decay) == (plain.calls, plain.decay)
    assert backend.graphs == 1


class Table(nn.Module):
    """What is computed for a shape is kept, with the shape."""

    def __init__(self, kept: Callable[[torch.Size], Any]) -> None:
        super().__init__()
        self.kept, self.shape, self.length = kept, kept(torch.Size((0, 0))), 0
        self.register_buffer("table", torch.zeros(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.shape != self.kept(x.shape):
            self.shape, self.length = self.kept(x.shape), x.shape[0]
            self.table = torch.arange(x.shape[0])[:, None]
        return x + self.table * self.length


@pytest.mark.parametrize("kept", [lambda shape: shape, tuple], ids=["sizes", "tuple"])
def test_sizes_that_are_kept_vary_with_what_they_are_sizes_of(kept: Callable[[torch.Size], Any]) -> None:
    backend = Counted()
    module, plain = Table(kept), Table(kept)
    compiled = torchdynamo.compile(module, backend=backend, fullgraph=True)
    for size in (3, 5, 7, 1, 2, 9, 9, 4, 4, 6):
        x = torch.randn(size, 4)
        assert torch.equal(compiled(x), plain(x))
        assert (module.shape, type(module.shape), module.length) == (plain.shape, type(plain.shape), plain.length)
    assert backend.graphs == 3  # of constants, with the table as it is, with another


def test_sizes_in_an_object_vary() -> None:
    class Reshaping(nn.Module):
        shape = torch.Size((12,))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.reshape(self.shape) * self.shape[0]

    backend, module = Counted(), Reshaping()
    compiled = torchdynamo.compile(module, backend=backend, fullgraph=True)
    for shape in ((3, 4), (5, 6), (1, 2), (7, 3), (1, 1)):
        module.shape = torch.Size(shape)
        x = torch.randn(module.shape.numel())
        assert torch.equal(compiled(x), module(x))
    assert backend.graphs == 2


class Flag:
    inside = False


def looked_at(x: torch.Tensor) -> torch.Tensor:
    torchdynamo.graph_break()
    return x + 1 if Flag.inside else x - 1


def raised_and_lowered(x: torch.Tensor) -> torch.Tensor:
    Flag.inside = True
    try:
        y = looked_at(x * 2)
    finally:
        if Flag.inside:
            Flag.inside = False
    return y * 3


def test_what_is_put_back_after_a_break() -> None:
    backend = Counted()
    compiled = torchdynamo.compile(raised_and_lowered, backend=backend)
    compiled(FIVE[0])
    after_one = backend.graphs
    for x in FIVE:
        assert torch.equal(compiled(x), raised_and_lowered(x))
    assert backend.graphs == after_one


def until_it_gets_worse(x: torch.Tensor, best: dict[str, float]) -> torch.Tensor:
    loss = (x * 2).sum().item()
    if loss < best["loss"]:
        best["loss"] = loss
        return x + 1
    return (x - 1) * 3


@pytest.mark.filterwarnings("error::torchdynamo.errors.CacheLimitWarning")
def test_branches_on_what_is_read_do_not_compile_for_each_value() -> None:
    backend = Counted()
    compiled = torchdynamo.compile(until_it_gets_worse, backend=backend)
    mine, eagers, counts = {"loss": 1e9}, {"loss": 1e9}, []
    generator = torch.Generator().manual_seed(0)
    for _ in range(24):
        x = torch.randn(4, generator=generator)
        assert torch.equal(compiled(x, mine), until_it_gets_worse(x, eagers))
        assert mine == eagers
        counts.append(backend.graphs)
    assert counts[-1] == counts[11]


class Link:
    other: Any = None


@pytest.mark.filterwarnings("error::torchdynamo.errors.FallbackWarning")
def test_objects_that_lead_back_to_themselves() -> None:
    def linked(x: torch.Tensor, a: Link, b: Link) -> tuple[torch.Tensor, Link, list[Any]]:
        a.other, b.other = b, a
        held: list[Any] = [x]
        held.append(held)
        return x[x > 0] + 1, a, held

    backend = Counted()
    compiled = torchdynamo.compile(linked, backend=backend)
    for x in FIVE:
        a, b = Link(), Link()
        found, first, held = compiled(x, a, b)
        assert torch.equal(found, x[x > 0] + 1)
        assert first is a and a.other is b and b.other is a and held[1] is held
    assert backend.graphs == 2


@pytest.mark.filterwarnings("error::torchdynamo.errors.FallbackWarning")
def test_methods_looked_up_at_a_break() -> None:
    """Of the two things that looking up a method leaves, one is NULL, and no variable."""

    def looked_up(x: torch.Tensor, s: float) -> tuple[Any, ...]:
        return round(s, 1), s.is_integer(), x * s

    compiled = torchdynamo.compile(looked_up, backend="eager")
    for s in (1.5, 2.5, 2.0, 3.0):
        assert compiled(FIVE[0], s)[:2] == (round(s, 1), s.is_integer())
