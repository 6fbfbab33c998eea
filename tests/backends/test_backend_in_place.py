"""Graphs of AOTAutograd that run operator by operator write in place as eager does, where nobody can tell."""

from __future__ import annotations

import contextlib
import copy
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx
from torch.utils._python_dispatch import TorchDispatchMode

import torchdynamo
from torchdynamo.backends import aot_autograd
from torchdynamo.backends.in_place import write_in_place

Program = Callable[[torch.Tensor, torch.Tensor], Any]


def chain(x: torch.Tensor, y: torch.Tensor) -> None:
    x.mul_(0.9).add_(y, alpha=0.1).clamp_(-1, 1)


def adam(x: torch.Tensor, y: torch.Tensor) -> None:
    moment = x.mul_(0.9).addcmul_(y, y, value=0.1)
    y.addcdiv_(y, moment.sqrt().div_(2).add_(1e-8), value=-0.1)


def foreach(x: torch.Tensor, y: torch.Tensor) -> None:
    torch._foreach_mul_([x, y], 0.5)
    torch._foreach_add_([x, y], [1.0, 2.0])


def roots_of_foreach(x: torch.Tensor, y: torch.Tensor) -> None:
    roots = torch._foreach_sqrt(torch._foreach_abs([x, y]))
    torch._foreach_add_(roots, 1)
    torch._foreach_div_([x, y], roots)


