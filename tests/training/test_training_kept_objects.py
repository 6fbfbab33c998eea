"""Functions with a backward of their own that reads objects which the forward kept on the context."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

import torchdynamo
from torchdynamo.errors import Unsupported
from torchdynamo.report.explain import collecting

Make = Callable[[torch.Tensor], Any]
Read = Callable[[Any, torch.Tensor], torch.Tensor]


class Factors:
    """What a function keeps: a number, a tensor, and whatever else."""

    def __init__(self, scale: float, tensor: torch.Tensor, **more: Any) -> None:
        self.scale, self.tensor = scale, tensor
        self.__dict__.update(more)

    def times(self, grad: torch.Tensor) -> torch.Tensor:
        return grad * self.scale * self.tensor


class Slotted:
    __slots__ = ("scale",)

    def __init__(self, scale: float) -> None:
        self.scale = scale


class Named(NamedTuple):
    scale: float
    tensor: torch.Tensor
    rest: list[float]


class Tree:
    """An object with a class, a view of a dict and pairs of slices and trees in it, which makes an object of that."""

    def __init__(self, options: dict[str, float], *children: Any) -> None:
        self.cls, self.names, self.options = Factors, options.keys(), options
        self.children = [(slice(at, at + 1), child) for at, child in enumerate(children)]

    def __call__(self, *tensors: torch.Tensor) -> Factors:
        for part, child in self.children:
            tensors = tensors if child is None else (child(*tensors[part]).tensor,)
        return self.cls(2.0, tensors[0], **dict(zip(self.names, self.options.values())))


class Circle:
    def __init__(self) -> None:
        self.me, self.rest = self, [self]


class Items(list[float]):
    factor: float


def items(*values: float) -> Items:
    made = Items(values)
    made.factor = 3.0
    return made


def adder(amount: float, *, more: float = 1.0) -> Callable[..., Any]:
    def add(grad: torch.Tensor, by: float = 2.0) -> torch.Tensor:
        return grad * amount + grad * by * more

    return add


KEPT: dict[str, tuple[Make, Read]] = {
    "an instance": (lambda x: Factors(3.0, x.exp()), lambda kept, grad: kept.times(grad)),
    "one with slots": (lambda x: Slotted(3.0), lambda kept, grad: grad * kept.scale),
    "a dict": (lambda x: {"a": 2.0, "b": {"c": x.sin()}}, lambda kept, grad: grad * kept["a"] * kept["b"]["c"]),
    "a list": (lambda x: [2.0, [x.cos()]], lambda kept, grad: grad * kept[0] * kept[1][0]),
    "a named tuple": (lambda x: Named(2.0, x.sin(), [3.0]), lambda kept, grad: grad * kept.scale * kept.rest[0]),
    "an ordered dict": (lambda x: collections.OrderedDict(a=2.0, b=x.cos()), lambda kept, grad: grad * kept["b"]),
    "a default dict": (lambda x: collections.defaultdict(list, a=2.0), lambda kept, grad: grad * kept["a"]),
    "a list of its own class": (lambda x: items(2.0, 5.0), lambda kept, grad: grad * kept.factor * len(kept)),
    "a closure": (lambda x: adder(3.0), lambda kept, grad: kept(grad)),
    "a partial": (lambda x: functools.partial(torch.mul, x.sin()), lambda kept, grad: kept(grad)),
    "a partial with a keyword": (lambda x: functools.partial(adder(2.0), by=4.0), lambda kept, grad: kept(grad)),
    "a method": (lambda x: Factors(3.0, x.exp()).times, lambda kept, grad: kept(grad)),
    "a view": (lambda x: {"a": 2.0, "b": 5.0}.items(), lambda kept, grad: grad * dict(kept)["b"]),
    "a class": (lambda x: Factors, lambda kept, grad: kept(2.0, grad).times(grad.exp())),
    "a tree": (lambda x: Tree({"bias": 4.0}, None, Tree({})), lambda kept, grad: grad * kept(grad, grad.exp()).bias),
    "itself": (lambda x: Circle(), lambda kept, grad: grad * (2.0 if kept.rest[0].me is kept else 3.0)),
}


def keeps(make: Make, read: Read) -> Any:
    class Keeps(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, given: Any = None) -> torch.Tensor:
            ctx.kept = make(x) if given is None else given
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return read(ctx.kept, grad) + ctx.saved_tensors[0], None

    return Keeps


def gradients(fn: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
    """Return results and gradients of two calls, the second with its backward run twice."""
    found = []
    for seed in range(2):
        torch.manual_seed(seed)
        x = torch.randn(2, 3, requires_grad=True)
        y = fn(x)
        for _ in range(seed):
            y.sum().backward(retain_graph=True)
        y.sin().sum().backward()
        assert x.grad is not None
        found += [y.detach(), x.grad]
    return found


def same(got: list[torch.Tensor], wanted: list[torch.Tensor]) -> None:
    assert len(got) == len(wanted) and all(map(torch.equal, got, wanted))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("kind", KEPT)
def test_what_the_forward_makes(kind: str, backend: str) -> None:
    function = keeps(*KEPT[kind])

    def fn(x: torch.Tensor) -> torch.Tensor:
        return function.apply(x.cos()) * function.apply(x)

    same(gradients(torchdynamo.compile(fn, backend=backend, fullgraph=True)), gradients(fn))


@pytest.mark.parametrize("kind", KEPT)
def test_what_the_frame_makes_and_gives_it(kind: str) -> None:
    make, read = KEPT[kind]
    function = keeps(make, read)

    def fn(x: torch.Tensor) -> torch.Tensor:
        given = make(x)
        return function.apply(x.cos(), given) * function.apply(x, given)

    same(gradients(torchdynamo.compile(fn, backend="eager", fullgraph=True)), gradients(fn))


def test_second_derivatives() -> None:
    function = keeps(lambda x: Factors(3.0, x), lambda kept, grad: kept.times(grad) * kept.tensor)

    def second(fn: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        x = torch.tensor([1.0, -2.0], requires_grad=True)
        (first,) = torch.autograd.grad(fn(x).sum(), x, create_graph=True)
        (found,) = torch.autograd.grad((first * first).sum(), x)
        return found

    def fn(x: torch.Tensor) -> torch.Tensor:
        return function.apply(x)

    assert torch.equal(second(torchdynamo.compile(fn, backend="eager", fullgraph=True)), second(fn))


# -- objects that are another by the time the backward runs -----------------------------------------------------------
TIMES = keeps(lambda x: Factors(1.0, x), lambda kept, grad: grad * kept.scale)
LISTED = keeps(lambda x: [1.0], lambda kept, grad: grad * sum(kept))
SHELF: dict[str, Any] = {}


def changed_later(x: torch.Tensor) -> Any:
    factors = Factors(2.0, x)
    y = TIMES.apply(x.cos(), factors)
    factors.scale = 7.0
    return y, None


def changed_and_put_back(x: torch.Tensor) -> Any:
    factors = Factors(2.0, x)
    y = TIMES.apply(x, factors)
    factors.scale = 7.0
    (found,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
    factors.scale = 2.0
    return y + found, None


def list_that_grows(x: torch.Tensor) -> Any:
    factors = [2.0]
    y = LISTED.apply(x.cos(), factors)
    factors.append(5.0)
    return y, None


def result_of_the_frame(x: torch.Tensor) -> Any:
    factors = Factors(2.0, x)
    return TIMES.apply(x.cos(), factors).sin(), factors


def inside_of_a_result(x: torch.Tensor) -> Any:
    factors = Factors(2.0, x)
    return TIMES.apply(x.cos(), factors).sin(), [{"in": factors}][0]["in"]


def stored_in_a_global(x: torch.Tensor) -> Any:
    factors = SHELF["factors"] = Factors(2.0, x)
    return TIMES.apply(x.cos(), factors).sin(), None


def told_by_a_closure(x: torch.Tensor) -> Any:
    factors = Factors(2.0, x)

    def change(scale: float) -> None:
        factors.scale = scale

    return TIMES.apply(x.cos(), factors).sin(), change


def of_the_forward_in_a_global(x: torch.Tensor) -> Any:
    function = keeps(lambda x: SHELF.setdefault("factors", Factors(2.0, x)), lambda kept, grad: grad * kept.scale)
    return function.apply(x.cos()), None


def across_a_graph_break(x: torch.Tensor) -> Any:
    factors = Factors(2.0, x)
    y = TIMES.apply(x.cos(), factors)
    torchdynamo.graph_break()
    factors.scale = 9.0
    return y.sin(), None


ESCAPES = [
    *(changed_later, changed_and_put_back, list_that_grows, result_of_the_frame, inside_of_a_result),
    *(stored_in_a_global, told_by_a_closure, of_the_forward_in_a_global, across_a_graph_break),
]


def change(held: Any) -> None:
    """Change whatever a program has let out."""
    held = SHELF.get("factors") if held is None else held
    if callable(held):
        held(11.0)
    elif held is not None:
        held.scale = 11.0


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", ESCAPES)
def test_the_backward_sees_what_became_of_the_object(fn: Callable[..., Any], backend: str) -> None:
    def gradient(run: Callable[..., Any]) -> list[torch.Tensor]:
        SHELF.clear()
        x = torch.tensor([0.5, 2.0], requires_grad=True)
        y, held = run(x)
        y.sum().backward(retain_graph=True)
        change(held)
        y.sum().backward()
        assert x.grad is not None
        return [y.detach(), x.grad]

    compiled = torchdynamo.compile(fn, backend=backend)
    for _ in range(2):
        same(gradient(compiled), gradient(fn))


def test_a_backward_that_writes_to_the_object() -> None:
    """What it writes is there when it runs again."""

    def count(kept: Any, grad: torch.Tensor) -> torch.Tensor:
        kept["calls"] += 1
        return grad * kept["calls"]

    function = keeps(lambda x: {"calls": 0}, count)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return function.apply(x.cos())

    same(gradients(torchdynamo.compile(fn, backend="eager")), gradients(fn))


def test_objects_that_were_there_are_moved_but_not_read() -> None:
    layer = torch.nn.Linear(3, 3)
    reads = keeps(lambda x: {"layer": layer, "scale": 2.0}, lambda kept, grad: kept["layer"](grad))
    leaves = keeps(lambda x: {"layer": layer, "scale": 2.0}, lambda kept, grad: grad * kept["scale"])

    def fn(x: torch.Tensor) -> torch.Tensor:
        return reads.apply(x.cos())

    with pytest.raises(Unsupported):
        torchdynamo.compile(fn, backend="eager", fullgraph=True)(torch.ones(2, 3, requires_grad=True))
    same(gradients(torchdynamo.compile(fn, backend="eager")), gradients(fn))

    def whole(x: torch.Tensor) -> torch.Tensor:
        return leaves.apply(x.cos())

    same(gradients(torchdynamo.compile(whole, backend="eager", fullgraph=True)), gradients(whole))


def test_the_object_of_each_call_is_its_own() -> None:
    function = keeps(lambda x: [float(x.shape[0])], lambda kept, grad: grad * kept[0])

    def fn(x: torch.Tensor, scale: float) -> torch.Tensor:
        return function.apply(x) + TIMES.apply(x, Factors(scale, x))

    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=True)
    with collecting() as events:
        for rows, scale in ((2, 2.0), (3, 2.0), (2, 3.0), (5, 4.0), (7, 5.0)):
            got, wanted = (torch.ones(rows, requires_grad=True) for _ in range(2))
            compiled(got, scale).sum().backward()
            fn(wanted, scale).sum().backward()
            assert got.grad is not None and wanted.grad is not None and torch.equal(got.grad, wanted.grad)
    assert len(events) < 5
