"""Functions with a backward that reads what the program may change before it runs: captured, and eager's gradients."""

from __future__ import annotations

import copy
import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import torchdynamo
from torchdynamo.graph.custom_backward import with_backward
from torchdynamo.report.explain import collecting

SCALE = 2.0
LIMITS = [2.0]
ANSWER = "right"


class Settings:
    scale = 2.0


class Holder:
    def __init__(self) -> None:
        self.scale = 2.0


HOLDER = Holder()


class Pair(NamedTuple):
    first: Any
    second: torch.Tensor


class Kept:
    """What a forward keeps: objects of several types, shared and leading back to themselves."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.me, self.shape = self, x.shape
        self.names = OrderedDict(a=x.exp(), b=2.0)
        self.keys, self.pair = self.names.keys(), Pair([y.cos(), {"y": y}], y.sin())
        self.part, self.cls = slice(0, 1), Holder


class Reads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor, power: float) -> Any:
        ctx.kept, ctx.power = Kept(x, y), power
        ctx.again = [ctx.kept, (ctx.kept.pair,)]
        ctx.save_for_backward(x, None, y)
        return x * 2, 3, y * x

    @staticmethod
    def backward(ctx: Any, left: torch.Tensor, number: None, right: torch.Tensor) -> Any:
        x, nothing, y = ctx.saved_tensors
        kept, pair = ctx.again[0], ctx.again[1][0]
        assert nothing is number is None and kept.me is ctx.kept and pair is kept.pair and not hasattr(ctx, "other")
        scale = SCALE + 3 * Settings.scale + 5 * HOLDER.scale + 7 * LIMITS[0] + 11 * len(LIMITS) + kept.cls().scale
        if ANSWER == "none":
            return None, right * pair.second, None
        if ANSWER == "too few":
            return left, right
        if ANSWER == "for a number":
            return left, right, left
        if ANSWER == "more":
            return left * len(kept.keys), right.reshape(kept.shape), None, None
        grad = left * scale * kept.names["a"] + right * pair.first[0] if ctx.needs_input_grad[0] else None
        return grad, right * pair.first[1]["y"] * ctx.power * y[kept.part] * x, None


def set_global(name: str, value: object) -> None:
    globals()[name] = value


CHANGES: dict[str, Callable[[], object]] = {
    "nothing": lambda: None,
    "a global": lambda: set_global("SCALE", 9.0),
    "a global's type": lambda: set_global("SCALE", 2),
    "an attribute": lambda: setattr(HOLDER, "scale", 6.0),
    "a class's attribute": lambda: setattr(Settings, "scale", 7.0),
    "an item": lambda: LIMITS.__setitem__(0, 5.0),
    "a length": lambda: LIMITS.append(1.0),
    "another object": lambda: set_global("HOLDER", Settings()),
    **{answer: functools.partial(set_global, "ANSWER", answer) for answer in ("none", "more")},
}
ERRORS = ("too few", "for a number")


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put back what a test changes of this module."""
    for name in ("SCALE", "HOLDER", "ANSWER", "LIMITS"):
        monkeypatch.setitem(globals(), name, copy.deepcopy(globals()[name]))
    monkeypatch.setattr(Settings, "scale", 2.0)


def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    left, number, right = Reads.apply(x * 3, y.sin(), 0.5)
    return (left * number).sum() + right.sin().sum() + x.sum()


def gradients(fn: Callable[..., torch.Tensor], change: Callable[[], object], again: bool = False) -> list[Any]:
    """Return the gradients of a call after a change, twice, and their own gradients if they are to have any."""
    torch.manual_seed(1)
    x, y = (torch.randn(2, 3, requires_grad=True) for _ in range(2))
    result = fn(x, y)
    change()
    found = [
        torch.autograd.grad(result, (x, y), retain_graph=True, allow_unused=True, create_graph=again) for _ in "12"
    ]
    grads = [each for group in found for each in group]
    if again:
        sums = [each.sum() for each in grads if each is not None and each.requires_grad]
        grads += torch.autograd.grad(sum(sums), (x, y), allow_unused=True)
    return [result.detach(), *grads]


