"""Updates of many tensors in step: bit for bit as eager's, and what is left as written says why."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from attention_tracing import Traced
from torch._subclasses.fake_tensor import FakeTensorMode

import torchdynamo
from torchdynamo.graph.passes.foreach import match, operators

COUNT = 6
Tensors = list[torch.Tensor]
State = dict[str, Tensors]
Loop = Callable[..., Any]


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(operators, "DEVICES", {"cpu"})
    monkeypatch.setattr(match, "FEWEST", 4)
    torchdynamo.reset()
    yield
    torchdynamo.reset()


def state_of(dtype: torch.dtype = torch.float32, count: int = COUNT) -> State:
    """Parameters with gradients, two states, and weights of a mean; of sizes that differ, one without dimensions."""
    torch.manual_seed(0)
    shapes = [(at % 5 + 1, at % 3 + 2) if at else () for at in range(count)]
    made = {name: [torch.randn(shape).to(dtype) for shape in shapes] for name in ("p", "g", "m", "v", "mean")}
    made["v"] = [each.abs() for each in made["v"]]
    for parameter, gradient in zip(made["p"], made["g"], strict=True):
        parameter.requires_grad_().grad = gradient
    return made


def check(loop: Loop, state: Callable[[], State] = state_of, calls: Any = ((),) * 2) -> Traced:
    """Compare with eager, to the bit, what a loop returns and leaves in memory."""
    wanted, found, traced = state(), state(), Traced()
    with torchdynamo.config.patch(suppress_errors=False):
        compiled = torchdynamo.compile(lambda *args: loop(found, *args), backend=traced, fullgraph=True)
        for given in calls:
            results = loop(wanted, *given), compiled(*given)
            tensors = [
                [*(each for name in state for each in state[name]), *(result or ())]
                for state, result in zip((wanted, found), results)
            ]
            for one, other in zip(*tensors, strict=True):
                assert torch.equal(one, other)
                assert one.stride() == other.stride()
    return traced


def calls_in(traced: Traced) -> dict[str, int]:
    """Count operators of the last graph: on lists, and in place on one tensor."""
    names = [str(node.target) for node in traced.graphs[-1].nodes if node.op == "call_function"]
    names = [name for name in names if "getitem" not in name and "copy_" not in name]
    return {"lists": sum("_foreach" in name for name in names), "others": sum("_foreach" not in name for name in names)}


# ---- loops that are rewritten ---------------------------------------------------------------------------------------


@torch.no_grad()
def plain(s: State) -> None:
    for p in s["p"]:
        p -= 0.1 * p.grad


@torch.no_grad()
def momentum(s: State) -> None:
    for p, m in zip(s["p"], s["m"]):
        g = p.grad.add(p, alpha=0.01)
        m.mul_(0.9).add_(g)
        p.add_(g + 0.9 * m, alpha=-0.1)


@torch.no_grad()
def adam(s: State) -> None:
    for p, m, v in zip(s["p"], s["m"], s["v"]):
        m.mul_(0.9).add_(p.grad, alpha=0.1)
        v.mul_(0.99).addcmul_(p.grad, p.grad, value=0.01)
        p.mul_(1 - 0.001)
        p.addcdiv_(m / 0.1, (v / 0.01).sqrt() + 1e-8, value=-0.1)


def adam_on_data(s: State) -> None:
    with torch.no_grad():
        for p, m, v in zip(s["p"], s["m"], s["v"]):
            m.copy_(0.9 * m + 0.1 * p.grad)
            v.copy_(0.99 * v + 0.01 * p.grad**2)
            p.data.sub_(0.1 / (v.sqrt() + 1e-8) * m)
            p.grad.zero_()


@torch.no_grad()
def lion(s: State) -> None:
    for p, m in zip(s["p"], s["m"]):
        p.data.add_(torch.sign(m.lerp(p.grad, 0.1)), alpha=-0.1)
        m.lerp_(p.grad, 0.01)


@torch.no_grad()
def largest_squares(s: State) -> None:
    for p, m, v in zip(s["p"], s["m"], s["v"]):
        v.copy_(torch.maximum(v, torch.square(p.grad)))
        p -= -(1 - m) * v.rsqrt() * (v + 1).reciprocal().abs().neg()


@torch.no_grad()
def mean_of_weights(s: State) -> None:
    for mean, p in zip(s["mean"], s["p"]):
        mean.mul_(0.999).add_(p, alpha=1 - 0.999)


@torch.no_grad()
def clipped(s: State) -> None:
    total = torch.stack([p.grad.norm() for p in s["p"]]).norm()
    scale = (1.0 / (total + 1e-6)).clamp(max=1.0)
    for p in s["p"]:
        p.grad.mul_(scale)
    for p in s["p"]:
        p -= 0.1 * p.grad


@torch.no_grad()
def clipped_at_once(s: State) -> Tensors:
    """The scale is computed beside the updates."""
    scale = 1.0 / (torch.stack([p.grad.norm() for p in s["p"]]).sum() + 1.0)
    for p in s["p"][1:]:
        p.grad.mul_(scale)
        p.sub_(p.grad * scale).add_(scale, alpha=0.5).sub_(scale, alpha=2).div_(scale)
    return [scale]


def rate_as_a_tensor(s: State) -> None:
    rate, decay = torch.tensor(0.1), torch.tensor(0.9)
    with torch.no_grad():
        for p, m in zip(s["p"][1:], s["m"][1:]):
            m.add_(p.grad, alpha=0.5).mul_(decay)
            p.sub_(rate * m)


@torch.no_grad()
def moves(s: State) -> Tensors:
    """What is computed on the way is returned."""
    moved = []
    for p, m in zip(s["p"], s["m"]):
        moved.append(0.1 * p.grad)
        p -= moved[-1]
        moved.append(m.sub_(moved[-1]))
    return moved


LOOPS: dict[str, tuple[Loop, int]] = {  # with the operators on lists
    "plain": (plain, 2),
    "momentum and weight decay": (momentum, 6),
    "Adam": (adam, 10),
    "Adam on data": (adam_on_data, 16),
    "Lion": (lion, 4),
    "largest squares": (largest_squares, 14),
    "a mean of weights": (mean_of_weights, 2),
    "clipped": (clipped, 3),
    "clipped at once": (clipped_at_once, 6),
    "results": (moves, 3),
    "a rate as a tensor": (rate_as_a_tensor, 4),
}


@pytest.mark.parametrize("name", list(LOOPS))
def test_a_loop_runs_in_step(name: str) -> None:
    loop, count = LOOPS[name]
    traced = check(loop)
    assert calls_in(traced)["lists"] == count, traced.lines


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["momentum and weight decay", "Adam", "a mean of weights"])
def test_other_dtypes(name: str, dtype: torch.dtype) -> None:
    loop, count = LOOPS[name]
    assert calls_in(check(loop, lambda: state_of(dtype)))["lists"] == count


def test_a_rate_that_varies() -> None:
    @torch.no_grad()
    def loop(s: State, rate: float, count: int) -> None:
        for p in s["p"]:
            p -= rate / (1 - 0.9**count) * p.grad
            p.add_(p.grad, alpha=-rate)

    traced = check(loop, calls=((0.1, 1), (0.2, 2), (0.3, 3)))
    assert calls_in(traced)["lists"] == 0
    assert any("a number varies" in line for line in traced.lines), traced.lines


def test_views_and_parts() -> None:
    """Whole tensors by their views, and halves of them: each tensor is one update."""

    @torch.no_grad()
    def loop(s: State) -> None:
        for p, m in zip(s["p"][1:], s["m"][1:]):
            flat, gradient = p.view(-1), p.grad.flatten()
            flat.sub_(gradient, alpha=0.1)
            m[:1] -= 0.1
            m[1:] *= 2
            p.detach().mT.mul_(2)

    check(loop)


def test_two_dtypes_are_two_lists() -> None:
    def state() -> State:
        halves, whole = state_of(torch.bfloat16), state_of()
        return {name: [*halves[name], *whole[name]] for name in whole}

    assert calls_in(check(momentum, state))["lists"] == 12


# ---- loops that are left as written ---------------------------------------------------------------------------------


def tied() -> State:
    made = state_of()
    made["p"][3] = made["p"][1]
    made["m"][3] = made["m"][1].clone()
    return made


def pieces() -> State:
    """All parameters are parts of one tensor."""
    made = state_of()
    flat = torch.randn(8 * COUNT)
    made["p"] = [flat[8 * at : 8 * at + 8] for at in range(COUNT)]
    for each in made["p"]:
        each.grad = torch.randn(8)
    made["m"] = [torch.zeros(8) for _ in range(COUNT)]
    return made


def test_updates_that_share_memory_keep_their_order() -> None:
    """Two updates are one component, and the others run in step."""
    assert calls_in(check(momentum, tied)) == {"lists": 6, "others": 12}


def test_parts_of_one_tensor() -> None:
    found = check(plain, pieces)
    assert calls_in(found)["lists"] == 0
    assert any("shares memory" in line for line in found.lines), found.lines


def test_memory_that_is_shared_later() -> None:
    """The graph was made for tensors that share nothing."""
    wanted, found = state_of(), state_of()
    compiled = torchdynamo.compile(lambda: momentum(found), backend=Traced())
    for _ in range(2):
        momentum(wanted)
        compiled()
        for state in (wanted, found):
            state["m"][1] = state["m"][4] = state["p"][4].detach()
            state["p"][1] = state["p"][4]
    for one, other in zip(wanted["p"], found["p"], strict=True):
        assert torch.equal(one, other)


@torch.no_grad()
def one_after_another(s: State) -> None:
    for p in s["p"][1:]:
        s["m"][0] -= 0.1 * s["m"][0]
        p.mul_(s["m"][0].view(()))


@torch.no_grad()
def norms(s: State) -> None:
    for p in s["p"]:
        p -= p.grad / p.grad.norm()


@torch.no_grad()
def rows(s: State) -> None:
    for p in s["p"][1:]:
        p -= p.grad[:1]


@torch.no_grad()
def wide(s: State) -> None:
    for p in s["p"]:
        p -= p.grad.double()


LEFT: dict[str, tuple[Loop, str]] = {
    "one after another": (one_after_another, "one needs another's result, or shares memory that is written to"),
    "norms": (norms, "fewer than 4 in a row are alike"),
    "rows": (rows, "a tensor is broadcast"),
    "wide": (wide, "dtypes or devices differ"),
}


@pytest.mark.parametrize("name", list(LEFT))
def test_a_loop_is_left_as_written(name: str) -> None:
    loop, reason = LEFT[name]
    traced = check(loop)
    assert calls_in(traced)["lists"] == 0
    assert any(f"is left as written: {reason}" in line for line in traced.lines), traced.lines


def test_few_tensors_are_left_without_a_word() -> None:
    traced = check(adam, lambda: state_of(count=3))
    assert calls_in(traced)["lists"] == 0
    assert traced.lines == []


def test_what_has_a_history_is_left() -> None:
    """Results of updates that gradients flow through."""

    def loop(s: State) -> Tensors:
        scale = s["p"][0] * 2
        for m in s["m"]:
            m.mul_(scale)
        return [sum(m.sum() for m in s["m"])]

    traced = check(loop, calls=((),))
    assert not any("_foreach" in str(node.target) for graph in traced.graphs for node in graph.nodes)


def test_other_devices_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "DEVICES", {"cuda"})
    assert calls_in(check(plain))["lists"] == 0


# ---- operators, and any program -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", list(operators.OPERATORS))
def test_an_operator_on_lists_rounds_as_one_on_a_tensor(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    special = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1e-8, 3e4])
    a, b, c = (torch.cat([special[torch.randperm(7)], torch.randn(64)]).to(dtype) for _ in range(3))
    given = {"other": b, "end": b, "src": b, "tensor1": b, "tensor2": c, "exponent": 2.5, "weight": 0.3}
    row = operators.OPERATORS[name]
    arguments = [given[each] for each in row.parameters.split()[1:]]
    named = {} if row.alpha is None else {row.alpha: 0.7}
    spelling = f"{name}_" if f"{name}_" in operators.SPELLINGS else name
    wanted = getattr(a.clone(), spelling)(*arguments, **named)
    graph = torch.fx.Graph()
    nodes = [graph.placeholder(f"x{at}") for at in range(len(arguments) + 1)]
    mode = FakeTensorMode()
    for node, value in zip(nodes, [a, *arguments], strict=True):
        node.meta["example_value"] = mode.from_tensor(value) if isinstance(value, torch.Tensor) else value
    made = graph.call_method(
        spelling,
        tuple(nodes[:1])
        + tuple(
            node if isinstance(value, torch.Tensor) else value for node, value in zip(nodes[1:], arguments, strict=True)
        ),
        named,
    )
    made.meta["example_value"] = nodes[0].meta["example_value"]
    step = operators.step_of(made)
    values = dict(zip(nodes, [a.clone(), *arguments], strict=True))
    lists = [[torch.zeros_like(a) if each is None else values[each]] for each in step.lists]
    found = (step.function(*lists, *step.shared, **step.named) or lists[0])[0]
    torch.testing.assert_close(found, wanted, atol=0, rtol=0, equal_nan=True)
    assert torch.equal(found.signbit() & ~found.isnan(), wanted.signbit() & ~wanted.isnan())


def random_program(draw: random.Random) -> tuple[Loop, Callable[[], State]]:
    """Updates of tensors of which some share memory, most of them alike, in any order."""
    body = [(draw.choice(OPERATIONS), *(draw.randrange(4) for _ in range(3))) for _ in range(draw.randrange(1, 5))]
    tensors = [[draw.randrange(12) if draw.random() < 0.1 else 3 * at + place for place in range(3)] for at in range(4)]
    odd = draw.choice([None, *range(4)])

    @torch.no_grad()
    def loop(s: State) -> Tensors:
        results = []
        for at, places in enumerate(tensors):
            values = [*(s["all"][each] for each in places), s["all"][places[0]].detach()]
            for operation, first, second, third in body:
                values[third] = operation(values[first], values[second])
            if at == odd:
                values[0].add_(s["all"][0])
            results += values
        return results

    def state() -> State:
        torch.manual_seed(0)
        made = [torch.randn(4) for _ in range(12)]
        for at in range(12):
            if at in shared:
                made[at] = made[shared[at]].view(-1)
        return {"all": made}

    shared = {at: draw.randrange(12) for at in range(12) if draw.random() < 0.1}
    return loop, state


OPERATIONS: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x + y,
    lambda x, y: x.mul_(0.5),
    lambda x, y: x.sub_(y, alpha=0.1),
    lambda x, y: x.copy_(y),
    lambda x, y: 1 - y,
    lambda x, y: x.addcmul_(y, y, value=0.1),
    lambda x, y: x.neg(),
    lambda x, y: x.zero_(),
]


@pytest.mark.parametrize("seed", range(12))
def test_any_program(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match, "FEWEST", 2)
    check(*random_program(random.Random(seed)))
