"""Backwards of functions that rest on what is absent, on classes under a name, on defaults and on torch's state."""

from __future__ import annotations

import gc
import os
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import torchdynamo
from torchdynamo.graph.custom_backward import BackwardPlan, with_backward

TABLE: dict[str, float] = {}
SCALE, STRICT = 2.0, True
WHICH = ""


class Plain:
    pass


class Made:
    pass


class Low:
    scale = 2.0


class High:
    scale = 5.0


class Meta(type):
    scale = 2.0


class WithMeta(metaclass=Meta):
    pass


HOLDER, CHOSEN = Plain(), Low


def helper(scale: float = 2.0, *, more: float = 1.0) -> float:
    return scale * more


def of_one() -> float:
    """Only one of two objects of a class has the attribute."""
    one, other = Made(), Made()
    one.flag = 3.0  # type: ignore[attr-defined]
    return getattr(other, "flag", 1.0) + one.flag  # type: ignore[attr-defined, no-any-return]


def undefined() -> float:
    try:
        return MISSING_NAME  # type: ignore[name-defined, no-any-return]
    except NameError:
        return 1.0


READ: dict[str, Callable[[], float]] = {
    "no key": lambda: 3.0 if "k" in TABLE else 1.0,
    "get": lambda: TABLE.get("k", 1.0),
    "environment": lambda: 3.0 if os.environ.get("OWN_FLAG") else 1.0,
    "class": lambda: getattr(Plain, "flag", 1.0),
    "instance": lambda: getattr(HOLDER, "flag", 1.0),
    "class of instance": lambda: 3.0 if hasattr(HOLDER, "flag") else 1.0,
    "module": lambda: getattr(types, "own_flag", 1.0),
    "sys.modules": lambda: 3.0 if "own_flag" in sys.modules else 1.0,
    "name": undefined,
    "one object": of_one,
    "metaclass": lambda: WithMeta.scale,
    "callable": lambda: 3.0 if callable(HOLDER) else 1.0,
    "truth": lambda: 3.0 if HOLDER else 1.0,
    "class rebound": lambda: CHOSEN.scale,
    "which class": lambda: 3.0 if CHOSEN is High else 1.0,
    "default": lambda: helper(),
    "keyword default": lambda: helper(1.0),
    "autocast": lambda: 3.0 if torch.is_autocast_enabled("cpu") else 1.0,
    "dtype of autocast": lambda: 3.0 if torch.get_autocast_dtype("cpu") is torch.float16 else 1.0,
    "default dtype": lambda: 3.0 if torch.get_default_dtype() is torch.float64 else 1.0,
    "made of the default dtype": lambda: float(torch.ones(1).element_size()),
}


class Patch:
    """What changes a setting, and puts it back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def put(name: str, value: object) -> Callable[[], None]:
            return lambda: monkeypatch.setitem(globals(), name, value)

        def add(owner: object, name: str, value: object) -> Callable[[], None]:
            return lambda: monkeypatch.setattr(owner, name, value, raising=False)

        def switch(fn: Callable[..., None], *given: Any) -> Callable[[], None]:
            return lambda: fn(*given)

        self.changes: dict[str, Callable[[], None]] = {
            "no key": lambda: monkeypatch.setitem(TABLE, "k", 4.0),
            "get": lambda: monkeypatch.setitem(TABLE, "k", 4.0),
            "environment": lambda: monkeypatch.setenv("OWN_FLAG", "1"),
            "class": add(Plain, "flag", 4.0),
            "instance": add(HOLDER, "flag", 4.0),
            "class of instance": add(Plain, "flag", 4.0),
            "module": add(types, "own_flag", 4.0),
            "sys.modules": lambda: monkeypatch.setitem(sys.modules, "own_flag", types.ModuleType("own_flag")),
            "one object": add(Made, "flag", 4.0),
            "name": put("MISSING_NAME", 5.0),
            "metaclass": add(WithMeta, "scale", 5.0),
            "callable": add(Plain, "__call__", lambda self: 1),
            "truth": add(Plain, "__bool__", lambda self: False),
            "class rebound": put("CHOSEN", High),
            "which class": put("CHOSEN", High),
            "default": add(helper, "__defaults__", (5.0,)),
            "keyword default": lambda: monkeypatch.setitem(helper.__kwdefaults__, "more", 5.0),  # type: ignore[arg-type]
            "autocast": switch(torch.set_autocast_enabled, "cpu", True),
            "dtype of autocast": switch(torch.set_autocast_dtype, "cpu", torch.float16),
            "default dtype": switch(torch.set_default_dtype, torch.float64),
            "made of the default dtype": switch(torch.set_default_dtype, torch.float64),
        }


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("SCALE", "STRICT", "WHICH"):
        monkeypatch.setitem(globals(), name, globals()[name])
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_autocast_enabled("cpu", False)
    torch.set_autocast_dtype("cpu", torch.bfloat16)


class Reads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * READ[WHICH]()


def reads(x: torch.Tensor) -> torch.Tensor:
    return Reads.apply(x * 1)


def gradient(fn: Any, change: Callable[[], object] = lambda: None) -> torch.Tensor:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    result = fn(x)
    change()
    (found,) = torch.autograd.grad(result, x, torch.ones(2, dtype=torch.float32))
    return found


@pytest.mark.parametrize("name", READ)
def test_what_was_not_there(name: str) -> None:
    globals()["WHICH"] = name
    compiled = torchdynamo.compile(reads, backend="eager", fullgraph=True)
    assert torch.equal(gradient(compiled), gradient(reads))
    with pytest.MonkeyPatch.context() as patch:
        got = gradient(compiled, Patch(patch).changes[name])
        wanted = gradient(reads)
    assert torch.equal(got, wanted)


def test_forward_and_backward_in_one_autocast() -> None:
    globals()["WHICH"] = "autocast"
    compiled = torchdynamo.compile(reads, backend="eager", fullgraph=True)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(gradient(compiled), torch.tensor([6.0, 6.0]) / 2)


class Keeps(torch.autograd.Function):
    """It saves what it also keeps as an attribute: a result is another object then."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.result, ctx.given = x.exp(), x
        ctx.save_for_backward(ctx.result, x)
        return ctx.result

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        saved, given = ctx.saved_tensors
        return grad * saved * SCALE * (2 if saved is ctx.result else 3) * (5 if given is ctx.given else 7)


