"""Functions with a backward of their own: captured with it, gradients as eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd.function import once_differentiable

import torchdynamo
from torchdynamo.graph.check import check
from torchdynamo.report.explain import collecting

Program = Callable[..., Any]
PROGRAMS: dict[str, Program] = {}


def program(fn: Program) -> Program:
    """A function of two tensors that need gradients."""
    PROGRAMS[fn.__name__] = fn
    return fn


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, power: int, scale: float = 1.0) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.power, ctx.scale = power, scale
        return x**power * scale

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return grad * ctx.scale * ctx.power * x ** (ctx.power - 1), None, None


@program
def constants_on_the_context(x, y):
    return Cube.apply(x * 2, 3, 0.5) + Cube.apply(y, 2, 2.0)


class Separate(torch.autograd.Function):
    @staticmethod
    def forward(x: torch.Tensor, y: torch.Tensor, scale: float = 2.0) -> Any:
        return x * y * scale, x.exp()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, y, ctx.scale = inputs
        ctx.save_for_backward(x, y, output[1])

    @staticmethod
    def backward(ctx: Any, product: torch.Tensor, power: torch.Tensor) -> Any:
        x, y, exp = ctx.saved_tensors
        return product * y * ctx.scale + power * exp, product * x * ctx.scale, None


@program
def separate_context(x, y):
    product, power = Separate.apply(x, y)
    return product + power.sum()


@program
def one_result_unused(x, y):
    """Its gradient comes as zeros."""
    return Separate.apply(x, y, 3.0)[0]


class Asks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*(x if ctx.needs_input_grad[1] else None, y))
        return x * y

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        x, y = ctx.saved_tensors
        gx = grad * y if ctx.needs_input_grad[0] else None
        gy = grad * x if ctx.needs_input_grad[1] else None
        return gx, gy


@program
def asks_what_is_needed(x, y):
    return Asks.apply(x, y.detach()) + Asks.apply(x.detach(), y) + Asks.apply(x, y)


class Writes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(x)
        return x.mul_(3)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 3


@program
def writes_to_its_input(x, y):
    """What it wrote to has the new history, under its old name too."""
    z = x * y
    Writes.apply(z)
    return z.sin()


class Sorts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        values, places = x.sort(-1)
        flags = values > 0
        steps = values.round()
        ctx.mark_non_differentiable(places, flags, steps)
        ctx.places = places
        return values, places, flags, steps

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, *rest: Any) -> torch.Tensor:
        return torch.zeros_like(grad).scatter_(-1, ctx.places, grad + sum(each.sum() for each in rest))


@program
def results_without_gradients(x, y):
    values, places, flags, steps = Sorts.apply(x * y)
    return values * flags + steps + places


class Missing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, left: Any, right: Any) -> Any:
        if left is None and right is None:
            return None
        if left is None:
            return right * 3
        return left * 2 if right is None else left * 2 + right * 3


@program
def gradients_that_are_missing(x, y):
    a, b = Missing.apply(x)
    c, _ = Missing.apply(y)
    _, d = Missing.apply(a)
    return b + c + d


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.result = x.tanh()
        return ctx.result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * (1 - ctx.result * ctx.result)


@program
def differentiable_once(x, y):
    return Once.apply(x @ y.T)


class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, alpha: float) -> torch.Tensor:
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad.neg() * ctx.alpha, None


@program
def reversal(x, y):
    """The gradient of a sum has no strides; that of a view comes as it is."""
    return Same.apply(x, 0.5).T.contiguous().sum() + Same.apply(y, 2.0).sum()


class Nothing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
        return x, y.clone(), 3

    @staticmethod
    def backward(ctx: Any, gx: torch.Tensor, gy: torch.Tensor, _: None) -> Any:
        return gx * 2, gy.contiguous().view(-1).flip(0).view_as(gy)


@program
def gives_its_input_back(x, y):
    a, b, c = Nothing.apply(x, y)
    return (a * b).sum() * c + b.sum()


class Mixed(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, y)
        return x @ y.T

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        x, y = ctx.saved_tensors
        return grad @ y, grad.T @ x


@program
def under_autocast(x, y):
    with torch.autocast("cpu", torch.bfloat16):
        z = Mixed.apply(x, y)
    return z.float() + Mixed.apply(x, y)


class Straight(torch.autograd.Function):
    """A helper of the backward is a function of the module; nested in another's forward there are no gradients."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.shape, ctx.limits = x.shape, [-1, 1]
        return Cube.apply(x, 2).round()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return limited(grad, *ctx.limits).reshape(ctx.shape)


