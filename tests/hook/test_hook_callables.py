"""CompiledGraph and Compiled: the two callables that switch a thread's callback."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import weakref
from typing import Any

import pytest
from hooking import Swapper, nothing

from torchdynamo.eval_frame import cache_entries, callback_active, set_eval_frame
from torchdynamo.hook.install import Compiled, CompiledGraph, hook_is_in


def one(a: int) -> Any:
    return "one", a


def other(a: int) -> Any:
    return "other", a


def state() -> Any:
    """The callback that is on, read without disturbing it."""
    current = set_eval_frame(None)
    set_eval_frame(current)
    return current


class Owned:
    owner_id = 5

    def __call__(self, *args: Any) -> None: ...


# CompiledGraph


def test_a_graph_runs_with_the_callback_off() -> None:
    seen: list[Any] = []
    graph = CompiledGraph(lambda *args, **kw: (seen.append((state(), hook_is_in())), args, kw), "__compiled_fn_3")
    with callback_active(nothing):
        assert graph(1, 2, k=3)[1:] == ((1, 2), {"k": 3})
        assert state() is nothing
        assert hook_is_in()
    assert graph(4)[1:] == ((4,), {})
    assert seen == [(None, False), (None, False)]


def test_a_graph_is_known_by_its_name() -> None:
    graph = CompiledGraph(one, "__compiled_fn_3")
    assert repr(graph) == graph.__name__ == "__compiled_fn_3"
    assert graph.fn is one
    assert graph.splat is False
    assert graph.on_error is None
    assert weakref.ref(graph)() is graph


@pytest.mark.parametrize("size", [0, 1, 5, 62, 63, 64, 500])
def test_splat_spreads_the_last_argument(size: int) -> None:
    graph = CompiledGraph(lambda *args, **kw: (args, kw), "graph", splat=True)
    tail = tuple(range(size))
    assert graph(tail) == (tail, {})
    assert graph("a", "b", tail, k=1, j=2) == (("a", "b", *tail), {"k": 1, "j": 2})


def test_splat_to_a_bound_method_and_without_a_tuple() -> None:
    class Holder:
        def method(self, *args: Any) -> Any:
            return type(self).__name__, args

    assert CompiledGraph(Holder().method, "graph", splat=True)(1, (2, 3)) == ("Holder", (1, 2, 3))
    for arguments in ((), (1,), (1, [2])):
        with pytest.raises(TypeError, match="graph must be called with a tuple in last place"):
            CompiledGraph(one, "graph", splat=True)(*arguments)


def test_the_callback_comes_back_when_a_graph_raises() -> None:
    def fail(*args: Any) -> None:
        raise LookupError(args)

    with callback_active(nothing):
        with pytest.raises(LookupError):
            CompiledGraph(fail, "graph")(1)
        assert state() is nothing


def test_on_error_gives_the_result() -> None:
    def fail(*args: Any) -> None:
        raise LookupError(args)

    seen: list[Any] = []

    def on_error(error: BaseException, args: tuple[Any, ...]) -> Any:
        seen.append(state())
        return type(error), error.args, args, error.__traceback__ is not None

    graph = CompiledGraph(fail, "graph", splat=True, on_error=on_error)
    with callback_active(nothing):
        assert graph(1, (2, 3)) == (LookupError, ((1, 2, 3),), (1, 2, 3), True)
        assert state() is nothing
    assert seen == [None]

    def again(error: BaseException, args: tuple[Any, ...]) -> Any:
        raise ValueError("again") from error

    with pytest.raises(ValueError, match="again"):
        CompiledGraph(fail, "graph", on_error=again)(1)


def test_graphs_refuse_what_they_cannot_call() -> None:
    for wrong in ((3, "name"), (one, 3)):
        with pytest.raises(TypeError):
            CompiledGraph(*wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        CompiledGraph(one, "name", on_error=3)  # type: ignore[arg-type]


# Compiled


def test_compiled_sets_the_callback_for_the_call() -> None:
    swapper = Swapper((one, other))
    compiled = Compiled(one, swapper)
    assert compiled(1) == compiled(a=1) == ("other", 1)
    assert one(1) == ("one", 1)
    assert state() is None
    assert not hook_is_in()
    assert cache_entries(compiled) == cache_entries(one)
    assert len(cache_entries(one)) == 1


def test_compiled_with_none_and_false() -> None:
    swapper = Swapper((one, other))
    disabled, run = Compiled(one, None), Compiled(one, False)
    with callback_active(swapper):
        assert disabled(1) == ("one", 1)
        assert run(1) == ("one", 1)
        assert Compiled(one, swapper)(1) == ("other", 1)
        assert run(1) == ("other", 1)
        assert disabled(1) == ("one", 1)
        assert state() is swapper
    assert (disabled.callback, run.callback) == (None, False)


def test_compiled_restores_after_an_exception_and_a_stray_callback() -> None:
    def fail() -> None:
        set_eval_frame(None)
        raise LookupError

    with callback_active(nothing):
        with pytest.raises(LookupError):
            Compiled(fail, Swapper())()
        assert state() is nothing


def test_nested_callbacks_each_see_their_own_calls() -> None:
    def inner() -> None: ...

    inside = Swapper()
    compiled_inner = Compiled(inner, inside)

    def outer() -> None:
        inner()
        compiled_inner()
        inner()

    outside = Swapper()
    Compiled(outer, outside)()
    assert outside.asked == ["outer", "inner", "inner"]
    assert inside.asked == ["inner"]


def test_compiled_binds_as_what_it_wraps() -> None:
    class Callable_:
        def __call__(self, *args: Any) -> Any:
            return args

    class Holder:
        method = Compiled(lambda self, x: (self, x), nothing)
        instance = Compiled(Callable_(), nothing)
        builtin = Compiled(len, nothing)
        partial = Compiled(functools.partial(one, 3), nothing)
        static = Compiled(staticmethod(one), nothing)
        klass = Compiled(classmethod(lambda cls, x: (cls, x)), nothing) if callable(classmethod(one)) else None

    holder = Holder()
    assert holder.method(1) == (holder, 1)
    assert Holder.method(holder, 1) == (holder, 1)
    assert holder.instance(1) == (1,)
    assert holder.builtin("four") == 4
    if not hasattr(functools.partial, "__get__"):  # from 3.14 one in a class is a method
        assert holder.partial() == ("one", 3)
    assert holder.static(2) == ("one", 2)
    method = holder.method
    assert method.__self__ is holder
    assert method.__func__ is Holder.__dict__["method"]


def test_compiled_looks_like_its_function() -> None:
    compiled = functools.update_wrapper(Compiled(one, nothing), one)
    assert compiled.__wrapped__ is one
    assert compiled.__name__ == "one"
    assert compiled.__module__ == __name__
    compiled.note = "kept"  # type: ignore[attr-defined]
    assert compiled.note == "kept"  # type: ignore[attr-defined]
    assert "one" in repr(compiled)
    assert copy.deepcopy(compiled) is compiled
    assert copy.copy(compiled) is compiled


decorated = functools.update_wrapper(Compiled(one, nothing), one)
decorated.__qualname__ = "decorated"  # type: ignore[attr-defined]


def test_compiled_is_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(decorated)) is decorated


def test_callables_in_cycles_are_collected() -> None:
    class Thing: ...

    def make() -> weakref.ref[Thing]:
        thing = Thing()
        compiled = Compiled(lambda: thing, nothing)
        thing.compiled = compiled  # type: ignore[attr-defined]
        thing.graph = CompiledGraph(lambda: thing, "graph")  # type: ignore[attr-defined]
        thing.block = callback_active(lambda *_: thing and None)  # type: ignore[attr-defined]
        return weakref.ref(thing)

    dead = make()
    gc.collect()
    assert dead() is None


def test_compiled_refuses_what_it_cannot_call() -> None:
    for wrong in ((3, nothing), (one, 3), (one,)):
        with pytest.raises(TypeError):
            Compiled(*wrong)  # type: ignore[arg-type]