def one_of_foreach_is_read(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    before = y * 1
    view = before.t()
    torch._foreach_mul_([x, before], 0.5)
    return view + 1


def read_later(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    doubled, before = x * 2, x.clone()
    x.add_(1)
    return before + doubled * x


def read_before(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    doubled = x * 2
    x.add_(y)
    return doubled


def overwritten(x: torch.Tensor, y: torch.Tensor) -> None:
    x.copy_(y)


def swapped(x: torch.Tensor, y: torch.Tensor) -> None:
    one, other = x + 1, y + 2
    x.copy_(other)
    y.copy_(one)


def swapped_halves(x: torch.Tensor, y: torch.Tensor) -> None:
    kept = x[:2].clone()
    x[:2] = x[2:]
    x[2:] = kept


def view_read_later(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    row = x[0]
    x.mul_(3)
    return row + 1


def view_written(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x[1].mul_(3)
    x.t().add_(y.t())
    return x.sum()


def view_returned(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.mul_(3).t()


def of_itself(x: torch.Tensor, y: torch.Tensor) -> None:
    x.copy_(x @ x)
    y.mul_(y)


def of_its_transpose(x: torch.Tensor, y: torch.Tensor) -> None:
    x.copy_(x + x.t())


def of_another_dtype(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    count = (y > 0).long()
    count.copy_(count * 1.5)
    return count


def otherwise_in_memory(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    made = (x + 1).t()
    made.mul_(2).exp_()
    return made


def drawn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(x.mul_(2), 0.5).t() * torch.empty_like(y).uniform_(1, 2)


def normed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    mean, square = x[0], y[0]
    out = torch.nn.functional.batch_norm(x * y, mean.clone(), square.abs(), training=True)
    y.add_(1)
    return out


PROGRAMS: list[Program] = [
    chain,
    adam,
    foreach,
    roots_of_foreach,
    one_of_foreach_is_read,
    read_later,
    read_before,
    overwritten,
    swapped,
    swapped_halves,
    view_read_later,
    view_written,
    view_returned,
    of_itself,
    of_its_transpose,
    of_another_dtype,
    otherwise_in_memory,
    drawn,
    normed,
]


def contiguous() -> torch.Tensor:
    return torch.randn(4, 4)


def transposed() -> torch.Tensor:
    return torch.randn(4, 4).t()


def with_gaps() -> torch.Tensor:
    return torch.randn(4, 8)[:, ::2]


def outcome(program: Program, make: Callable[[], torch.Tensor]) -> tuple[Any, ...]:
    torch.manual_seed(0)
    x, y = make(), make()
    result = program(x, y)
    whole = x if x._base is None else x._base
    return result, x, y, whole, torch.rand(1), (x.stride(), y.stride())


@pytest.mark.parametrize("make", [contiguous, transposed, with_gaps])
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_eager(program: Program, make: Callable[[], torch.Tensor]) -> None:
    compiled = torchdynamo.compile(program, backend="aot_eager")
    wanted = outcome(program, make)
    for _ in range(3):
        found = outcome(compiled, make)
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
        if isinstance(wanted[0], torch.Tensor):
            assert found[0].stride() == wanted[0].stride()


def test_same_for_sizes_that_vary() -> None:
    compiled = torchdynamo.compile(chain, backend="aot_eager", dynamic=True)
    for size in (3, 4, 5, 5):
        torch.manual_seed(size)
        x, y = torch.randn(size, 2), torch.randn(size, 2)
        expected = x.clone()
        chain(expected, y)
        compiled(x, y)
        assert torch.equal(x, expected)


@pytest.mark.parametrize("program", [chain, adam, foreach, read_before, overwritten])
def test_versions_are_eagers(program: Program) -> None:
    compiled = torchdynamo.compile(program, backend="aot_eager")
    for _ in range(3):
        (x, y), (a, b) = (torch.ones(4, 4), torch.ones(4, 4)), (torch.ones(4, 4), torch.ones(4, 4))
        compiled(x, y)
        program(a, b)
        assert (x._version, y._version) == (a._version, b._version)


class Passing(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_writes_of_lists_are_counted_under_a_mode() -> None:
    """AOTAutograd calls a graph under one of its own when it is called first."""
    (graph,) = traced(foreach, torch.ones(4, 4), torch.ones(4, 4))
    write_in_place(graph)
    run = torch.fx.GraphModule({}, graph)
    for mode in (contextlib.nullcontext(), Passing()):
        x, y = torch.ones(4, 4), torch.ones(4, 4)
        with torch.no_grad(), mode:
            run(x, y)
        assert (x._version, y._version) == (2, 2)


# What is left of a graph: operators in place, and copies to inputs.
LEFT: list[tuple[Program, dict[str, int]]] = [
    (chain, {"mul_": 1, "add_": 1, "clamp_": 1}),
    (foreach, {"_foreach_mul_": 1, "_foreach_add_": 1}),
    (read_before, {"add_": 1}),
    (overwritten, {"copy_": 1}),
    (view_read_later, {"mul_": 1}),
    (of_its_transpose, {"copy_": 1}),
    (of_itself, {"copy_": 2}),
]


@pytest.mark.parametrize(("program", "left"), LEFT, ids=lambda each: getattr(each, "__name__", ""))
def test_what_is_written_in_place(program: Program, left: dict[str, int]) -> None:
    graphs = traced(program, torch.randn(4, 4), torch.randn(4, 4))
    for graph in graphs:
        write_in_place(graph)
        graph.lint()
    assert mutations(graphs) == left


def traced(program: Program, x: torch.Tensor, y: torch.Tensor) -> list[torch.fx.Graph]:
    graphs: list[torch.fx.Graph] = []

    def keep(gm: torch.fx.GraphModule, inputs: Any) -> None:
        graphs.append(copy.deepcopy(gm.graph))

    torchdynamo.compile(program, backend=aot_autograd(keep, keep_inference_input_mutations=True))(x, y)
    return graphs


def mutations(graphs: list[torch.fx.Graph]) -> dict[str, int]:
    ops = [node.target for graph in graphs for node in graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    return dict(Counter(op._opname for op in ops if op._schema.is_mutable))


def test_inputs_are_as_they_were_where_something_later_fails() -> None:
    def step(x: torch.Tensor, table: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return torch.nn.functional.embedding(at, table)

    compiled = torchdynamo.compile(step, backend="aot_eager")
    table = torch.randn(3, 2)
    for _ in range(3):
        compiled(torch.ones(2), table, torch.tensor([0, 1]))
    for function in (step, compiled):
        x = torch.ones(2)
        with pytest.raises(IndexError, match="out of range"):
            function(x, table, torch.tensor([7]))
        assert x.tolist() == [2.0, 2.0]


def test_a_compilers_graph_stays_as_it_got_it() -> None:
    seen: list[torch.fx.GraphModule] = []
    backend = aot_autograd(lambda gm, inputs: seen.append(gm), keep_inference_input_mutations=True)  # type: ignore[func-returns-value]
    torchdynamo.compile(chain, backend=backend)(torch.ones(4, 4), torch.ones(4, 4))
    targets = {node.target for gm in seen for node in gm.graph.nodes if node.op == "call_function"}
    assert torch.ops.aten.copy_.default in targets and torch.ops.aten.mul.Tensor in targets


def test_buffers_of_batch_norm_are_written_by_graphs_that_train() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
    other = copy.deepcopy(model)
    compiled = torchdynamo.compile(model, backend="aot_eager")
    for seed in range(3):
        x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
        for each in (compiled, other):
            each(x).square().sum().backward()
    for one, two in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(one, two)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one.grad, two.grad)  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_result_written_to_a_tensor_of_another_size(backend: str) -> None:
    """It gets the result's size, which compilers do not know of what a graph is given."""

    def fn(x: torch.Tensor, out: torch.Tensor) -> Any:
        return torch.cosh(x, out=out) + 1, out.shape, torch.add(x, 1, out=torch.empty(0)), out.sum()

    compiled = torchdynamo.compile(fn, backend=backend, fullgraph=True)
    for shape in ((0,), (2, 3), (0, 4)):
        x, mine, theirs = torch.rand(2, 3), torch.ones(shape), torch.ones(shape)
        for got, wanted in zip(compiled(x, mine), fn(x, theirs), strict=True):
            torch.testing.assert_close(got, wanted)
        assert mine.shape == theirs.shape == x.shape
