"""A first call that sets something up is followed at once by the capture that counts."""

from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any

import pytest
import torch
from torch import nn

import torchdynamo
from torchdynamo import _native

X = torch.randn(4, 3)


class Counting:
    """A backend that counts what it is given."""

    def __init__(self) -> None:
        self.graphs = 0
        self.runs = 0

    def __call__(self, gm: Any, example_inputs: Any) -> Any:
        self.graphs += 1

        def run(*args: Any) -> Any:
            self.runs += 1
            return gm.forward(*args)

        return run


class Cached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cache = None

    def forward(self, x):
        if self.cache is None:
            self.cache = x.new_ones(3) * 2
        return x * self.cache


class Table(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table: dict[int, torch.Tensor] = {}

    def forward(self, x):
        if len(x) not in self.table:
            self.table[len(x)] = torch.arange(len(x))
        return x + self.table[len(x)][:, None]


class Buffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("grid", torch.zeros(1))

    def forward(self, x):
        if self.grid.shape[0] != x.shape[0]:
            self.grid = torch.linspace(0, 1, x.shape[0])
        return x + self.grid[:, None]


class Slot(nn.Module):
    def forward(self, x):
        if not hasattr(self, "scale"):
            self.scale = 3
        return x * self.scale


class Mode(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.kind = "sparse"

    def forward(self, x):
        if self.kind == "sparse" and len(x) < 10:
            self.kind = "full"
        return x + 1 if self.kind == "full" else x - 1


@pytest.mark.parametrize("kind", [Cached, Table, Buffer, Slot, Mode], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("fullgraph", [False, True])
def test_one_compilation(kind: type[nn.Module], fullgraph: bool) -> None:
    """The first call runs what it captured as it is; what is compiled is there for the second."""
    backend, mine, theirs = Counting(), kind(), kind()
    compiled = torchdynamo.compile(mine, backend=backend, fullgraph=fullgraph)
    for call in range(3):
        assert torch.equal(compiled(X), theirs(X))
        assert (backend.graphs, backend.runs) == (1, call)
        assert len(_native.cache_entries(kind.forward.__code__)) == 1


class Keeps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = torch.zeros(4, 3)

    def forward(self, x):
        self.hidden = self.hidden + x
        return self.hidden * 2


def test_a_state_of_the_same_kind_is_no_first_run() -> None:
    backend, mine, theirs = Counting(), Keeps(), Keeps()
    compiled = torchdynamo.compile(mine, backend=backend)
    for call in range(3):
        assert torch.equal(compiled(X), theirs(X))
        assert (backend.graphs, backend.runs) == (1, call + 1)


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * self.calls


class Grows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def forward(self, x):
        self.seen.append(len(x))
        return x * len(self.seen)


@pytest.mark.parametrize("kind", [Counter, Grows], ids=lambda kind: kind.__name__)
def test_never_settled(kind: type[nn.Module]) -> None:
    """What changes with each call is compiled as it is found."""
    mine, theirs = kind(), kind()
    compiled = torchdynamo.compile(mine, backend="eager")
    for _ in range(5):
        assert torch.equal(compiled(X), theirs(X))


def test_set_up_again() -> None:
    """A cache that is cleared: the code for the state without it is made in its turn."""
    backend, mine = Counting(), Cached()
    compiled = torchdynamo.compile(mine, backend=backend)
    for _ in range(3):
        assert torch.equal(compiled(X), X * 2)
        assert torch.equal(compiled(X), X * 2)
        mine.cache = None


def test_new_each_time() -> None:
    """Many modules of one class, each used once: that is compiled as it is found."""
    backend = Counting()
    compiled = torchdynamo.compile(lambda m, x: m(x), backend=backend)
    for _ in range(10):
        assert torch.equal(compiled(Cached(), X), X * 2)
    assert backend.graphs <= 6 and backend.runs >= 5


def make_closure() -> Any:
    table: Any = None

    def fn(x, *more, scale=2):
        nonlocal table
        if table is None:
            table = torch.arange(3) * scale
        return [x + table for _ in range(2)], more

    return fn


def test_closures_and_arguments() -> None:
    backend, mine, theirs = Counting(), make_closure(), make_closure()
    compiled = torchdynamo.compile(mine, backend=backend, fullgraph=True)
    for call in range(3):
        got, wanted = compiled(X, 1, scale=3), theirs(X, 1, scale=3)
        assert torch.equal(got[0][1], wanted[0][1]) and got[1] == wanted[1]
        assert (backend.graphs, backend.runs) == (1, call)


class Fails(Cached):
    def forward(self, x):
        if self.cache is None:
            self.cache = x.new_ones(3)
            return x @ x.reshape(-1)[: len(self.cache)].view(3)[:2]
        return x


def test_first_run_that_raises() -> None:
    compiled = torchdynamo.compile(mine := Fails(), backend="eager")
    with pytest.raises(RuntimeError):
        compiled(X)
    assert mine.cache is not None and torch.equal(compiled(X), X)


class Breaks(Cached):
    def forward(self, x):
        if self.cache is None:
            self.cache = x.new_ones(3)
        y = x * self.cache
        torchdynamo.graph_break()
        return y + self.cache


def test_first_run_that_breaks() -> None:
    backend, mine = Counting(), Breaks()
    compiled = torchdynamo.compile(mine, backend=backend)
    for _ in range(3):
        assert torch.equal(compiled(X), X + 1)
        assert backend.graphs == 2  # either side of the break, as it is from the second call on


class Fills(nn.Module):
    """Sets itself up, and fills a list it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = None

    def forward(self, x, seen):
        if self.cache is None:
            self.cache = x.new_ones(3)
        y = x + self.cache
        seen.append(y)
        return y * len(seen)


def test_what_is_given_to_be_filled_is_empty_the_next_time() -> None:
    backend, mine = Counting(), Fills()
    compiled = torchdynamo.compile(mine, backend=backend)
    for _ in range(3):
        seen: list[Any] = []
        assert torch.equal(compiled(X, seen), X + 1) and torch.equal(seen[0], X + 1)
        assert backend.graphs == 1


def puts_another_in_its_place(x: Any, scale: Any) -> Any:
    def scaled(y: Any) -> Any:
        return y * (scale if isinstance(scale, int) else scale[0])

    torchdynamo.graph_break()
    y = scaled(x)
    if not isinstance(scale, list):
        scale = [scale + 1]
    return scaled(y)


def test_a_variable_of_the_call_is_another_in_the_next() -> None:
    backend = Counting()
    compiled = torchdynamo.compile(puts_another_in_its_place, backend=backend)
    for _ in range(4):
        assert torch.equal(compiled(X, 2), X * 2 * 3)
    assert backend.graphs == 1


def test_nothing_is_kept_alive() -> None:
    mine = Cached()
    died = weakref.ref(mine)
    compiled = torchdynamo.compile(mine, backend="eager")
    compiled(X)
    del mine, compiled
    gc.collect()
    assert died() is None


def test_another_object_of_the_kind_uses_what_there_is() -> None:
    """Its first call sets it up as well; what comes after it was compiled for the first one."""
    counting = Counting()

    def call(module: Cached, x: torch.Tensor) -> Any:
        return module(x)

    compiled = torchdynamo.optimize(counting)(call)
    for module in (Cached(), Cached(), Cached()):
        for _ in range(2):
            assert torch.equal(compiled(module, X), module(X))
    assert counting.graphs == 1


def test_a_reset_is_a_fresh_start() -> None:
    """How often there was a first run counts no more."""
    for _ in range(8):
        torchdynamo.reset()
        counting = Counting()
        module = Cached()
        compiled = torchdynamo.optimize(counting)(lambda x, module=module: module(x))
        compiled(X)
        compiled(X)
        assert counting.graphs == 1


def test_sizes_that_nobody_knows() -> None:
    """What the frame leaves is compared with what it found, and no fact about its sizes is asked for."""

    class Box:
        held = torch.ones(3)

    def fn(box: Box, x: torch.Tensor) -> torch.Tensor:
        found = box.held * 2
        box.held = x[x > 0]
        return found

    torchdynamo.reset()
    with torchdynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torchdynamo.compile(fn, backend="eager")
        box = Box()
        for x in (torch.ones(2), torch.tensor([1.0, -1.0, 1.0]), torch.ones(4)):
            before = box.held
            assert torch.equal(compiled(box, x), before * 2)
            assert torch.equal(box.held, x[x > 0])


def test_operators_that_nobody_has_asked_for() -> None:
    with torch.library._scoped_library("torchdynamo_unasked", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")

        @torchdynamo.optimize("eager")
        def program(x: torch.Tensor) -> torch.Tensor:
            doubled: torch.Tensor = torch.ops.torchdynamo_unasked.twice(x)
            return doubled + 1

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(2):
                assert program(torch.ones(2)).tolist() == [3, 3]


class Late:
    """Gets an attribute from the function that misses it at first, and then raises something else."""


def misses_at_first(x: Any) -> Any:
    try:
        Late.table  # type: ignore[attr-defined]
    except AttributeError as error:
        Late.table = 1  # type: ignore[attr-defined]
        return x + 1, str(error)
    raise ValueError("it is there")


def misses_a_variable(x: Any) -> Any:
    try:
        Late.table  # type: ignore[attr-defined]
    except AttributeError as error:
        text = str(error)
    Late.table = 1  # type: ignore[attr-defined]
    return x + 1, text


@pytest.mark.parametrize("fn", [misses_at_first, misses_a_variable])
@pytest.mark.parametrize("whole", [False, True])
def test_what_raises_when_it_is_set_up_is_found_by_the_next_call(fn: Any, whole: bool) -> None:
    told = []
    for run in (fn, torchdynamo.compile(fn, backend="eager", fullgraph=whole)):
        if hasattr(Late, "table"):
            del Late.table
        told.append(run(X)[1])
        with pytest.raises((ValueError, UnboundLocalError)) as caught:
            run(X)
        told.append(str(caught.value))
    assert told[:2] == told[2:]