def same(got: list[Any], wanted: list[Any]) -> None:
    assert len(got) == len(wanted)
    for mine, theirs in zip(got, wanted, strict=True):
        assert mine is theirs is None or torch.equal(mine, theirs)


def put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    world.__wrapped__(monkeypatch)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_before_the_backward(change: str, again: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=True)
    same(gradients(compiled, CHANGES["nothing"], again), gradients(fn, CHANGES["nothing"], again))
    got = gradients(compiled, CHANGES[change], again)
    put_back(monkeypatch)
    same(got, gradients(fn, CHANGES[change], again))


def test_a_change_that_is_undone() -> None:
    """One backward runs as written, and the next one too: by then it may have changed its context."""
    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=True)

    def both(fn: Callable[..., torch.Tensor]) -> list[Any]:
        x, y = (torch.ones(2, 3, requires_grad=True) for _ in range(2))
        result = fn(x, y)
        found: list[Any] = []
        for scale in (2.0, 4.0, 2.0):
            set_global("SCALE", scale)
            found += torch.autograd.grad(result, (x, y), retain_graph=True)
        return found

    same(both(compiled), both(fn))


@pytest.mark.parametrize("answer", ERRORS)
def test_gradients_that_fit_no_arguments(answer: str) -> None:
    compiled, told = torchdynamo.compile(fn, backend="eager", fullgraph=True), []
    for each in (fn, compiled):
        set_global("ANSWER", "right")
        with pytest.raises(RuntimeError) as caught:
            gradients(each, functools.partial(set_global, "ANSWER", answer))
        told.append(str(caught.value))
    assert told[0] == told[1]


def test_one_graph() -> None:
    with collecting() as events:
        graphs: list[Any] = []
        compiled = torchdynamo.compile(fn, backend=lambda gm, _: graphs.append(gm) or gm.forward)
        for _ in range(3):
            gradients(compiled, CHANGES["a global"])
    assert len(graphs) == len(events) == 1
    assert sum(node.target is with_backward for node in graphs[0].graph.nodes) == 1


def by_aot(gm: Any, inputs: Any) -> Any:
    """A backend of somebody else's that has AOTAutograd trace the graph."""
    from functorch.compile import aot_module_simplified, make_boxed_func

    return aot_module_simplified(gm, inputs, fw_compiler=lambda traced, _: make_boxed_func(traced.forward))


