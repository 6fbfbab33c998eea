"""Numbers read from small tensors that the program keeps: known while they stay, not trusted once they changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from counting import Counting

import torchdynamo

X = torch.arange(8.0).view(1, 8)


class Padded(torch.nn.Module):
    """Asks its buffers for numbers in every way there is."""

    k: torch.Tensor
    stride: torch.Tensor
    ready: torch.Tensor
    pads: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("k", torch.tensor(5))
        self.register_buffer("stride", torch.tensor(2))
        self.register_buffer("ready", torch.tensor([False]))
        self.register_buffer("pads", torch.tensor([[1], [2]]))

    def forward(self, x: Any) -> Any:
        padding = self.k - self.stride
        if x.shape[-1] <= max(padding, self.stride):
            x = x * 2
        if not self.ready:
            x = x + 1
        (a,), (b,) = self.pads.tolist()
        x = torch.nn.functional.pad(x, (padding, self.stride), "reflect")
        if x.shape[-1] > 9:
            x = x + 1
        return x + a - b + torch.arange(self.stride)[-1]


CHANGES = {
    "a flag": lambda m: m.ready.fill_(True),
    "a count": lambda m: m.k.add_(1),
    "an element": lambda m: m.pads.numpy().fill(7),
    "behind its back": lambda m: m.stride.data.copy_(torch.tensor(1)),
    "another tensor": lambda m: setattr(m, "ready", torch.tensor([True])),
    "without a flag": lambda m: setattr(m, "ready", torch.tensor(False)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_followed(change: Any) -> None:
    module, backend = Padded(), Counting()
    compiled = torchdynamo.compile(module, backend=backend, fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(X), module(X))
    assert len(backend.graphs) == 1
    change(module)
    for _ in range(2):
        assert torch.equal(compiled(X), module(X))
    assert len(backend.graphs) == 2


class Counts(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.tensor(3))

    def forward(self, x: Any) -> Any:
        y = x + 1
        return y * int(self.seen)


def test_what_changes_is_a_break_from_then_on() -> None:
    module, backend = Counts(), Counting()
    compiled = torchdynamo.compile(module, backend=backend)
    for number in range(12):
        module.seen.fill_(number)
        assert torch.equal(compiled(X), module(X))
    assert len(backend.graphs) <= 5


class Writes(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.tensor(3))

    def forward(self, x: Any) -> Any:
        self.seen.add_(1)
        return x * self.seen.item()


def test_what_the_frame_has_written_is_not_what_was_there() -> None:
    theirs, mine = Writes(), Writes()
    compiled = torchdynamo.compile(mine, backend="eager")
    for _ in range(4):
        assert torch.equal(compiled(X), theirs(X))


def passed(x: Any, n: Any, also: Any) -> Any:
    return x * n.item() + also["n"].item()


def test_what_is_passed_is_not_taken_for_a_constant() -> None:
    backend = Counting()
    compiled = torchdynamo.compile(passed, backend=backend)
    assert torch.equal(compiled(X, torch.tensor(2), {"n": torch.tensor(3)}), X * 2 + 3)
    graphs = len(backend.graphs)
    assert torch.equal(compiled(X, torch.tensor(3), {"n": torch.tensor(4)}), X * 3 + 4)
    explained = torchdynamo.explain(passed)(X, torch.tensor(2), {"n": torch.tensor(3)})
    assert len(explained.break_reasons) > 0 and graphs > 0


def test_a_method_is_that_of_a_tensor() -> None:
    """The tensor whose method takes a number that nobody knows is not taken for the number it holds."""

    def fn(x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        most = int(counts.max())
        return torch.as_tensor(0.5).repeat([2 * most, 1]) + x

    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=True)
    for most in (3, 5):
        given = torch.ones(1), torch.tensor([1, most])
        assert torch.equal(compiled(*given), fn(*given))


def spread(x: torch.Tensor, grid: torch.Tensor) -> Any:
    ends = torch.repeat_interleave(grid[:, 1] * grid[:, 2], grid[:, 0]).cumsum(0)
    ends = torch.nn.functional.pad(ends, (1, 0))
    return [part.sum(0) for part in torch.split(x, (ends[1:] - ends[:-1]).tolist())]


def test_a_list_of_unknown_length_is_read_from_what_is_passed() -> None:
    """Under `fullgraph=True`: each grid has a version, and is followed when it changes in place."""
    backend = Counting()
    compiled = torchdynamo.compile(spread, backend=backend, fullgraph=True)
    x, grid = torch.arange(48.0).view(24, 2), torch.tensor([[2, 2, 3], [1, 3, 4]])
    for change in (lambda: None, lambda: None, lambda: grid.copy_(torch.tensor([[1, 3, 4], [2, 3, 2]]))):
        change()
        for one, other in zip(compiled(x, grid), spread(x, grid), strict=True):
            assert torch.equal(one, other)
    assert len(backend.graphs) == 2
    grid.data[1, 0] = 3
    with pytest.raises(RuntimeError, match="split_with_sizes expects split_sizes to sum exactly to 24"):
        compiled(x, grid)


def written_first(x: torch.Tensor, counts: torch.Tensor, also: torch.Tensor) -> Any:
    also.add_(1)  # which may be a view of the counts
    return [x * count for count in torch.repeat_interleave(counts, counts).tolist()]


def test_a_list_of_what_the_frame_has_written_is_not_known() -> None:
    compiled, x = torchdynamo.compile(written_first, backend="eager"), torch.arange(8)
    with pytest.raises(torchdynamo.exc.Unsupported, match="tolist needs to know a number"):
        counts = torch.tensor([1, 1])
        torchdynamo.compile(written_first, backend="eager", fullgraph=True)(x, counts, counts[:])
    mine, theirs = torch.tensor([1, 3]), torch.tensor([1, 3])
    assert all(map(torch.equal, compiled(x, mine, mine[:]), written_first(x, theirs, theirs[:])))


class Replaced(torch.nn.Module):
    """Gives tensors other memory, and asks for what they hold."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor([3, 4]))

    def forward(self, x: Any) -> Any:
        before = self.count.tolist()
        self.count.data = self.count + 1
        made = torch.arange(3)
        same, view = made.requires_grad_(False), made[1:]
        same.data = torch.ones(3, dtype=torch.int64)
        y = x * self.count[0].item() + before[1]
        return y, before, made.tolist(), made[:1].tolist(), view.tolist(), 1 if self.count[1] == 4 else 2