def set_scale(value: float) -> Callable[[], None]:
    return lambda: globals().__setitem__("SCALE", value)


@pytest.mark.parametrize("scale", [2.0, 3.0])
def test_saved_tensors_are_unpacked_once(scale: float) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda x: Saves.apply(x * 2).sin(), x * 2, use_reentrant=False)

    found = []
    for fn in (torchdynamo.compile(program, backend="eager"), program):
        set_scale(2.0)()
        found.append(gradient(fn, set_scale(scale)))
    assert torch.equal(*found)


@pytest.mark.parametrize("scale", [2.0, 3.0])
def test_results_that_are_saved_and_kept(scale: float) -> None:
    found = []
    for fn in (torchdynamo.compile(lambda x: Keeps.apply(x * 2), backend="eager"), lambda x: Keeps.apply(x * 2)):
        set_scale(2.0)()
        found.append(gradient(fn, set_scale(scale)))
    assert torch.equal(*found)


@pytest.mark.parametrize("scale", [2.0, 3.0])
def test_layout_of_gradients(scale: float) -> None:
    compiled, strides = torchdynamo.compile(lambda x: Keeps.apply(x * 2), backend="eager"), []
    for fn in (compiled, lambda x: Keeps.apply(x * 2)):
        set_scale(2.0)()
        x = torch.ones(2, 3, requires_grad=True)
        result = fn(x)
        set_scale(scale)()
        (found,) = torch.autograd.grad(result, x, torch.ones(3, 2).t())
        strides.append(found.stride())
    assert strides[0] == strides[1]


class MayRaise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        ctx.set_materialize_grads(False)
        return x.sin(), x.cos()

    @staticmethod
    def backward(ctx: Any, left: torch.Tensor | None, right: torch.Tensor | None) -> Any:
        if right is None:
            if STRICT:
                raise ValueError("no right gradient")
            return left * 7  # type: ignore[operator]
        return right if left is None else left + right


def test_a_missing_gradient_raises_as_the_program_does() -> None:
    compiled = torchdynamo.compile(lambda x: MayRaise.apply(x * 1), backend="eager", fullgraph=True)
    x = torch.ones(2, requires_grad=True)
    left, right = compiled(x)
    with pytest.raises(ValueError, match="no right gradient"):
        torch.autograd.grad(left.sum(), x, retain_graph=True)
    assert torch.equal(*torch.autograd.grad(right.sum(), x), torch.ones(2))
    left, _ = compiled(x)
    globals()["STRICT"] = False
    assert torch.equal(*torch.autograd.grad(left.sum(), x), torch.full((2,), 7.0))


class Shares(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, box: list[float]) -> torch.Tensor:
        ctx.box = box
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        if SCALE > 2:
            ctx.box.append(1.0)
        return grad * SCALE * len(ctx.box), None


@pytest.mark.parametrize("scale", [2.0, 3.0])
def test_two_calls_share_an_object(scale: float) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        box = [3.0]
        return Shares.apply(Shares.apply(x * 1, box), box)

    found = []
    for fn in (torchdynamo.compile(program, backend="eager"), program):
        set_scale(2.0)()
        found.append(gradient(fn, set_scale(scale)))
    assert torch.equal(*found)


class Saves(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.kept = x.exp()
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return grad * ctx.kept * SCALE * x


def test_a_step_that_ran_as_written_is_freed() -> None:
    compiled = torchdynamo.compile(lambda x: Saves.apply(x * 1), backend="eager", fullgraph=True)
    gradient(compiled)
    gc.disable()
    try:
        x = torch.ones(2, requires_grad=True)
        result = compiled(x)
        set_scale(3.0)()
        torch.autograd.grad(result, x, torch.ones(2), retain_graph=True)
        kept = weakref.ref(result.grad_fn.kept[0])
        del result
        assert kept() is None
    finally:
        gc.enable()


class Mixed(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * grad.sigmoid()


def test_what_autocast_puts_back_is_no_setting() -> None:
    graphs: list[Any] = []
    compiled = torchdynamo.compile(
        lambda x: Mixed.apply(x * 1), backend=lambda gm, _: graphs.append(gm) or gm.forward, fullgraph=True
    )
    gradient(compiled)
    (graph,) = graphs
    plans = [
        BackwardPlan.of_argument(node.args[0])
        for node in graph.graph.find_nodes(op="call_function", target=with_backward)
    ]
    assert [plan.written for plan in plans] == [None]
