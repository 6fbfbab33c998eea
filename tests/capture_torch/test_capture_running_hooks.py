"""Hooks that a program registers and removes in each step: their numbers run on, and versions do not rest on those."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torchdynamo
from tests.counting import Counting

Register = Callable[[Any, list[Any]], list[Any]]


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


def keeps(seen: list[Any], scale: float) -> Callable[..., None]:
    def hook(module: nn.Module, args: Any, out: Any) -> None:
        seen.append(out.detach() * scale)

    return hook


def scaled(scale: float, module: nn.Module, args: Any, out: Any) -> Any:
    return out * scale


class Keeper:
    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen

    def hook(self, module: nn.Module, args: Any, out: Any) -> None:
        self.seen.append(out.detach())

    def __call__(self, module: nn.Module, args: Any, out: Any) -> None:
        self.seen.append(out.detach() + 1)


KINDS: dict[str, Register] = {
    "closures": lambda m, seen: [each.register_forward_hook(keeps(seen, 2)) for each in m],
    "a function": lambda m, seen: [m[0].register_forward_hook(lambda m, args, out: out + 1)],
    "a partial": lambda m, seen: [m[0].register_forward_hook(functools.partial(scaled, 3))],
    "a bound method": lambda m, seen: [m[0].register_forward_hook(Keeper(seen).hook)],
    "an object": lambda m, seen: [m[0].register_forward_hook(Keeper(seen))],
    "before": lambda m, seen: [m[0].register_forward_pre_hook(lambda m, args: (args[0] + 1,))],
    "in front": lambda m, seen: [m[0].register_forward_hook(keeps(seen, 2)),
                                 m[0].register_forward_hook(lambda m, args, out: out + 1, prepend=True)],
    "with keywords": lambda m, seen: [
        m[0].register_forward_hook(lambda m, args, kwargs, out: out + len(kwargs) + 1, with_kwargs=True),
        m[0].register_forward_hook(lambda m, args, out: out * 2),
        m[0].register_forward_pre_hook(lambda m, args, kwargs: ((args[0] * 2,), kwargs), with_kwargs=True)],
    "on all modules": lambda m, seen: [nn.modules.module.register_module_forward_hook(keeps(seen, 3))],
    "backward": lambda m, seen: [m[2].register_full_backward_hook(lambda m, given, got: (given[0] * 2,))],
    "before backward": lambda m, seen: [m[2].register_full_backward_pre_hook(lambda m, got: (got[0] * 2,))],
    "on a parameter": lambda m, seen: [m[0].weight.register_hook(lambda grad: grad * 2)],
}  # fmt: skip


def called(m: nn.Module, x: Any) -> list[Any]:
    y = m(x)
    y.sum().backward()
    return [y.detach()]


def in_one_function(m: nn.Module, x: Any, register: Register) -> list[Any]:
    seen: list[Any] = []
    handles = register(m, seen)
    torchdynamo.graph_break()
    got = called(m, x)
    for handle in handles:
        handle.remove()
    return [*got, *seen]


def outside(fn: Callable[..., Any], m: nn.Module, x: Any, register: Register) -> list[Any]:
    seen: list[Any] = []
    handles = register(m, seen)
    got = fn(m, x)
    for handle in handles:
        handle.remove()
    return [*got, *seen]


@pytest.mark.parametrize("inside", [False, True], ids=["outside", "inside"])
@pytest.mark.parametrize("kind", KINDS)
def test_settles_by_the_third_step(kind: str, inside: bool) -> None:
    m, reference, register, counting = model(), model(), KINDS[kind], Counting()
    function: Callable[..., Any] = in_one_function if inside else called
    optimized = torchdynamo.optimize(counting)(function)
    graphs = []
    for _ in range(6):
        x = torch.randn(3, 4)
        if inside:
            expected, got = function(reference, x, register), optimized(m, x, register)
        else:
            expected, got = outside(function, reference, x, register), outside(optimized, m, x, register)
        torch.testing.assert_close(got, expected, rtol=0, atol=0)
        for a, b in zip(m.parameters(), reference.parameters(), strict=True):
            assert torch.equal(a.grad, b.grad)  # type: ignore[arg-type]
        graphs.append(len(counting.graphs))
    assert graphs[2:] == graphs[2:3] * 4


def plus(amount: float) -> Callable[..., Any]:
    return lambda module, args, out: out + amount


def times(amount: float) -> Callable[..., Any]:
    return lambda module, args, out: out * amount


CHANGES: dict[str, Register] = {
    "as before": lambda m, seen: [m.register_forward_hook(plus(1)), m.register_forward_hook(times(2))],
    "another order": lambda m, seen: [m.register_forward_hook(times(2)), m.register_forward_hook(plus(1))],
    "in front": lambda m, seen: [m.register_forward_hook(plus(1)), m.register_forward_hook(times(2), prepend=True)],
    "another cell": lambda m, seen: [m.register_forward_hook(plus(3)), m.register_forward_hook(times(2))],
    "one": lambda m, seen: [m.register_forward_hook(plus(1))],
    "three": lambda m, seen: [m.register_forward_hook(plus(each)) for each in (1, 2, 3)],
    "none": lambda m, seen: [],
    "another kind": lambda m, seen: [
        m.register_forward_hook(Keeper(seen)),
        m.register_forward_hook(functools.partial(scaled, 2)),
    ],
    "with keywords": lambda m, seen: [
        m.register_forward_hook(lambda m, args, kwargs, out: out + 1, with_kwargs=True),
        m.register_forward_hook(times(2)),
    ],
}


def test_what_the_hooks_are_is_seen() -> None:
    """Each of the kinds after versions that settled, and after each other."""
    m = model()
    optimized = torchdynamo.optimize("eager")(m)
    usual = CHANGES["as before"]
    for kind in (usual, usual, usual, *CHANGES.values(), *reversed(CHANGES.values())):
        x = torch.randn(3, 4)
        both = [outside(lambda m, x, call=call: [call(x)], m, x, kind) for call in (m, optimized)]
        torch.testing.assert_close(both[0], both[1], rtol=0, atol=0)


def test_a_handle_that_is_taken_into_keywords_later() -> None:
    """The table of hooks that want keywords is another than that of hooks: its keys are asked for by number."""
    m = nn.Linear(4, 4)
    optimized = torchdynamo.optimize("eager")(m)
    for step in range(8):
        handles = [m.register_forward_hook(lambda m, *rest: rest[-1] + len(rest)) for _ in range(2)]
        if step >= 4:
            m._forward_hooks_with_kwargs[handles[step % 2].id] = True
        x = torch.randn(3, 4)
        assert torch.equal(optimized(x), m(x))
        for handle in handles:
            handle.remove()
        m._forward_hooks_with_kwargs.clear()


# What programs do with a dict whose keys run on.
USES: dict[str, Callable[..., Any]] = {
    "items": lambda table, other, x: [x * item + key for key, item in table.items()],
    "values": lambda table, other, x: [x * item for item in table.values()],
    "keys": lambda table, other, x: [x * key for key in table],
    "backwards": lambda table, other, x: [x * item for item in reversed(list(table.values()))],
    "a list of keys": lambda table, other, x: (list(table), x + 1),
    "the largest": lambda table, other, x: x * max(table),
    "in another": lambda table, other, x: [x * item for key, item in table.items() if key in other],
    "not in another": lambda table, other, x: [x * item for key, item in table.items() if key not in other],
    "looked up": lambda table, other, x: [x * table[key] for key in table],
    "looked up in another": lambda table, other, x: [x * other.get(key, 5.0) for key in table],
    "a copy": lambda table, other, x: (dict(table), x + 1),
    "written": lambda table, other, x: [x * item for item in table.values()] + [table.pop(next(iter(table)))],
    "written meanwhile": lambda table, other, x: [x * table.setdefault(key, 1.0) for key in table],
    "parity": lambda table, other, x: [x + 1 if key % 2 else x - 1 for key in table],
    "compared": lambda table, other, x: x + 1 if table == other else x - 1,
}


@pytest.mark.parametrize("cls", [dict, OrderedDict])
@pytest.mark.parametrize("use", USES)
def test_keys_that_are_looked_at_count(use: str, cls: type) -> None:
    fn = USES[use]
    optimized = torchdynamo.optimize("eager")(fn)
    for step in range(8):
        x = torch.randn(3)
        numbers = [2 * step, 3 * step + 1, 70_000 + step] if step != 5 else [70_000, 3, 4]
        tables = [cls(zip(numbers, (1.0, 2.0, 3.0), strict=True)) for _ in range(2)]
        other = cls.fromkeys(numbers[step % 3 : 2], 2.0)
        expected, got = fn(tables[0], other, x), optimized(tables[1], other, x)
        torch.testing.assert_close(got, expected, rtol=0, atol=0)
        assert list(tables[0].items()) == list(tables[1].items())
