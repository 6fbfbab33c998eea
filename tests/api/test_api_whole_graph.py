"""`fullgraph=True`: what keeps a program from being one graph is told with all calls that lead there; an error of the
program's own is the program's."""

from __future__ import annotations

import ctypes
import functools
import inspect
import logging
import traceback
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo import exc

X = torch.ones(3)


def whole(fn: Any) -> Any:
    torchdynamo.reset()
    return torchdynamo.compile(fn, backend="eager", fullgraph=True)


def line(fn: Any, offset: int) -> str:
    """The place so many lines below the `def` of a function, as a traceback has it."""
    return f'  File "{__file__}", line {fn.__code__.co_firstlineno + offset}, in {fn.__name__}'


# -- what cannot be one graph ------------------------------------------------------------------------------------------
def innermost(x):
    torchdynamo.graph_break()
    return x


def middle(x):
    x = x + 1
    return innermost(
        x
    )  # fmt: skip


class Module(torch.nn.Module):
    def forward(self, x):
        return middle(x)


module = Module()


def outermost(x):
    return [module(y) for y in (x,)]


libc = ctypes.CDLL(None)
absolute = libc.abs


def calls_c(x):
    x = x + 1
    return x * libc.labs(-3)


def calls_c_by_a_name(x):
    x = x + 1
    return x * absolute(-3)


@pytest.mark.parametrize("fn", [calls_c, calls_c_by_a_name])
def test_a_c_function_is_named_with_the_users_line(fn: Any) -> None:
    with pytest.raises(exc.Unsupported, match="calls a C function through ctypes") as caught:
        whole(fn)(X)
    told = str(caught.value).splitlines()
    assert (caught.value.reason, caught.value.position.line) == ("foreign function", fn.__code__.co_firstlineno + 2)
    assert told[2] == line(fn, 2) and set(told[4].strip()) == {"^"}


def in_a_library(x):
    y = x + 1
    logging.getLogger("anyone").warning("mean %s", y.mean())
    return y


def test_the_marked_line_is_the_users_and_the_librarys_comes_after() -> None:
    with pytest.raises(exc.Unsupported) as caught:
        whole(in_a_library)(X)
    told = str(caught.value).splitlines()
    assert told[2] == line(in_a_library, 2) and set(told[4].strip()) == {"^"}
    assert told[5] == "In the library that is called there:" and told[6].startswith(
        f'  File "{logging.__file__}", line'
    )
    assert caught.value.position.filename == __file__


LIBRARY = torch.library.Library("whole_graph", "DEF")
LIBRARY.define("twice(Tensor x) -> Tensor")
LIBRARY.impl("twice", lambda x: x * 2, "CPU")


@torch.library.custom_op("whole_graph::thrice", mutates_args=())
def thrice(x: torch.Tensor) -> torch.Tensor:
    return x * 3


@pytest.mark.parametrize("name", ["twice", "thrice"])
def test_an_operator_without_a_fake_kernel_is_named_with_the_fix(name: str) -> None:
    operator = getattr(torch.ops.whole_graph, name)
    with pytest.raises(exc.Unsupported, match=f"whole_graph::{name} has no fake kernel") as caught:
        whole(lambda x: operator(x) + 1)(X)
    assert caught.value.reason == "no fake kernel"
    assert f'@torch.library.register_fake("whole_graph::{name}")' in str(caught.value)
    assert torch.equal(torchdynamo.compile(lambda x: operator(x) + 1, backend="eager")(X), operator(X) + 1)
    torch.library.register_fake(f"whole_graph::{name}", torch.empty_like)
    assert torch.equal(whole(lambda x: operator(x) + 1)(X), operator(X) + 1)


def test_all_calls_are_shown_outermost_first() -> None:
    with pytest.raises(exc.Unsupported) as caught:
        whole(outermost)(X)
    told = str(caught.value).splitlines()
    places = [line(outermost, 1), line(Module.forward, 1), line(middle, 2), line(innermost, 1)]
    shown = [each for each in told if each.startswith("  File") and "<listcomp>" not in each]
    assert shown == places
    assert told[told.index(places[1]) + 1] == "    return middle(x)"
    assert told[told.index(places[3]) + 1 :][:2] == ["    torchdynamo.graph_break()", "    " + "^" * 25]
    assert caught.value.position.line == innermost.__code__.co_firstlineno + 1
    assert [each.filename for each in traceback.extract_tb(caught.value.__traceback__)][1:] == []


