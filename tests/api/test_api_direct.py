"""Between the user's call of a compiled module and its graph there is no Python, as long as nothing asks for any."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import pytest
import torch
from torch.nn.modules import module as module_file

import torchdynamo

X = torch.arange(-2.0, 2.0)


def frames() -> list[str]:
    """Names of the functions that lead here."""
    names, frame = [], sys._getframe(1)
    while frame.f_code is not test_no_frame_between.__code__ and frame.f_back is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return names


def classes() -> tuple[type[torch.nn.Module], type[torch.nn.Module]]:
    """A class and its base, made anew for each test, as tests change them."""

    class Base(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
            return torch.relu(self.fc(x)) * scale

    class Net(Base):
        pass

    return Net, Base


@pytest.mark.parametrize("call", [lambda f: f(X), lambda f: f(X, 2.0), lambda f: f(x=X), lambda f: f(*[X], scale=3.0)])
def test_no_frame_between(call: Callable[[Any], Any]) -> None:
    seen: list[list[str]] = []

    def backend(gm: Any, example_inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            seen.append(frames())
            return gm(*args)

        return run

    Net, _ = classes()
    net = Net()
    compiled = torchdynamo.compile(net, backend=backend)
    for _ in range(3):
        assert torch.equal(call(compiled), call(net))
    assert seen[1:] == [["run", "forward", call.__code__.co_name]] * 2


def note(log: list[str], text: str, answer: Any = None) -> Callable[..., Any]:
    """A hook that leaves a trace."""
    return lambda *args, **kwargs: log.append(text) or answer


class Holder:
    """What a change is given: the classes, the module, a log to leave traces in, and a stack to undo itself with."""

    def __init__(self, stack: ExitStack) -> None:
        self.cls, self.base = classes()
        self.net = self.cls()
        self.log: list[str] = []
        self.stack = stack

    def patch(self, obj: Any, name: str, value: Any) -> None:
        self.stack.enter_context(mock.patch.object(obj, name, value, create=True))

    def logged(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which says in the log that it ran."""

        def inner(*args: Any, **kwargs: Any) -> Any:
            self.log.append("ran")
            return function(*args, **kwargs)

        return inner


