"""Sizes and indices that are read from tensors: one graph serves them all, and what it takes for granted is checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from counting import Counting
from pictures import assert_alike

import torchdynamo

X = torch.arange(12.0).reshape(4, 3) - 5
INDICES = [torch.tensor(n) for n in (2, 1, 0, -1)]
COUNTS = [torch.tensor(n) for n in (2, 1, 0, 4)]
LISTS = [torch.tensor(n) for n in ([1, 3, 0, 0], [2, 2, 1, 1], [4, 0, 4, 1])]
MASKS = [torch.tensor(n) for n in ([True, False, True, True], [False] * 4, [True] * 4)]

Case = Callable[[Any, Any], Any]
CASES: list[tuple[Case, list[torch.Tensor]]] = []


def row(values: list[torch.Tensor]) -> Callable[[Case], Case]:
    def register(fn: Case) -> Case:
        CASES.append((fn, values))
        return fn

    return register


@row(INDICES)
def picked(x: Any, n: Any) -> Any:
    i = n.item()
    return (
        x[i],
        x[:, i],
        x[..., i],
        x[i, 1:],
        x[1:, i],
        x[i, None],
        x[None, i],
        x[i][i],
        x[i, i],
        x[i, n],
        x[n] + x[n, n],
        x[:, n],
    )


@row(INDICES)
def picked_among_masks(x: Any, n: Any) -> Any:
    i, wide = n.item(), torch.stack([x, x + 1])
    return wide[:, i, torch.tensor([0, 2])], wide[torch.tensor([True, False]), i], wide[1, i].view(3, 1)


@row(INDICES)
def written(x: Any, n: Any) -> Any:
    i, y = n.item(), x.clone()
    y[i] += 1
    y[0, i] = 7
    y[1:, i] = torch.ones(1, 3)
    return y


@row(COUNTS)
def written_up_to(x: Any, n: Any) -> Any:
    y = x.clone()
    y[: n.item()] = 0
    return y


@row(COUNTS)
def made(x: Any, n: Any) -> Any:
    i = n.item()
    return torch.zeros(i, 3), torch.arange(i), torch.ones(i).sum(), x.new_full((i,), 2.0), x.repeat(i, 1), torch.eye(i)


@row(COUNTS)
def padded(x: Any, n: Any) -> Any:
    return F.pad(x, (0, 0, 0, n.item())), F.pad(x, (0, 0, -1, n.item()))


@row(COUNTS)
def joined(x: Any, n: Any) -> Any:
    return torch.cat([torch.arange(n.item()), torch.arange(4)])


@row(LISTS)
def counted(x: Any, n: Any) -> Any:
    longest = int(n.max())
    return torch.bincount(n), torch.bincount(n, minlength=6), torch.arange(longest)[None] < n[:, None]


@row(LISTS)
def each_of_a_list(x: Any, n: Any) -> Any:
    return torch.stack([torch.ones(a, 2).sum() for a in n.tolist()])


@row(LISTS)
def all_the_same(x: Any, n: Any) -> Any:
    found, where, counts = torch.unique(n, return_inverse=True, return_counts=True)
    return found * 2, where, counts, torch.unique_consecutive(n), torch.repeat_interleave(x, n, dim=0), found.numel()


@row(MASKS)
def rows_of_a_mask(x: Any, mask: Any) -> Any:
    kept, again = x[mask], (x * 2)[mask]
    return kept + again, F.linear(kept, torch.ones(5, 3)), kept @ kept.t(), kept.softmax(-1), torch.cat([kept, x])


@row(MASKS)
def written_by_a_mask(x: Any, mask: Any) -> Any:
    y = x.clone()
    y[mask] = x[mask] * 2
    (where,) = torch.where(mask)
    return y, x[where], torch.zeros(4, 3).index_add(0, where, x[where]), torch.argwhere(x > 0).sum(0)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].__name__)
def test_one_graph_serves_all(case: tuple[Case, list[torch.Tensor]], backend: str) -> None:
    fn, values = case
    counting = Counting(backend)
    compiled = torchdynamo.compile(fn, backend=counting, fullgraph=True)
    for value in values:
        got, wanted = compiled(X, value), fn(X, value)
        if backend == "eager":
            assert_alike(got, wanted)
        else:
            torch.testing.assert_close(got, wanted, equal_nan=True)
    assert len(counting.graphs) == 1


def added(x: Any, mask: Any) -> Any:
    return x[mask] + torch.ones(3, 3)


def test_a_fact_that_is_missing_is_named_and_can_be_taught() -> None:
    """Whether there are three rows, or one, which would be added to each, is not taken for granted after a write to
    what is too large to be copied before each run."""

    def untaught(x: Any, mask: Any, large: Any) -> Any:
        large.add_(1)
        return added(x, mask)

    with torchdynamo.config.patch(capture_dynamic_output_shape_ops=True):
        (broken,) = torchdynamo.explain(untaught)(X, MASKS[0], torch.zeros(1 << 20)).breaks
    assert broken.reason == "unknown fact"

    def taught(x: Any, mask: Any) -> Any:
        kept = x[mask]
        torch._check(kept.shape[0] == 3)
        return kept + torch.ones(3, 3)

    compiled = torchdynamo.compile(taught, backend="eager", fullgraph=True)
    assert torch.equal(compiled(X, MASKS[0]), added(X, MASKS[0]))
    with pytest.raises(RuntimeError):
        compiled(X, MASKS[2])


def added_where_true(x: Any, mask: Any) -> Any:
    y = x.clone()
    y[~mask] += x[~mask] * 2
    return y


def two_of_a_kind(x: Any, mask: Any) -> Any:
    return x[mask] - x[mask.flip(0)], torch.where(mask, x[:, 0], 0)[mask].topk(min(2, x[mask].shape[0])).values


def one_for_each_row(x: Any, mask: Any) -> Any:
    """There is one class to a row, but nobody knows that of a mask."""
    hot = torch.zeros_like(x)
    hot[torch.arange(mask.numel()), mask.long()] = 1
    own = x[hot == 1]
    return x + hot * (own.cos() - own).unsqueeze(1)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [added_where_true, two_of_a_kind, one_for_each_row], ids=lambda fn: fn.__name__)
def test_unknown_sizes_that_have_to_be_the_same_are_looked_at(fn: Case, backend: str) -> None:
    counting = Counting(backend)
    compiled = torchdynamo.compile(fn, backend=counting, fullgraph=True)
    compiled(X, MASKS[0])
    compiles = len(counting.graphs)
    for mask in (*MASKS, ~MASKS[0]):
        torch.testing.assert_close(compiled(X, mask), fn(X, mask), rtol=0, atol=0)
    assert len(counting.graphs) == compiles


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_unknown_sizes_that_differ(backend: str) -> None:
    """One row is added to each; other numbers of rows raise, as they do in eager."""

    def fn(x: Any, mask: Any) -> Any:
        total = x[mask] + x[~mask]
        return total * total.shape[0]

    compiled = torchdynamo.compile(fn, backend=backend, fullgraph=True)
    half = torch.tensor([True, False, False, True])
    assert torch.equal(compiled(X, half), fn(X, half))
    assert torch.equal(compiled(X, MASKS[0]), fn(X, MASKS[0]))
    with pytest.raises(RuntimeError, match="must match"):
        compiled(X, MASKS[2])
    with torchdynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torchdynamo.compile(fn, backend=backend)
        for mask in (half, MASKS[0], half):
            assert torch.equal(compiled(X, mask), fn(X, mask))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_an_unknown_size_that_is_not_the_known_one(backend: str) -> None:
    def fn(x: Any) -> Any:
        found = x[x > 0]
        return found + torch.ones(18), found.shape[0]

    compiled = torchdynamo.compile(fn, backend=backend, fullgraph=True)
    for positive in (18, 1, 18):
        x = torch.arange(18.0) + positive - 17.5
        torch.testing.assert_close(compiled(x), fn(x), rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="must match"):
        compiled(torch.arange(18.0) - 12.5)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_sizes_that_have_a_factor_in_common(backend: str) -> None:
    """What has to hold is said of what is left without it: 4 * height * width == 24 of height * width == 6."""

    def fn(x: Any, grid: Any) -> Any:
        height, width = grid.tolist()
        return x * torch.arange(4 * height * (width // 2)), height

    compiled = torchdynamo.compile(fn, backend=backend, fullgraph=True)
    x = torch.arange(24.0)
    for grid in (torch.tensor([2, 6]), torch.tensor([3, 4]), torch.tensor([6, 3])):
        torch.testing.assert_close(compiled(x, grid), fn(x, grid), rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="must match"):
        compiled(x, torch.tensor([2, 2]))


@pytest.mark.filterwarnings("error::torchdynamo.errors.FallbackWarning")
def test_an_operator_that_asks_for_more_than_equal_sizes() -> None:
    """Dropout asks whether its probability, which is no constant once it has changed, is one."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5)).eval()
    compiled, x = torchdynamo.compile(model, backend="eager"), torch.ones(2, 3)
    for probability in (0.5, 0.25, 0.75):
        model[1].p = probability
        torch.testing.assert_close(compiled(x), model(x), rtol=0, atol=0)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_indexing_calls_no_function_in_the_place_of_torchs(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries replace `torch.select` (torch_geometric does), which eager's indexing does not ask."""
    asked = []

    def replaced(fn: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            asked.append(fn.__name__)
            return fn(*args, **kwargs) + 1

        return call

    monkeypatch.setattr(torch, "select", replaced(torch.select))
    monkeypatch.setattr(torch, "unsqueeze", replaced(torch.unsqueeze))

    def fn(x: Any, n: Any) -> Any:
        i, y = n.item(), x.clone()
        y[i] += 1
        return x[i], x[i, None], x[None, :, i], x[n], y

    compiled = torchdynamo.compile(fn, backend=backend, fullgraph=True)
    for n in INDICES:
        assert_alike(compiled(X, n), fn(X, n))
    assert not asked


@pytest.mark.parametrize("name", ["where", "eq", "stack", "tensor", "arange", "empty", "cat", "tensor_split"])
def test_operators_are_pytorchs_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What eager computes without a function of `torch` does not ask one that a library has put in its place."""
    own = getattr(torch, name)

    def replaced(*args: Any, **kwargs: Any) -> Any:
        found = own(*args, **kwargs)
        return tuple(each + 1 for each in found) if isinstance(found, tuple) else found + 1

    def fn(x: Any, hot: Any) -> Any:
        chosen = torch.where(x > 0, x, -x), torch.tensor([1.0, 2.0]), torch.tensor_split(x, 2), torch.stack([x, x])
        return chosen, max(x.sum(), x.mean()), torch.nn.functional.one_hot(hot), x == x, torch.FloatTensor([1, 2]), x[0]

    monkeypatch.setattr(torch, name, replaced)
    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=True)
    given = X, torch.tensor([0, 2])
    assert_alike(compiled(*given), fn(*given))


def test_a_number_as_an_index_ends_no_graph() -> None:
    """Nobody asks what it is, so no setting is needed."""
    n, counting = torch.tensor(2), Counting()
    compiled = torchdynamo.compile(lambda x, n: x[n, 1:] + 1, backend=counting)
    assert torch.equal(compiled(X, n), X[2, 1:] + 1) and len(counting.graphs[0].graph.nodes) == 7
    assert torch.equal(compiled(X, n + 1), X[3, 1:] + 1) and len(counting.graphs) == 1


def test_an_index_out_of_range_raises_as_it_does_in_eager() -> None:
    compiled = torchdynamo.compile(lambda x, n: x[n.item()], backend="eager", fullgraph=True)
    compiled(X, torch.tensor(3))
    with pytest.raises(IndexError):
        compiled(X, torch.tensor(4))