def generator(x):
    yield x + 1


async def coroutine(x):
    return x + 1


async def asynchronous(x):
    yield x + 1


class GeneratorModule(torch.nn.Module):
    def forward(self, x):
        yield x + 1


class Callable_:
    def __call__(self, x):
        yield x + 1

    def method(self, x):
        yield x + 1


NEVER = {
    "generator": generator,
    "coroutine": coroutine,
    "async generator": asynchronous,
    "module": GeneratorModule(),
    "object": Callable_(),
    "method": Callable_().method,
    "partial": functools.partial(generator, X),
}


@pytest.mark.parametrize("name", NEVER)
def test_what_runs_in_pieces_raises_when_it_is_called(name: str) -> None:
    compiled = whole(NEVER[name])
    for _ in range(2):
        with pytest.raises(exc.Unsupported, match="is a (generator|coroutine)") as caught:
            compiled(*([] if name == "partial" else [X]))
        assert caught.value.reason in ("generator", "coroutine")
        assert [each.name for each in traceback.extract_tb(caught.value.__traceback__)][1:] == []


def test_without_fullgraph_it_runs_as_it_is() -> None:
    compiled = torchdynamo.compile(generator, backend="eager")
    assert torch.equal(next(compiled(X)), X + 1)
    again = torchdynamo.compile(whole(generator), backend="eager")
    assert torch.equal(next(again(X)), X + 1)
    assert inspect.isgenerator(again(X))


# -- the program's own errors ------------------------------------------------------------------------------------------
def raises(x):
    x = x + 1
    raise KeyError("mine")


def raises_in_a_call(x):
    return raises(x)


def misses(x):
    return {}["k"] + x


class Names:
    def __getattr__(self, name):
        raise KeyError(name)

    def __hash__(self):
        raise KeyError("hash")


names = Names()


def asks(x):
    return names.anything + x


def hashes(x):
    return {names: x}


def shapes_differ(x):
    return x * 2 + torch.ones(4)


def divides(x):
    return x * (1 // 0)


@pytest.mark.parametrize("fn", [raises, raises_in_a_call, misses, asks, hashes, shapes_differ, divides])
def test_they_are_what_they_are_in_eager(fn: Any) -> None:
    def attempt(call: Any) -> Any:
        with pytest.raises((KeyError, RuntimeError, ZeroDivisionError)) as caught:
            call(X)
        entries = traceback.extract_tb(caught.value.__traceback__)[2:]
        return type(caught.value), str(caught.value), [(each.filename, each.lineno, each.name) for each in entries]

    compiled = whole(fn)
    for _ in range(3):
        assert attempt(lambda x: compiled(x)) == attempt(lambda x: fn(x))


def test_effects_are_done_once_and_the_next_call_is_captured() -> None:
    log: list[int] = []
    ok = {"k": 1}

    def fn(x, d):
        log.append(len(log))
        return x * d["k"]

    compiled = whole(fn)
    for _ in range(2):
        with pytest.raises(KeyError):
            compiled(X, {})
    assert log == [0, 1]
    assert torch.equal(compiled(X, ok), X)
    assert torchdynamo.eval_frame.cache_entries(fn)[-1].graph is not None
    assert log == [0, 1, 2]


@torch.library.custom_op("whole_graph::stricter", mutates_args=())
def stricter(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@stricter.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("a rule that is wrong")


def test_where_nothing_is_raised_it_is_unsupported() -> None:
    def fn(x):
        return stricter(x)

    compiled = whole(fn)
    for _ in range(2):
        with pytest.raises(exc.Unsupported, match="a rule that is wrong"):
            compiled(X)
    assert torch.equal(torchdynamo.compile(fn, backend="eager")(X), X + 1)
