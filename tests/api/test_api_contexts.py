"""optimize, run, disable and compile around functions: who is asked while what runs."""

from __future__ import annotations

import asyncio
import functools
import inspect
import pickle
import threading
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo.eval_frame import set_eval_frame


def current() -> Any:
    """This thread's callback."""
    callback = set_eval_frame(None)
    set_eval_frame(callback)
    return callback


def double(x: torch.Tensor, times: int = 2) -> torch.Tensor:
    """Twice."""
    return x * times


class Holder:
    scale = 3

    @torchdynamo.optimize("eager")
    def method(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale

    @classmethod
    @torchdynamo.optimize("eager")
    def of_class(cls, x: torch.Tensor) -> torch.Tensor:
        return x + cls.scale

    @staticmethod
    @torchdynamo.optimize("eager")
    def static(x: torch.Tensor) -> torch.Tensor:
        return x - 1

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


X = torch.arange(4.0)


def test_a_block_sets_the_callback_and_puts_back_the_one_before() -> None:
    outer = torchdynamo.optimize("eager")
    assert current() is None
    with outer:
        assert current() is outer.callback
        with torchdynamo.disable():
            assert current() is None
            with torchdynamo.run():
                assert current() is False
            assert current() is None
        assert current() is outer.callback
    assert current() is None


def test_a_context_can_be_entered_while_it_is_on() -> None:
    context = torchdynamo.optimize("eager")
    with context, context:
        with torchdynamo.disable(), context:
            assert current() is context.callback
        assert current() is context.callback
    assert current() is None


def test_an_exception_leaves_the_state_as_it_was() -> None:
    with pytest.raises(ZeroDivisionError), torchdynamo.optimize("eager"):
        _ = 1 / 0

    @torchdynamo.optimize("eager")
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise KeyError(x.shape)

    with pytest.raises(KeyError):
        fails(X)
    assert current() is None


def test_a_callback_is_its_threads_own() -> None:
    seen = []
    context = torchdynamo.optimize("eager")
    with context:
        thread = threading.Thread(target=lambda: seen.append(current()))
        thread.start()
        thread.join()
    assert seen == [None]


def test_one_context_in_two_threads() -> None:
    context, errors = torchdynamo.optimize("eager"), []
    barrier = threading.Barrier(2)

    def work() -> None:
        barrier.wait()
        for _ in range(200):
            with context:
                if current() is not context.callback:
                    errors.append("lost")
            if current() is not None:
                errors.append("stuck")

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_decorated_function_still_looks_like_itself() -> None:
    compiled = torchdynamo.compile(double, backend="eager")
    assert (compiled.__name__, compiled.__doc__, compiled.__module__) == ("double", "Twice.", __name__)
    assert compiled.__wrapped__ is double
    assert inspect.signature(compiled) == inspect.signature(double)
    assert torch.equal(compiled(X, times=5), X * 5)
    assert torch.equal(compiled(X), X * 2)


@pytest.mark.parametrize("call", ["method", "of_class", "static"])
def test_methods_bind_as_usual(call: str) -> None:
    holder = Holder()
    expected = {"method": X * 3, "of_class": X + 3, "static": X - 1}[call]
    assert torch.equal(getattr(holder, call)(X), expected)
    holder.scale = 5
    assert torch.equal(holder.method(X), X * 5)


CALLABLES = {"object": Holder(), "partial": functools.partial(double, times=3), "method": Holder().__call__}


@pytest.mark.parametrize("fn", CALLABLES.values(), ids=CALLABLES)
def test_whatever_can_be_called(fn: Any) -> None:
    assert torch.equal(torchdynamo.compile(fn, backend="eager")(X), X * 3)


def test_coroutines_and_generators_keep_their_kind() -> None:
    @torchdynamo.optimize("eager")
    async def wait(x: torch.Tensor) -> torch.Tensor:
        await asyncio.sleep(0)
        return x + 1

    @torchdynamo.optimize("eager")
    def steps(x: torch.Tensor) -> Any:
        yield x + 1
        yield x + 2

    assert torch.equal(asyncio.run(wait(X)), X + 1)
    assert [t[0].item() for t in steps(X)] == [1, 2]
    assert current() is None


def test_disable_wins_over_a_compiler_inside() -> None:
    calls = []

    def backend(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Any:
        calls.append(gm)
        return gm.forward

    compiled = torchdynamo.compile(double, backend=backend)
    assert torch.equal(torchdynamo.disable(compiled)(X), X * 2)
    assert torch.equal(torchdynamo.run(compiled)(X), X * 2)
    assert torch.equal(torchdynamo.compile(torchdynamo.disable(double), backend=backend)(X), X * 2)
    assert calls == []


def test_run_mode_goes_on_inside_what_is_decorated() -> None:
    seen = []

    @torchdynamo.optimize("eager")
    def inner() -> None:
        seen.append(current())
        with torchdynamo.optimize("eager"):
            seen.append(current())
        with torchdynamo.disable():
            seen.append(current())

    with torchdynamo.run():
        inner()
        assert current() is False
    assert seen == [False, False, None]


def test_disable_turns_the_callback_off_for_calls_inside() -> None:
    seen = []

    @torchdynamo.disable
    def inner() -> None:
        seen.append(current())

    with torchdynamo.optimize("eager"):
        inner()
    assert seen == [None]


def test_compile_is_a_decorator_with_and_without_arguments() -> None:
    @torchdynamo.compile
    def plain(x: torch.Tensor) -> torch.Tensor:
        return x

    @torchdynamo.compile(backend="eager", fullgraph=True)
    def told(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    assert plain.__name__ == "plain"
    assert torch.equal(told(X), X + 1)


def test_disabled_compile_returns_what_it_was_given() -> None:
    assert torchdynamo.compile(double, disable=True) is double
    assert torchdynamo.compile(disable=True)(double) is double


@torchdynamo.compile(backend="eager")
def named(x: torch.Tensor) -> torch.Tensor:
    return x + 2


def test_a_compiled_function_is_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(named)) is named


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x.sin().sum() * 2


CALLED: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "a function of torch's": (torch.nn.functional.softmax, (X, 0)),
    "an operator": (torch.sin, (X,)),
    "an operator's overload": (torch.ops.aten.cos.default, (X,)),
    "a method of tensors": (torch.Tensor.exp, (X,)),
    "what torch.func makes": (torch.func.grad(scaled), (X,)),
    "what torch.vmap makes": (torch.vmap(torch.sin), (X,)),
    "a method of an object of torch's": (torch.distributions.Normal(0.0, 1.0).log_prob, (X,)),
    "a partial": (functools.partial(torch.nn.functional.softmax, dim=0), (X,)),
}


@pytest.mark.parametrize("what", CALLED)
def test_functions_of_torch_are_compiled_by_themselves(what: str) -> None:
    fn, args = CALLED[what]
    graphs: list[Any] = []

    def backend(gm: Any, example_inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    torchdynamo.reset()
    for _ in range(2):  # the second time it finds what the first has compiled, if it is a function of a module
        compiled = torchdynamo.compile(fn, backend=backend, fullgraph=True)
        assert torch.equal(compiled(*args), fn(*args))
    home = what in ("a function of torch's", "an operator")
    assert len(graphs) == (1 if home else 2)
    assert compiled.__wrapped__ is fn


def test_a_function_of_torch_raises_what_it_raises() -> None:
    compiled = torchdynamo.compile(torch.nn.functional.softmax, backend="eager")
    with pytest.raises(IndexError, match="Dimension out of range"):
        compiled(X, 7)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        compiled()