def other_forward(self: Any, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    return x - 1 + scale


def other_class(h: Holder) -> None:
    h.net.__class__ = type("Other", (h.base,), {"forward": other_forward})


def other_dict(h: Holder) -> None:
    fields = dict(h.net.__dict__)
    fields["forward"] = lambda x: x - 7
    h.net.__dict__ = fields


def hooks_on_the_class(h: Holder) -> None:
    h.patch(h.cls, "_forward_hooks", property(lambda self: {0: note(h.log, "hook", X)}))
    h.patch(h.cls, "_forward_hooks_with_kwargs", property(lambda self: ()))


def get_attribute(h: Holder) -> None:
    def get(self: Any, name: str) -> Any:
        if name == "forward":
            return lambda x: x + 100
        return object.__getattribute__(self, name)

    h.patch(h.cls, "__getattribute__", get)


def other_code(h: Holder) -> None:
    h.base.forward.__code__ = other_forward.__code__


def call_impl_code(h: Holder) -> None:
    def _call_impl(self: Any, *args: Any, **kwargs: Any) -> Any:
        return args[0] * 9

    function = torch.nn.Module._call_impl
    h.stack.callback(setattr, function, "__code__", function.__code__)
    function.__code__ = _call_impl.__code__  # type: ignore[attr-defined]


def global_hook(register: Callable[..., Any], answer: Any = None) -> Callable[[Holder], None]:
    return lambda h: h.stack.callback(register(note(h.log, "hook", answer)).remove)


Change = Callable[[Holder], Any]
CHANGES: dict[str, Change] = {
    "forward hook": lambda h: h.net.register_forward_hook(note(h.log, "hook", X)),
    "forward hook with kwargs": lambda h: h.net.register_forward_hook(note(h.log, "hook"), with_kwargs=True),
    "forward hook always called": lambda h: h.net.register_forward_hook(note(h.log, "hook"), always_call=True),
    "forward pre-hook": lambda h: h.net.register_forward_pre_hook(note(h.log, "hook", (X * 2,))),
    "backward hook": lambda h: h.net.register_full_backward_hook(note(h.log, "hook")),
    "backward pre-hook": lambda h: h.net.register_full_backward_pre_hook(note(h.log, "hook")),
    "global forward hook": global_hook(module_file.register_module_forward_hook, X),
    "global forward pre-hook": global_hook(module_file.register_module_forward_pre_hook),
    "global backward hook": global_hook(module_file.register_module_full_backward_hook),
    "forward of the instance": lambda h: setattr(h.net, "forward", lambda x: x + 5),
    "forward of the class": lambda h: setattr(h.cls, "forward", other_forward),
    "forward of the base class": lambda h: setattr(h.base, "forward", other_forward),
    "forward static": lambda h: setattr(h.cls, "forward", staticmethod(lambda x: x * 4)),
    "forward's code": other_code,
    "call of the class": lambda h: setattr(h.cls, "__call__", lambda self, x: x + 6),
    "call of nn.Module": lambda h: h.patch(torch.nn.Module, "__call__", h.logged(torch.nn.Module._call_impl)),
    "call_impl of nn.Module": lambda h: h.patch(torch.nn.Module, "_call_impl", h.logged(torch.nn.Module._call_impl)),
    "call_impl's code": call_impl_code,
    "call_impl of the class": lambda h: setattr(h.cls, "_call_impl", lambda self, x: x + 8),
    "call_impl of the instance": lambda h: setattr(h.net, "_call_impl", lambda x: x + 8),
    "compiled by torch": lambda h: setattr(h.net, "_compiled_call_impl", lambda x: x + 9),
    "compiled by torch, the class": lambda h: setattr(h.cls, "_compiled_call_impl", lambda self, x: x + 9),
    "another class": other_class,
    "another dict": other_dict,
    "hooks on the class": hooks_on_the_class,
    "attributes by a method": get_attribute,
    "hooks replaced": lambda h: setattr(h.net, "_forward_pre_hooks", {0: note(h.log, "hook", (X * 2,))}),
}


def outcome(fn: Any, log: list[str]) -> Any:
    """What a call gives and leaves, with gradients taken so that hooks of the backward run."""
    log.clear()
    x = X.clone().requires_grad_()
    result = fn(x)
    if result.grad_fn is not None:
        result.sum().backward()
    return result.tolist(), None if x.grad is None else x.grad.tolist(), list(log)


@pytest.mark.parametrize("name", CHANGES)
def test_what_comes_between_is_seen(name: str) -> None:
    with ExitStack() as stack:
        h = Holder(stack)
        compiled = torchdynamo.compile(h.net, backend="eager")
        before = outcome(h.net, h.log)
        for _ in range(4):
            assert outcome(compiled, h.log) == before
        CHANGES[name](h)
        after = outcome(h.net, h.log)
        assert after != before
        for _ in range(3):
            assert outcome(compiled, h.log) == after


def test_what_came_between_and_left_is_forgotten() -> None:
    Net, _ = classes()
    net = Net()
    compiled = torchdynamo.compile(net, backend="eager")
    log: list[str] = []
    for _ in range(5):
        for _ in range(3):
            assert outcome(compiled, log) == outcome(net, log)
        handle = net.register_forward_hook(note(log, "hook", X))
        for _ in range(3):
            assert outcome(compiled, log) == (X.tolist(), None, ["hook"])
        handle.remove()


def test_a_trace_names_the_module() -> None:
    """Under torch.jit.trace nn.Module calls forward another way."""
    Net, _ = classes()
    net = Net().requires_grad_(False)
    compiled = torchdynamo.compile(net, backend="eager")
    for _ in range(2):
        with mock.patch.object(Net, "_slow_forward", autospec=True, side_effect=Net._slow_forward) as slow:
            traced = torch.jit.trace(lambda x: compiled(x) * 2, (X,), check_trace=False)
            assert slow.called
        assert torch.equal(traced(X + 1), net(X + 1) * 2)
        for _ in range(3):
            assert torch.equal(compiled(X), net(X))


def test_what_is_not_compiled_sees_the_frames_it_would_see() -> None:
    class Peeping(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[str, torch.Tensor]:
            return sys._getframe(1).f_code.co_name, x + 1

    net = Peeping()
    compiled = torchdynamo.compile(net, backend="eager")
    for _ in range(3):
        assert compiled(X)[0] == net(X)[0] == "_call_impl"


def test_errors_are_the_same() -> None:
    Net, _ = classes()
    net = Net()
    compiled = torchdynamo.compile(net, backend="eager")
    compiled(X), compiled(X)
    for args in [(), (X, 1.0, 2), (torch.ones(3),)]:
        with pytest.raises((TypeError, RuntimeError)) as ours:
            compiled(*args)
        with pytest.raises(type(ours.value)) as eager:
            net(*args)
        assert str(ours.value) == str(eager.value)


def test_many_arguments() -> None:
    class Wide(torch.nn.Module):
        def forward(self, *args: torch.Tensor, **kwargs: torch.Tensor) -> torch.Tensor:
            return sum(args) - sum(kwargs.values())  # type: ignore[return-value]

    net = Wide()
    compiled = torchdynamo.compile(net, backend="eager")
    for count in (1, 7, 8, 9, 30):
        for _ in range(3):
            named = {f"k{i}": X for i in range(count // 2)}
            assert torch.equal(compiled(*[X] * count, **named), net(*[X] * count, **named))


def test_guards_that_are_not_about_a_module_are_refused() -> None:
    from torchdynamo import _native

    program = _native.GuardProgram(other_forward.__code__, (), (), ())
    with pytest.raises(ValueError, match="one local"):
        _native.Compiled(abs, None, direct=program)