def limited(x: torch.Tensor, low: float, high: float = 1.0) -> torch.Tensor:
    return torch.clamp(x, low, high)


@program
def straight_through(x, y):
    return Straight.apply(x * 3) * y


def gradients(function: Program) -> list[Any]:
    """Of a program, on two calls."""
    found = []
    for seed in range(2):
        torch.manual_seed(seed)
        x, y = (torch.randn(3, 4, requires_grad=True) for _ in range(2))
        z = function(x, y)
        found += [z.detach(), *torch.autograd.grad(z.sum(), (x, y), allow_unused=True)]
    return found


def same(got: list[Any], wanted: list[Any], exact: bool) -> None:
    for mine, theirs in zip(got, wanted, strict=True):
        if exact or theirs is None:
            assert mine is theirs or torch.equal(mine, theirs)
        else:
            torch.testing.assert_close(mine, theirs)


SPECIAL_TO_INDUCTOR = {  # whether memory is written to or given back, or something is missing; the others in long runs
    "writes_to_its_input", "gives_its_input_back", "gradients_that_are_missing", "results_without_gradients",
    "under_autocast",
}  # fmt: skip
BY_BACKEND = [
    pytest.param(name, backend, marks=pytest.mark.long)
    if backend == "inductor" and name not in SPECIAL_TO_INDUCTOR
    else (name, backend)
    for name in PROGRAMS
    for backend in ("eager", "aot_eager", "inductor")
]


@pytest.mark.parametrize(("name", "backend"), BY_BACKEND)
def test_gradients(name: str, backend: str) -> None:
    fn = PROGRAMS[name]
    compiled = torchdynamo.compile(fn, backend=backend, fullgraph=True)
    same(gradients(compiled), gradients(fn), exact=backend != "inductor")


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_once(name: str) -> None:
    compiled = torchdynamo.compile(PROGRAMS[name], backend="eager", fullgraph=True)
    with collecting() as events:
        for _ in range(3):
            gradients(compiled)
    assert len(events) == 1


def one_graph(fn: Program, *args: Any) -> Any:
    graphs: list[Any] = []
    torchdynamo.compile(fn, backend=lambda gm, _: graphs.append(gm) or gm.forward, fullgraph=True)(*args)
    (gm,) = graphs
    return gm


def test_the_graph() -> None:
    """The forward's operators, without gradients, then the operation that brings the backward; that is a body."""
    gm = one_graph(lambda x: Cube.apply(x, 3).sum(), torch.ones(3, requires_grad=True))
    check(gm)
    assert [str(getattr(node.target, "__name__", node.target)) for node in gm.graph.nodes if "call" in node.op] == [
        *("_set_grad_enabled", "pow", "mul", "_set_grad_enabled", "with_backward", "getitem", "sum")
    ]
    body = [getattr(node.target, "__name__", node.target) for node in gm.backward_0.graph.nodes if "call" in node.op]
    assert body == ["mul", "mul", "pow", "mul"]


def test_nothing_is_kept_where_nothing_is_differentiated() -> None:
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            gm = one_graph(lambda x: Cube.apply(x, 3), torch.ones(3, requires_grad=True))
        assert not any("with_backward" in str(node.target) for node in gm.graph.nodes)


def test_its_name_is_the_users() -> None:
    compiled = torchdynamo.compile(lambda x: Cube.apply(x, 2), backend="eager", fullgraph=True)
    assert compiled(torch.ones(2, requires_grad=True)).grad_fn.name() == "CubeBackward"


def test_what_is_saved_is_seen_by_hooks_and_let_go() -> None:
    compiled = torchdynamo.compile(lambda x: Cube.apply(x, 2).sum(), backend="eager", fullgraph=True)
    compiled(torch.ones(2, requires_grad=True))
    x, seen = torch.ones(2, requires_grad=True), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
        y = compiled(x)
    assert any(each is x for each in seen)
    y.backward(retain_graph=True)
    y.backward()
    assert torch.equal(x.grad, torch.full((2,), 4.0))
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_a_saved_tensor_that_is_written_to() -> None:
    compiled = torchdynamo.compile(lambda x: Cube.apply(x, 2).sum(), backend="eager", fullgraph=True)
    x = torch.ones(2, requires_grad=True)
    y = compiled(x)
    with torch.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_second_derivatives(backend: str) -> None:
    def second(fn: Program) -> Any:
        x = torch.tensor([1.0, -2.0], requires_grad=True)
        (first,) = torch.autograd.grad((fn(x) * x).sum(), x, create_graph=True)
        first.sum().backward()
        return x.grad

    def cube(x: torch.Tensor) -> torch.Tensor:
        return Cube.apply(x, 3)

    def once(x: torch.Tensor) -> torch.Tensor:
        return Once.apply(x)

    assert torch.equal(second(torchdynamo.compile(cube, backend=backend, fullgraph=True)), second(cube))
    with pytest.raises(RuntimeError, match="once_differentiable"):
        second(torchdynamo.compile(once, backend=backend, fullgraph=True))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_inside_a_checkpoint(backend: str) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.utils.checkpoint.checkpoint(lambda x: Cube.apply(x * y, 3).sin(), x, use_reentrant=False)

    same(gradients(torchdynamo.compile(fn, backend=backend, fullgraph=True)), gradients(fn), exact=True)