@pytest.mark.parametrize("backend", ["aot_eager", by_aot])
@pytest.mark.parametrize("change", ["nothing", "a global", "none"])
def test_with_a_compiled_backward(change: str, backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = torchdynamo.compile(fn, backend=backend, fullgraph=True)
    gradients(compiled, CHANGES["nothing"])
    got = gradients(compiled, CHANGES[change])
    put_back(monkeypatch)
    same(got, gradients(fn, CHANGES[change]))


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * SCALE


class Outer(torch.autograd.Function):
    """Its backward calls another function with a backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return Scaled.apply(x) * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            own = x.detach().requires_grad_()
            return torch.autograd.grad(Scaled.apply(own) * own, own, grad)


def nested(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (Outer.apply(x * y) * y).sum()


def checkpointed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return checkpoint(lambda x: Scaled.apply(x * y).cos(), x, use_reentrant=False).sum()


def writes_itself(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    global SCALE
    SCALE = 5.0
    return (Scaled.apply(x) * y).sum()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [nested, checkpointed, writes_itself])
def test_where_it_is_called(program: Any, backend: str) -> None:
    compiled = torchdynamo.compile(program, backend=backend, fullgraph=True)
    for scale in (2.0, 7.0):
        found = []
        for each in (compiled, program):
            set_global("SCALE", 2.0)
            found.append(gradients(each, functools.partial(set_global, "SCALE", scale)))
        same(*found)


def test_sizes_that_vary_end_the_graph() -> None:
    """Compilers get pieces of fixed sizes only."""
    compiled = torchdynamo.compile(lambda x: Scaled.apply(x * 2).sum(), backend="aot_eager")
    for size in (3, 4, 5):
        x = torch.ones(size, requires_grad=True)
        compiled(x).backward()
        assert torch.equal(x.grad, torch.full((size,), 4.0))


# -- branches on what a backward computes, and backwards that are not followed to the end -----------------------------
class Factorizes(torch.autograd.Function):
    """Its backward asks whether a factorization failed, and does without if so."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        factor, info = torch.linalg.cholesky_ex(x.diag())
        if not torch.any(info):
            return factor @ grad
        if not x.isfinite().all():
            raise ValueError("no numbers")
        return grad * 7


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * Cosine.apply(*ctx.saved_tensors)


class Cosine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.cos()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return -grad * Sine.apply(*ctx.saved_tensors)


class Refuses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled():
            raise NotImplementedError("no second derivatives")
        return grad * 3


class Several(torch.autograd.Function):
    """It is given more choices of gradients than are captured."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        ctx.set_materialize_grads(False)
        return x * 1, x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return sum(grad * at for at, grad in enumerate(grads, 1) if grad is not None)


FOLLOWED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a branch": lambda x: Factorizes.apply(x * 2).sum(),
    "itself": lambda x: (Sine.apply(x) * 2).sum(),
    "refuses": lambda x: Refuses.apply(x).sum(),
    "the last": lambda x: Several.apply(x * 2)[2].sum(),
    "two": lambda x: sum(Several.apply(x * 2)[1:]).sum(),
}
GIVEN = {"the usual way": [1.0, 2.0], "the other way": [1.0, -2.0], "an error": [1.0, float("nan")]}


def derivatives(fn: Callable[[torch.Tensor], torch.Tensor], given: list[float], count: int = 3) -> list[Any]:
    """Return a result and its derivatives, so many of them twice, or the error that ends them."""
    x = torch.tensor(given, requires_grad=True)
    result = fn(x)
    found: list[Any] = [result.detach(), *torch.autograd.grad(result, x, retain_graph=True)]
    try:
        for _ in range(count):
            (result,) = torch.autograd.grad(result.sum(), x, create_graph=True)
            found.append(result.detach())
    except (RuntimeError, NotImplementedError) as error:
        found.append((type(error), str(error)))
    return found


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("which", FOLLOWED)
def test_ways_that_were_not_captured(which: str, backend: str) -> None:
    compiled = torchdynamo.compile(FOLLOWED[which], backend=backend, fullgraph=True)
    for given in (GIVEN["the usual way"], GIVEN["the other way"]):
        count = 3 if backend == "eager" else 0  # AOTAutograd refuses second ones where a tensor in between is gone
        got, wanted = derivatives(compiled, given, count), derivatives(FOLLOWED[which], given, count)
        assert len(got) == len(wanted)
        for mine, theirs in zip(got, wanted, strict=True):
            assert torch.equal(mine, theirs) if isinstance(theirs, torch.Tensor) else mine == theirs


def test_an_error_on_a_way_that_was_not_captured() -> None:
    compiled = torchdynamo.compile(FOLLOWED["a branch"], backend="eager", fullgraph=True)
    for fn in (compiled, FOLLOWED["a branch"], compiled):
        with pytest.raises(ValueError, match="no numbers"):
            derivatives(fn, GIVEN["an error"])


@pytest.mark.parametrize("given", ["the usual way", "the other way"])
def test_a_branch_unpacks_saved_tensors_once(given: str) -> None:
    """They are unpacked for the captured backward, and not again where that turns out not to hold."""
    compiled, unpacked = torchdynamo.compile(lambda x: Factorizes.apply(x * 2), backend="eager", fullgraph=True), []
    compiled(torch.tensor(GIVEN["the usual way"], requires_grad=True))
    x = torch.tensor(GIVEN[given], requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda each: each, lambda each: unpacked.append(1) or each):
        result = compiled(x)
    (found,) = torch.autograd.grad(result, x, torch.ones(2))
    (wanted,) = torch.autograd.grad(Factorizes.apply(x * 2), x, torch.ones(2))
    assert torch.equal(found, wanted) and len(unpacked) == 1
