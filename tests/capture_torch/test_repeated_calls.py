"""Layers of one kind are captured by a recipe, and no layer that differs in anything is."""

from __future__ import annotations

import gc
import itertools
import random
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from repeating import both_ways
from torch import nn

import torchdynamo

pytestmark = pytest.mark.filterwarnings("error::torchdynamo.errors.FallbackWarning")
Mutate = Callable[["Model", "Block"], Any]


class Block(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.first: nn.Module = nn.Tanh()
        self.fc1, self.fc2 = nn.Linear(width, width), nn.Linear(width, width)
        self.drop = nn.Dropout(0.5)
        self.act = torch.relu
        self.scale, self.mode, self.sizes, self.table = 0.5, "a", [1, 2], {"k": 3}
        self.extra: Any = None
        self.register_buffer("shift", torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.act(self.fc1(self.first(x)))
        if self.mode == "a":
            h = h * self.scale
        for size in self.sizes:
            h = h + size
        if self.extra is not None:
            h = h + self.extra
        if self.shift is not None:
            h = h - self.shift
        return x + self.drop(self.fc2(h)) * self.table["k"]


class Other(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + 1


class Normed(Block):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.LayerNorm(4)


class Model(nn.Module):
    def __init__(self, count: int = 6, kind: Callable[[], nn.Module] = Block) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(kind() for _ in range(count))

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


def model(kind: Callable[[], nn.Module] = Block, count: int = 5) -> Any:
    torch.manual_seed(0)
    return Model(count, kind).eval()


def data(seed: int = 1, size: int = 4) -> torch.Tensor:
    return torch.randn(size, 4, generator=torch.Generator().manual_seed(seed))


def set_to(name: str, value: Callable[[], Any]) -> Mutate:
    return lambda whole, block: setattr(block, name, value())


def with_strides(whole: Model, block: Block) -> None:
    block.fc1.weight.data = block.fc1.weight.data.t().contiguous().t()


def with_a_view(whole: Model, block: Block) -> None:
    block.fc1.weight = nn.Parameter(torch.randn(8, 4)[2:6])


def with_shared_memory(whole: Model, block: Block) -> None:
    block.fc2.weight = nn.Parameter(block.fc1.weight.data)


def with_memory_of_another(whole: Model, block: Block) -> None:
    block.fc2.weight = nn.Parameter(whole.blocks[1].fc2.weight.data)  # type: ignore[union-attr]


def with_gradient(whole: Model, block: Block) -> None:
    block.fc1.weight.grad = torch.ones(4, 4)


def with_attribute(whole: Model, block: Block) -> None:
    block.fc1.weight.tag = "x"  # type: ignore[attr-defined]


def in_double(whole: Model, block: Block) -> None:
    block.shift = block.shift.double()  # type: ignore[union-attr]


def replaced_forward(whole: Model, block: Block) -> None:
    block.forward = lambda x: x * 2  # type: ignore[method-assign]


def with_class(whole: Model, block: Block) -> None:
    block.__class__ = Other


def with_shared_dict(whole: Model, block: Block) -> None:
    block.fc2.__dict__ = block.fc1.__dict__


def double_result(module: Any, args: Any, result: Any) -> Any:
    return result * 2


def double_arguments(module: Any, args: Any) -> Any:
    return (args[0] * 2,)


MUTATIONS: dict[str, Mutate] = {
    "scale": set_to("scale", lambda: 0.25),
    "scale is an integer": set_to("scale", lambda: 1),
    "mode": set_to("mode", lambda: "b"),
    "longer list": set_to("sizes", lambda: [1, 2, 3]),
    "other items": set_to("sizes", lambda: [1, 3]),
    "tuple for a list": set_to("sizes", lambda: (1, 2)),
    "other table": set_to("table", lambda: {"k": 4}),
    "larger table": set_to("table", lambda: {"j": 1, "k": 3}),
    "extra tensor": set_to("extra", lambda: torch.ones(4)),
    "extra number": set_to("extra", lambda: 2),
    "no buffer": set_to("shift", lambda: None),
    "other function": set_to("act", lambda: torch.tanh),
    "Python function": set_to("act", lambda: lambda x: x.relu()),
    "module for a function": set_to("act", nn.ReLU),
    "drop": set_to("drop", lambda: nn.Dropout(0.25)),
    "identity for dropout": set_to("drop", nn.Identity),
    "new attribute": set_to("unused", lambda: 1),
    "training": lambda whole, block: block.train(),
    "training of a child": lambda whole, block: block.drop.train(),
    "hook": lambda whole, block: block.register_forward_hook(double_result),
    "hook before": lambda whole, block: block.register_forward_pre_hook(double_arguments),
    "hook on a child": lambda whole, block: block.fc1.register_forward_hook(double_result),
    "forward": replaced_forward,
    "class": with_class,
    "strides": with_strides,
    "dtype": in_double,
    "frozen": lambda whole, block: block.fc1.weight.requires_grad_(False),
    "view": with_a_view,
    "shared memory": with_shared_memory,
    "memory of another": with_memory_of_another,
    "gradient": with_gradient,
    "attribute of a parameter": with_attribute,
    "shared parameter": lambda whole, block: setattr(block.fc1, "weight", whole.blocks[1].fc1.weight),
    "one parameter twice": lambda whole, block: setattr(block.fc2, "weight", block.fc1.weight),
    "shared child": lambda whole, block: setattr(block, "fc1", whole.blocks[1].fc1),
    "one child twice": lambda whole, block: setattr(block, "fc2", block.fc1),
    "shared list": lambda whole, block: setattr(block, "sizes", whole.blocks[1].sizes),
    "shared names": with_shared_dict,
    "no bias": lambda whole, block: setattr(block.fc1, "bias", None),
    "wider": lambda whole, block: (
        setattr(block, "fc1", nn.Linear(4, 8)),
        setattr(block, "fc2", nn.Linear(8, 4)),
        setattr(block, "shift", None),
    ),
    "replaced by its neighbor": lambda whole, block: whole.blocks.__setitem__(3, whole.blocks[2]),
    "replaced by a fresh one": lambda whole, block: whole.blocks.__setitem__(3, Block().eval()),
    "weight norm": lambda whole, block: nn.utils.parametrizations.weight_norm(block.fc1),
}

OF_MEMORY = {
    "training", "strides", "dtype", "frozen", "view", "shared memory", "memory of another", "gradient",
    "shared parameter", "one parameter twice", "shared child", "weight norm",
}  # fmt: skip
"""What AOTAutograd looks at beside the graph: which memory inputs have, which need gradients, and random numbers."""
# Of the others a later layer is also captured anew when it differs from the second call on.
GRADIENTS = [name if name in OF_MEMORY else pytest.param(name, marks=pytest.mark.long) for name in MUTATIONS]


def outcome(fn: Callable[..., Any], *args: Any) -> Any:
    torch.manual_seed(3)
    try:
        return fn(*args)
    except Exception as error:
        return type(error).__name__, str(error)


def test_layers_after_the_first_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    used = both_ways(monkeypatch, lambda make: make(model(Normed))(data()), backend="eager")
    assert used == [f"self.blocks[{index}]" for index in range(2, 5)]  # the first gets an input of the graph


@pytest.mark.parametrize("name", MUTATIONS)
@pytest.mark.parametrize("at", [0, pytest.param(3, marks=pytest.mark.long)])  # 3: also what the next test captures anew
def test_a_layer_that_differs(name: str, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def calls(make: Callable[..., Any]) -> Any:
        whole = model()
        MUTATIONS[name](whole, whole.blocks[at])
        fn = make(whole)
        return [outcome(fn, data()), outcome(fn, data(2))]

    both_ways(monkeypatch, calls, backend="eager")


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_layer_that_differs_from_the_second_call_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def calls(make: Callable[..., Any]) -> Any:
        whole = model()
        fn = make(whole)
        found = [outcome(fn, data())]
        MUTATIONS[name](whole, whole.blocks[3])
        return [*found, outcome(fn, data()), outcome(fn, data(2))]

    assert both_ways(monkeypatch, calls, backend="eager")


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_a_layer_that_differs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def calls(make: Callable[..., Any]) -> Any:
        whole = model()
        MUTATIONS[name](whole, whole.blocks[3])
        x = data().requires_grad_()
        result = outcome(make(whole), x)
        if isinstance(result, tuple):
            return result
        result.sum().backward()
        return [result, x.grad, *[each.grad for each in whole.parameters()]]

    both_ways(monkeypatch, calls, backend="aot_eager" if name in OF_MEMORY else "eager")


# -- what a layer may look at ------------------------------------------------------------------------------------------
class Small(nn.Module):
    """A layer whose forward is given; it knows its place, the model and the layers."""

    index = 0
    whole: Any = ()

    def __init__(self, body: Callable[..., Any]) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.body = body
        self.count, self.log, self.scale = 0, [], 0.5

    def forward(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        return self.body(self, x, *args, **kwargs)


WHOLE: Any = None
COUNTS: dict[Any, Any] = {}


def counted(self: Any, x: Any) -> Any:
    self.count += 1
    return self.fc(x) + self.count


def logged(self: Any, x: Any) -> Any:
    self.log.append(1)
    return self.fc(x) * len(self.log)


def counted_by_key(self: Any, x: Any) -> Any:
    COUNTS[self.index] = COUNTS.get(self.index, 0) + 1
    return self.fc(x) + COUNTS[self.index]


def keyed_by_itself(self: Any, x: Any) -> Any:
    return self.fc(x) * self.whole[0].table[self]


def keyed_by_id(self: Any, x: Any) -> Any:
    return self.fc(x) * self.whole[0].numbers[id(self)]


def asks_who_is_first(self: Any, x: Any) -> Any:
    return self.fc(x) + (1 if self.whole[0].blocks[0] is self else 2)


def asks_who_is_last(self: Any, x: Any) -> Any:
    return self.fc(x) + (1 if self is WHOLE.blocks[5] else 2)


def reads_the_first(self: Any, x: Any) -> Any:
    return self.fc(x) * self.whole[0].blocks[0].scale + self.whole[0].blocks[0].fc.bias


def reads_the_first_by_a_global(self: Any, x: Any) -> Any:
    return self.fc(x) * WHOLE.blocks[0].fc.bias


def reads_what_the_caller_wrote(self: Any, x: Any) -> Any:
    return self.fc(x) * self.whole[0].current


def draws(self: Any, x: Any) -> Any:
    return self.fc(x) + torch.rand_like(x)


def draws_in_python(self: Any, x: Any) -> Any:
    return self.fc(x) + random.random()


def writes_in_place(self: Any, x: Any) -> Any:
    h = self.fc(x)
    h += 1
    return h


def writes_to_its_argument(self: Any, x: Any) -> Any:
    x.add_(1)
    return self.fc(x)


def without_gradients(self: Any, x: Any) -> Any:
    with torch.no_grad():
        h = self.fc(x)
    return h + x


def under_autocast(self: Any, x: Any) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return self.fc(x).float()


def breaks(self: Any, x: Any) -> Any:
    h = self.fc(x)
    return h + 1 if h.sum() > 0 else h - 1


def breaks_in_the_fourth(self: Any, x: Any) -> Any:
    return breaks(self, x) if self.index == 3 else self.fc(x)


def catches(self: Any, x: Any) -> Any:
    try:
        return self.fc(x) + self.missing
    except AttributeError:
        return self.fc(x)


def catches_what_operators_raise(self: Any, x: Any) -> Any:
    try:
        return self.fc(x)[:, torch.tensor([0, 1, 2, 3])]
    except IndexError:
        return x


def names_itself(self: Any, x: Any) -> Any:
    return self.fc(x) * len(repr(self))


def by_its_place(self: Any, x: Any) -> Any:
    return self.fc(x) * self.index


def with_its_weight_twice(self: Any, x: Any) -> Any:
    return self.fc(x) @ self.fc.weight.contiguous().T


def with_a_checkpoint(self: Any, x: Any) -> Any:
    return torch.utils.checkpoint.checkpoint(self.fc, x, use_reentrant=False)


def by_the_version(self: Any, x: Any) -> Any:
    return self.fc(x) + x._version


def on_views(self: Any, x: Any) -> Any:
    q, k = self.fc(x).view(4, 2, 2).transpose(0, 1).unbind(0)
    return torch.cat((q, k), -1)


def with_sizes(self: Any, x: Any) -> Any:
    return self.fc(x.reshape(*x.shape[:-1], -1, 4)[..., 0, :]) * x.shape[0]


BODIES = [
    *(counted, logged, counted_by_key, keyed_by_itself, keyed_by_id, asks_who_is_first, asks_who_is_last),
    *(reads_the_first, reads_the_first_by_a_global, reads_what_the_caller_wrote, draws, draws_in_python),
    *(writes_in_place, writes_to_its_argument, without_gradients, under_autocast, breaks, breaks_in_the_fourth),
    *(catches, catches_what_operators_raise, names_itself, by_its_place, with_its_weight_twice, with_a_checkpoint),
    *(by_the_version, on_views, with_sizes),
]


class Knowing(Model):
    """A model that its layers know, and that writes something before each."""

    current = 0

    def forward(self, x: Any) -> Any:
        for place, block in enumerate(self.blocks):
            self.current = place
            x = block(x)
        return x


def knowing(body: Callable[..., Any], kind: type = Model) -> Any:
    global WHOLE
    torch.manual_seed(0)
    COUNTS.clear()
    WHOLE = kind(6, lambda: Small(body)).eval()
    for index, block in enumerate(WHOLE.blocks):
        block.index, block.whole = index, (WHOLE,)
    WHOLE.table = {block: index for index, block in enumerate(WHOLE.blocks)}
    WHOLE.numbers = {id(block): index for index, block in enumerate(WHOLE.blocks)}
    return WHOLE


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
@pytest.mark.parametrize("kind", [Model, Knowing])
def test_what_a_layer_looks_at(body: Any, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    def calls(make: Callable[..., Any]) -> Any:
        whole = knowing(body, kind)
        fn = make(whole)
        random.seed(0)
        return [outcome(fn, data()), outcome(fn, data(2)), COUNTS.copy(), [block.count for block in whole.blocks]]

    both_ways(monkeypatch, calls, backend="eager")


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_what_a_layer_looks_at_where_the_model_is_a_global(body: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def through(x: Any) -> Any:
        for block in WHOLE.blocks:
            x = block(x)
        return x

    def calls(make: Callable[..., Any]) -> Any:
        knowing(body)
        fn = make(through)
        random.seed(0)
        return [outcome(fn, data()), outcome(fn, data(2)), COUNTS.copy()]

    both_ways(monkeypatch, calls, backend="eager")


REPEATABLE = [without_gradients, catches, with_its_weight_twice, draws, on_views, with_sizes]


@pytest.mark.parametrize("body", REPEATABLE, ids=lambda body: body.__name__)
def test_what_needs_no_execution(body: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.no_grad():
        used = both_ways(monkeypatch, lambda make: outcome(make(knowing(body)), data()), backend="eager")
    assert len(used) == 4 or body is without_gradients


# -- how a layer is called ---------------------------------------------------------------------------------------------
def given(self: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    more = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor)]
    return sum(more, self.fc(x)) + len(args) + 2 * len(kwargs)


def pair(self: Any, x: Any) -> Any:
    a, b = x
    return self.fc(a), b


def one_result_twice(self: Any, x: Any) -> Any:
    return x[0], self.fc(x[0])


def same(self: Any, x: Any, y: Any) -> Any:
    return self.fc(x) + 1 if x is y else self.fc(x) + y


def plain(blocks: Any, x: Any) -> Any:
    for block in blocks:
        x = block(x, x, flag=True)
    return x


def by_number(blocks: Any, x: Any) -> Any:
    for place, block in enumerate(blocks):
        x = block(x, place)
    return x


def some_with_more(blocks: Any, x: Any) -> Any:
    for place, block in enumerate(blocks):
        x = block(x, x if place % 2 else None)
    return x


def through_pairs(blocks: Any, x: Any) -> Any:
    x = x, x + 1
    for block in blocks:
        x = block(x)
    return x


def sometimes_the_same(blocks: Any, x: Any) -> Any:
    for place, block in enumerate(blocks):
        x = block(x, x if place == 4 else x * 1)
    return x


def each_on_the_input(blocks: Any, x: Any) -> Any:
    return [block(x, x) for block in blocks]


def on_views_of_one(blocks: Any, x: Any) -> Any:
    rows = (x + 1).expand(4, 4).contiguous()
    for place, block in enumerate(blocks):
        rows = block(rows.t() if place == 3 else rows, rows)
    return rows


def with_a_list(blocks: Any, x: Any) -> Any:
    kept = []
    for block in blocks:
        kept.append(x)
        x = block(x, kept[-1])
    return x, kept


def with_each_other(blocks: Any, x: Any) -> Any:
    for one, other in itertools.pairwise(blocks):
        x = one(x, other.fc.weight)
    return x


def twice_each(blocks: Any, x: Any) -> Any:
    for block in blocks:
        x = block(block(x, x), x)
    return x


def in_reverse(blocks: Any, x: Any) -> Any:
    for block in reversed(blocks):
        x = block(x, x)
    for block in blocks:
        x = block(x, x)
    return x


def first_looked_at(blocks: Any, x: Any) -> Any:
    scale = blocks[0].scale + blocks[3].scale
    for block in blocks:
        x = block(x, x) * scale
    return x


def frozen_in_the_midst(blocks: Any, x: Any) -> Any:
    for place, block in enumerate(blocks):
        with torch.set_grad_enabled(place != 3):
            x = block(x, x)
    return x


def written_in_the_midst(blocks: Any, x: Any) -> Any:
    for place, block in enumerate(blocks):
        if place == 3:
            block.scale = 2.0
            blocks[4].fc.bias = None
        x = block(x, x)
    return x


def versions(self: Any, x: Any, y: Any) -> Any:
    return self.fc(x) + y._version


def written_to(blocks: Any, x: Any) -> Any:
    for place, block in enumerate(blocks):
        h = x * 1
        for _ in range(place):
            h.add_(1)
        x = block(h, h)
    return x


CALLS = {
    "plain": (plain, given),
    "by number": (by_number, given),
    "some with more": (some_with_more, given),
    "pairs": (through_pairs, pair),
    "one result twice": (through_pairs, one_result_twice),
    "sometimes the same": (sometimes_the_same, same),
    "each on the input": (each_on_the_input, given),
    "views of one": (on_views_of_one, given),
    "a list": (with_a_list, given),
    "each other": (with_each_other, given),
    "twice each": (twice_each, given),
    "in reverse": (in_reverse, given),
    "first looked at": (first_looked_at, given),
    "frozen in the midst": (frozen_in_the_midst, given),
    "written in the midst": (written_in_the_midst, given),
    "written to": (written_to, versions),
}


@pytest.mark.parametrize("name", CALLS)
def test_how_a_layer_is_called(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    through, body = CALLS[name]

    def calls(make: Callable[..., Any]) -> Any:
        blocks, fn = knowing(body).blocks, make(through)
        return [
            outcome(fn, blocks, data()),
            outcome(fn, blocks, data(2)),
            outcome(fn, blocks, data(2).requires_grad_()),
        ]

    calls(lambda fn: torchdynamo.compile(fn, backend="eager"))  # what a break in a loop outlines is outlined once
    both_ways(monkeypatch, calls, backend="eager")


def test_kinds_that_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [Block, Other, lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU())]

    def calls(make: Callable[..., Any]) -> Any:
        torch.manual_seed(0)
        layers = [kinds[index % 3]().eval() for index in range(9)]
        for layer in layers[3:6]:
            layer.eval().scale = 0.125
        return make(nn.Sequential(*layers))(data())

    used = both_ways(monkeypatch, calls, backend="eager")
    assert {"self[6]", "self[7]", "self[8]"} - set(used) <= {"self[6]", "self[7]"}
    assert used


def test_objects_that_are_no_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain:
        def __init__(self, weight: torch.Tensor) -> None:
            self.weight = weight

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.weight

    def through(layers: Any, x: Any) -> Any:
        for layer in layers:
            x = layer(x)
        return x

    layers = [Plain(data(index)) for index in range(6)]
    both_ways(monkeypatch, lambda make: make(through)(layers, data()), backend="eager")


class Heads(nn.Module):
    """A layer with a loop of its own, the results of which are viewed, joined and viewed again."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
        self.act, self.drop = nn.Identity(), nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.stack([self.drop(part(x)).unflatten(-1, (2, 2)).transpose(0, 1) for part in self.parts])
        return x + self.act(h.sum(0).flatten(1).t().reshape(-1)[: x.numel()].view_as(x))


@torch.no_grad()
def test_loops_within_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    used = both_ways(monkeypatch, lambda make: make(model(Heads))(data()), backend="eager")
    assert {"self.blocks[2]", "self.blocks[4]"} <= set(used)


@torch.no_grad()
def test_fake_results_share_memory_where_results_do() -> None:
    """Whatever is read off fake results, such as what a write reaches, is so of the results."""
    fake, real = list[int](), list[int]()

    class Noting(torch.fx.Interpreter):
        def run_node(self, node: torch.fx.Node) -> Any:
            result = super().run_node(node)
            if isinstance(result, torch.Tensor):
                kept.append(result)
                real.append(result.untyped_storage()._cdata)
                fake.append(node.meta["example_value"].untyped_storage()._cdata)
                assert node.meta["example_value"].stride() == result.stride()
            return result

    def noted(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        return Noting(gm).run

    kept: list[torch.Tensor] = []
    whole = model(Heads)
    assert torch.equal(torchdynamo.compile(whole, backend=noted, fullgraph=True)(data()), whole(data()))
    assert len(set(real)) > 5 * 5
    assert [fake.index(each) for each in fake] == [real.index(each) for each in real]


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_that_vary(dynamic: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def calls(make: Callable[..., Any]) -> Any:
        fn = make(model())
        return [fn(data(size, size)) for size in (4, 5, 7, 1)]

    both_ways(monkeypatch, calls, backend="eager", dynamic=dynamic)


@pytest.mark.parametrize("training", [False, True])
def test_training(training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def calls(make: Callable[..., Any]) -> Any:
        whole = model(Normed).train(training)
        fn, found = make(whole), []
        for seed in range(3):
            torch.manual_seed(seed)
            fn(data(seed)).sum().backward()
            found.append([each.grad.clone() for each in whole.parameters()])
            with torch.no_grad():
                for each in whole.parameters():
                    each.sub_(each.grad, alpha=0.1)
        return found

    both_ways(monkeypatch, calls, backend="aot_eager")


def test_an_error_in_a_layer_names_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = model()
    fn = torchdynamo.compile(whole, backend="eager")
    fn(data())
    whole.blocks[4].fc2.weight.data = torch.ones(4, 5)
    with pytest.raises(RuntimeError) as compiled:
        fn(data())
    with pytest.raises(RuntimeError) as eager:
        whole(data())
    assert str(compiled.value) == str(eager.value)


def test_nothing_of_the_model_is_kept() -> None:
    whole = model()
    gone = weakref.ref(whole.blocks[2].fc1.weight), weakref.ref(whole)
    torchdynamo.compile(whole, backend="eager")(data())
    del whole
    gc.collect()
    assert [each() for each in gone] == [None, None]