def test_other_memory_holds_other_numbers() -> None:
    theirs, mine = Replaced(), Replaced()
    compiled = torchdynamo.compile(mine, backend="eager")
    for _ in range(3):
        (one, *numbers), (other, *expected) = compiled(X), theirs(X)
        assert torch.equal(one, other) and numbers == expected

    def of_passed(x: Any, counts: Any, others: Any) -> Any:
        counts.data = others
        return x * len(counts[counts > 3].tolist())

    given = X, torch.tensor([3, 4, 5]), torch.tensor([9, 9, 9])
    with pytest.raises(torchdynamo.exc.Unsupported, match="tolist needs to know a number"):
        torchdynamo.compile(of_passed, backend="eager", fullgraph=True)(*given)
    assert torch.equal(torchdynamo.compile(of_passed, backend="eager")(*given), X * 3)


ARRAY = np.array([3, 4, 5])
OF_ARRAY = torch.from_numpy(ARRAY)
BUFFER = bytearray([3, 4, 5])
OF_BUFFER = torch.frombuffer(BUFFER, dtype=torch.uint8)


def put(memory: Any) -> None:
    memory[0] = 9


WRITES = {
    "item": put,
    "method": lambda memory: memory.fill(9),
    "out": lambda memory: np.add(memory, 6, out=memory),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_to_an_array_is_seen_in_a_tensor_of_its_memory(write: Any) -> None:
    def of_kept(x: Any) -> Any:
        before = OF_ARRAY.tolist()
        write(ARRAY)
        return x * OF_ARRAY[0].item(), before, OF_ARRAY.tolist()

    def of_passed(x: Any, counts: Any, array: Any) -> Any:
        write(array)
        return [x * count for count in counts[counts > 3].tolist()]

    compiled = torchdynamo.compile(of_kept, backend="eager")
    for _ in range(3):
        ARRAY[:] = 3, 4, 5
        product, *numbers = of_kept(X)
        ARRAY[:] = 3, 4, 5
        one, *found = compiled(X)
        assert torch.equal(one, product) and found == numbers
    array, other = np.array([3, 4, 5]), np.array([3, 4, 5])
    expected = of_passed(X, torch.from_numpy(other), other)
    with pytest.raises(torchdynamo.exc.Unsupported, match="tolist needs to know a number"):
        torchdynamo.compile(of_passed, backend="eager", fullgraph=True)(X, torch.from_numpy(array), array)
    found = torchdynamo.compile(of_passed, backend="eager")(X, torch.from_numpy(array), array)
    assert len(found) == 3 and all(map(torch.equal, found, expected))


def test_a_write_to_a_buffer_is_seen_in_a_tensor_of_its_memory_without_any_graph() -> None:
    def fn() -> Any:
        put(BUFFER)
        return OF_BUFFER.tolist()

    compiled = torchdynamo.compile(fn, backend="eager")
    for _ in range(2):
        BUFFER[0] = 3
        assert compiled() == [9, 4, 5]


HIDDEN = [0]


def plus_hidden(x: torch.Tensor) -> torch.Tensor:
    return x + HIDDEN[0]


LIBRARY = torch.library.Library("read_state", "DEF")
LIBRARY.define("opaque(Tensor x) -> Tensor")
LIBRARY.impl("opaque", plus_hidden, "CPU")
LIBRARY.impl("opaque", torch.empty_like, "Meta")
LIBRARY.define("composite(Tensor x) -> Tensor")
LIBRARY.impl("composite", plus_hidden, "CompositeImplicitAutograd")
COUNT = torch.tensor([3])


@pytest.mark.parametrize("name", ["opaque", "composite"])
@pytest.mark.parametrize("overload", [False, True])
def test_operators_of_the_program_may_read_what_changes(name: str, overload: bool) -> None:
    packet = getattr(torch.ops.read_state, name)
    operator = packet.default if overload else packet
    compiled = torchdynamo.compile(lambda x: x * operator(COUNT)[0].item(), backend="eager")
    for number in range(3):
        HIDDEN[0] = number
        assert torch.equal(compiled(X), X * (3 + number))
