"""Numbers read from tensors stay in the graph: nothing of the first call's values is burnt in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from pictures import assert_alike
from torch_asserting import asserted

import torchdynamo
from torchdynamo.core.reasons import title
from torchdynamo.errors import Unsupported

X = torch.arange(6.0).reshape(2, 3)
Case = Callable[..., Any]


class Row(NamedTuple):
    """A function, and the arguments it is called with in turn; the graph made for the first serves all."""

    fn: Case
    calls: list[tuple[Any, ...]]


ROWS: list[Row] = []


def row(*calls: tuple[Any, ...]) -> Callable[[Case], Case]:
    def register(fn: Case) -> Case:
        ROWS.append(Row(fn, list(calls)))
        return fn

    return register


def ints(*numbers: int) -> list[tuple[Any, ...]]:
    return [(X, torch.tensor(number)) for number in numbers]


def floats(*numbers: float) -> list[tuple[Any, ...]]:
    return [(X, torch.tensor(number)) for number in numbers]


def signs(*rows: list[float]) -> list[tuple[Any, ...]]:
    return [(torch.tensor(row),) for row in rows]


@row(*ints(5, -4, 1))
def item(x: Any, n: Any) -> Any:
    i = n.item()
    return x * i, i, i + 1, i - 2, i * i, -i, +i, ~i, abs(i), i / 2, i // 2, i % 3, i**2


@row(*ints(5, -4, 1))
def compared(x: Any, n: Any) -> Any:
    i = int(n)
    return i < 3, i == 5, i != 5, not i, bool(i), int(i > 2), (i > 2) + 1, (i > 2) & (i < 9), i == "5", i != None  # noqa: E711


@row(*ints(5, -4, 1))
def bits(x: Any, n: Any) -> Any:
    i = n.item()
    return i & 3, i | 8, i ^ 1, i << 2, i >> 1


@row(*ints(5, -4, 1))
def extremes(x: Any, n: Any) -> Any:
    i = n.item()
    return max(i, 3), min(i, 3, 2), round(i), divmod(i, 3), pow(i, 2), float(i)


@row(*floats(5.5, -4.25, float("nan"), float("inf")))
def floating(x: Any, v: Any) -> Any:
    a = v.item()
    return x * a, a + 1, 2 - a, a / 3, -a, abs(a), a == a, a != a, a < 3, bool(a), a**2


@row(*floats(5.5, -4.25, 1e30, -0.5))
def rounded(x: Any, v: Any) -> Any:
    a = float(v)
    return int(a), a // 2, a % 3, round(a), (a + 1e30) - 1e30 == a


@row(*[(X, torch.tensor([a, b])) for a, b in [(5, 2), (1, -7)]])
def listed(x: Any, pair: Any) -> Any:
    a, b = pair.tolist()
    return x + a * b, [a, b], (b, a)


@row(*[(X, torch.tensor([[a, b], [b, a]])) for a, b in [(5, 2), (1, -7)]])
def nested(x: Any, pair: Any) -> Any:
    return pair.tolist(), sum(pair.flatten().tolist())


@row(*[(X, torch.tensor(flag)) for flag in (True, False)])
def truth(x: Any, flag: Any) -> Any:
    answer = bool(flag)
    return answer, not answer, int(answer), x * answer, flag.item()


@row(*signs([1.0, -1, 3], [-1.0, -1, -3], [1.0, 1, 3]))
def nonzero(x: Any) -> Any:
    found = torch.nonzero(x > 0)
    return found, found.shape[0], len(found), found.shape, found.numel(), found.size()


@row(*signs([1.0, -1, 3], [-1.0, -1, -3], [1.0, 1, 3]))
def masked(x: Any) -> Any:
    return x[x > 0], x[x > 0].sum(), torch.masked_select(x, x < 0) + 1, x[x > 0].shape[0] * 2


@row(*signs([1.0, -1, 3], [-1.0, -1, -1], [1.0, 1, 3]))
def unique(x: Any) -> Any:
    values, where = torch.unique(x, return_inverse=True)
    return values, where, len(values)


@row(*[(X, torch.tensor(counts)) for counts in ([2, 1, 0], [4, 5, 6], [0, 0, 0])])
def repeated(x: Any, counts: Any) -> Any:
    return torch.repeat_interleave(x, counts, dim=1)


@row(*[(X, torch.tensor(sizes)) for sizes in ([1, 2, 0], [3, 0, 0])])
def split(x: Any, sizes: Any) -> Any:
    return torch.split(x, sizes.tolist(), dim=1)


@row(*ints(2, 1, 3))
def sliced(x: Any, n: Any) -> Any:
    i = n.item()
    torch._check(i >= 0)
    torch._check(i <= 3)
    return x[:, :i], torch.zeros(i), torch.arange(i), torch.full((2,), i)


@row(*ints(2, 1, 3, 0))
def sliced_by_tensors(x: Any, n: Any) -> Any:
    return x[:, n:], x[..., : n + 1]


@row(*ints(5, 7))
def taught(x: Any, n: Any) -> Any:
    i = n.item()
    torch._check(i > 2, lambda: "too small")
    return x + 1 if i > 1 else x - 1


row(*ints(5, 7))(asserted)


@row(*ints(5, 2))
def made_of(x: Any, n: Any) -> Any:
    i = n.item()
    torch._check(i >= 0, lambda: f"{i} of {x.shape} is negative")
    torch._check(i <= 6)
    rest = x.flatten()[:i]
    size = x.size()[:1] + (i,) + x.shape[1:]
    return torch.tensor([i, 2, i + 1]), torch.nn.functional.pad(rest, (1, 0)), x[:, None].expand(size), size.numel()


@row((X, X + 1), (X, X.clone()), (X, X + 1e-9), (X * float("nan"), X * float("nan")))
def alike(x: Any, y: Any) -> Any:
    return torch.equal(x, y), x.equal(y), torch.allclose(x, y, rtol=1e-3), x.allclose(y), x + torch.equal(x, y)


@row((X, torch.tensor(3)), (X, torch.tensor(3)))
def constants(x: Any, n: Any) -> Any:
    dims = torch.arange(1, x.dim()).tolist()
    table = {k: k + 1 for k in torch.tensor([1, 2]).tolist()}
    return x.sum(dims), table, "positive" if torch.ones(2).sum() > 1 else "negative", f"{torch.tensor(2.5).item()}"


@pytest.mark.parametrize("case", ROWS, ids=lambda case: case.fn.__name__)
def test_one_graph_serves_all_values(case: Row) -> None:
    graphs: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    compiled = torchdynamo.compile(case.fn, backend=backend, fullgraph=True)
    for args in case.calls:
        assert_alike(compiled(*args), case.fn(*args))
    assert len(graphs) == 1


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize(
    "case",
    [each for each in ROWS if each.fn in (item, listed, nonzero, masked, sliced, repeated, alike, made_of)],
    ids=lambda case: case.fn.__name__,
)
def test_backends_take_them(case: Row, backend: str) -> None:
    compiled = torchdynamo.compile(case.fn, backend=backend, fullgraph=True)
    for args in case.calls:
        for got, wanted in zip(compiled(*args), case.fn(*args), strict=True):
            torch.testing.assert_close(got, wanted, equal_nan=True)


def branch(x: Any) -> Any:
    return x + 1 if x.sum().item() > 0 else x - 1


def nan_test(x: Any) -> Any:
    value = x.sum().item()
    return x if value == value else x - 1


def counted(x: Any) -> Any:
    return [x + i for i in range(int(x.sum()))]


def keyed(x: Any) -> Any:
    return {int(x.sum()): x}


def drawn(x: Any) -> Any:
    return x + 1 if torch.rand(1).item() > 0.5 else x


def found_memory(x: Any) -> Any:
    return x + torch.empty(3).tolist()[0] if x.dim() > 1 else {torch.empty(1).item(): x}


@pytest.mark.parametrize("fn", [branch, nan_test, counted, keyed, drawn, found_memory], ids=lambda fn: fn.__name__)
def test_what_depends_on_values_is_not_burnt_in(fn: Case) -> None:
    x = torch.ones(18)  # so many that their values are not guarded instead
    with pytest.raises(Unsupported):
        torchdynamo.compile(fn, backend="eager", fullgraph=True)(x)


def test_checks_fail_when_they_should() -> None:
    compiled = torchdynamo.compile(taught, backend="eager", fullgraph=True)
    compiled(X, torch.tensor(5))
    with pytest.raises(RuntimeError):
        compiled(X, torch.tensor(2))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_assertions_fail_when_they_should(backend: str) -> None:
    compiled = torchdynamo.compile(asserted, backend=backend, fullgraph=True)
    compiled(X, torch.tensor(5))
    with pytest.raises(AssertionError, match="too small"):
        compiled(X, torch.tensor(2))
    with pytest.raises(AssertionError):
        compiled(X, torch.tensor(12))


@pytest.mark.parametrize(("fn", "reason"), [(item, "data-dependent value"), (masked, "dynamic output shape")])
def test_a_break_where_nobody_asked_for_them(fn: Case, reason: str) -> None:
    args = (X, torch.tensor(5)) if fn is item else (X,)
    report = torchdynamo.explain(fn)(*args)
    assert report.breaks and report.breaks[0].reason == reason
    name = "capture_scalar_outputs" if fn is item else "capture_dynamic_output_shape_ops"
    with torchdynamo.config.patch(**{name: True}):
        report = torchdynamo.explain(fn)(*args)
    assert not report.breaks, title(report.breaks[0].reason)


def sums_of_known_sums(x: Any, a: int, b: int) -> Any:
    """`a + b` is found to be 5; it is more than nothing where `b` is added again."""
    total = a + b
    return x, str(total), str(total + b), total + b > 6


def test_a_sum_that_is_known_is_added() -> None:
    compiled = torchdynamo.compile(sums_of_known_sums, backend="eager", fullgraph=True)
    for a, b in ((1, 2), (3, 2), (4, 1), (7, 5)):
        assert compiled(X, a, b)[1:] == sums_of_known_sums(X, a, b)[1:]