def test_sizes_that_vary() -> None:
    class Mean(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.shape, ctx.count = x.shape, x.numel()
            return x.sum() / ctx.count

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad.expand(ctx.shape) / ctx.count

    graphs: list[Any] = []

    @torchdynamo.compile(backend=lambda gm, _: graphs.append(gm) or gm.forward)
    def compiled(x: torch.Tensor) -> torch.Tensor:
        return Mean.apply(x)

    for size in (3, 4, 7, 9):
        x = torch.ones(size, 2, requires_grad=True)
        compiled(x).backward()
        assert torch.equal(x.grad, torch.full((size, 2), 1 / (2 * size)))
    assert len(graphs) == 2 and any("with_backward" in str(node.target) for node in graphs[1].graph.nodes)


# -- what a backward may read -----------------------------------------------------------------------------------------
SCALE = 2.0
LIMITS = [1.0]


class Holder:
    scale = 2.0


def reads(how: Callable[[Any], Any], forward: Callable[[Any], None] = lambda ctx: None) -> Any:
    class Reads(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            forward(ctx)
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad * how(ctx)

    return Reads


def set_scale(value: float) -> None:
    global SCALE
    SCALE = value


HOLDER = Holder()
TENSOR = torch.tensor(2.0)
READS: dict[str, tuple[Any, Callable[[float], object]]] = {
    "a global": (reads(lambda ctx: SCALE), set_scale),
    "a list": (reads(lambda ctx: LIMITS[0]), lambda value: LIMITS.__setitem__(0, value)),
    "an attribute": (reads(lambda ctx: HOLDER.scale), lambda value: setattr(HOLDER, "scale", value)),
    "a class's attribute": (reads(lambda ctx: Holder.scale), lambda value: setattr(Holder, "scale", value)),
    "a tensor": (reads(lambda ctx: TENSOR), TENSOR.fill_),
    "an object on the context": (
        reads(lambda ctx: ctx.holder.scale, lambda ctx: setattr(ctx, "holder", HOLDER)),
        lambda value: setattr(HOLDER, "scale", value),
    ),
    "a list on the context": (
        reads(lambda ctx: ctx.limits[0], lambda ctx: setattr(ctx, "limits", LIMITS)),
        lambda value: LIMITS.__setitem__(0, value),
    ),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("what", READS)
def test_what_changes_before_the_backward_runs(what: str, backend: str) -> None:
    function, change = READS[what]
    compiled = torchdynamo.compile(lambda x: function.apply(x * 3).sum(), backend=backend)
    for value in (2.0, 5.0, 7.0):
        x = torch.ones(2, requires_grad=True)
        change(0.0)
        y = compiled(x)
        change(value)
        y.backward()
        assert torch.equal(x.grad, torch.full((2,), 3 * value))


def test_a_backward_that_counts() -> None:
    """What it does to its context is there when it runs again."""

    class Counts(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.count = 0
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            ctx.count += 1
            return grad * ctx.count

    x = torch.ones(2, requires_grad=True)
    y = torchdynamo.compile(lambda x: Counts.apply(x).sum(), backend="eager")(x)
    y.backward(retain_graph=True)
    y.backward()
    assert torch.equal(x.grad, torch.full((2,), 3.0))


def test_a_backward_that_draws_and_prints(capsys: pytest.CaptureFixture[str]) -> None:
    class Noisy(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            print("backward")
            return grad * torch.rand(())

    x = torch.ones(2, requires_grad=True)
    y = torchdynamo.compile(lambda x: Noisy.apply(x).sum(), backend="aot_eager")(x)
    assert capsys.readouterr().out == ""
    torch.manual_seed(3)
    y.backward()
    torch.manual_seed(3)
    assert torch.equal(x.grad, torch.ones(2) * torch.rand(()))
    assert capsys.readouterr().out == "backward\n"
