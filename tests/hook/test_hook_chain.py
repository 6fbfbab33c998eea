"""Our hook beside another one, in every order of coming and going."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hooking import Swapper, nothing

from torchdynamo.eval_frame import callback_active, set_eval_frame
from torchdynamo.hook.install import Compiled, CompiledGraph, hook_is_in


def one(a: int) -> Any:
    return "one", a


def other(a: int) -> Any:
    b = c = d = e = f = a
    return "other", [a, b, c, d, e, f]


EXPECTED = ("other", [1] * 6)


def plain_depth(n: int) -> int:
    return 0 if n == 0 else 1 + plain_depth(n - 1)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("other_hook") / "other_hook.so"
    source = Path(__file__).with_name("other_hook.c")
    include = sysconfig.get_path("include")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", f"-I{include}", str(source), "-o", str(path)], check=True)
    return ctypes.PyDLL(os.fspath(path))


@pytest.fixture
def hook(library: Any) -> Iterator[Any]:
    yield library
    set_eval_frame(None)
    while library.other_hook_is_in():
        library.other_hook_leave()


def test_ours_on_top(hook: Any) -> None:
    hook.other_hook_enter()
    before = hook.other_hook_frames()
    with callback_active(Swapper((one, other))):
        assert hook_is_in()
        assert one(1) == one(1) == EXPECTED
    assert hook.other_hook_is_in()
    assert hook.other_hook_frames() >= before + 2


def test_the_other_on_top(hook: Any) -> None:
    with callback_active(Swapper((one, other))):
        hook.other_hook_enter()
        before = hook.other_hook_frames()
        assert one(1) == one(1) == EXPECTED
        assert hook.other_hook_frames() >= before + 2
        hook.other_hook_leave()
        assert one(1) == EXPECTED


def test_the_other_comes_and_stays(hook: Any) -> None:
    with callback_active(Swapper((one, other))):
        hook.other_hook_enter()
    assert hook.other_hook_is_in()
    assert one(1) == ("one", 1)
    for _ in range(3):  # we are below it, and are needed again
        with callback_active(Swapper((one, other))):
            assert one(1) == one(1) == EXPECTED
            assert plain_depth(300) == 300
        assert hook.other_hook_is_in()
    hook.other_hook_leave()
    one(1)


def test_a_loop_of_hooks(hook: Any) -> None:
    hook.other_hook_enter()
    with callback_active(Swapper((one, other))):
        hook.other_hook_enter()  # ours passes on to it, and it to ours
        assert one(1) == one(1) == EXPECTED
        assert plain_depth(300) == 300
        with callback_active(None):
            assert one(1) == ("one", 1)
        with callback_active(Swapper((one, other))):
            assert one(1) == EXPECTED
    assert one(1) == ("one", 1)
    assert plain_depth(300) == 300


def test_a_graph_inside_which_the_other_comes_and_goes(hook: Any) -> None:
    def fn(a: int) -> Any:
        hook.other_hook_enter()
        try:
            return one(a), Compiled(one, swapper)(a)
        finally:
            hook.other_hook_leave()

    swapper = Swapper((one, other))
    graph = CompiledGraph(fn, "graph")
    with callback_active(swapper):
        assert graph(1) == (("one", 1), EXPECTED)
        assert one(1) == EXPECTED
    assert not hook_is_in()


def test_graphs_while_the_other_is_on_top(hook: Any) -> None:
    graph = CompiledGraph(one, "graph")
    with callback_active(Swapper((one, other))):
        hook.other_hook_enter()
        for _ in range(3):
            assert graph(1) == ("one", 1)
            assert one(1) == EXPECTED
        hook.other_hook_leave()
    assert one(1) == ("one", 1)


def test_exceptions_through_both(hook: Any) -> None:
    def fail(a: int) -> None:
        raise LookupError(a)

    hook.other_hook_enter()
    with callback_active(Swapper((one, other))):
        hook.other_hook_enter()
        for _ in range(3):
            with pytest.raises(LookupError):
                fail(1)
        assert sum(i for i in range(3)) == 3


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_torch_compile_before_inside_and_around() -> None:
    import torch

    def double(x: Any) -> Any:
        return x * 2

    def outer(x: Any) -> Any:
        return compiled(x) + 1

    compiled = torch.compile(double, backend="eager")
    x = torch.ones(3)
    swapper = Swapper((one, other))
    assert compiled(x).tolist() == [2] * 3
    with callback_active(swapper):
        assert one(1) == EXPECTED
        assert outer(x).tolist() == [3] * 3
        assert outer(x).tolist() == [3] * 3
        assert one(1) == EXPECTED
    assert torch.compile(lambda x: (Compiled(one, swapper)(1), x + 1)[1], backend="eager")(x).tolist() == [2] * 3
    with callback_active(nothing):
        assert torch.compile(double, backend="eager", fullgraph=True)(x).tolist() == [2] * 3
    assert compiled(x).tolist() == [2] * 3
    assert not hook_is_in()


COMING_AND_GOING = """
import itertools, threading
from concurrent.futures import ThreadPoolExecutor
from hooking import Swapper
from test_hook_chain import EXPECTED, one, other
from torch._C._dynamo.eval_frame import set_eval_frame as set_torchs
from torchdynamo.eval_frame import set_eval_frame as set_ours
from torchdynamo.hook.install import hook_is_in

swapper, workers = Swapper((one, other)), [ThreadPoolExecutor(1), ThreadPoolExecutor(1)]
ON = {set_ours: swapper, set_torchs: False}  # torch's is in, and compiles nothing
STEPS = [(worker, setter) for worker in workers for setter in ON]
for word in itertools.product(STEPS, repeat=5):
    on = set()
    for step in (*word, *word):  # a second time in the state that the first has left
        worker, setter = step
        worker.submit(setter, None if step in on else ON[setter]).result()
        on ^= {step}
        for each in workers:
            found = each.submit(one, 1).result()
            assert found == ("one", 1) or ((each, set_ours) in on and found == EXPECTED), (found, word)
    assert not on and not hook_is_in(), word
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_both_come_and_go_in_two_threads_in_any_order() -> None:
    places = [os.fspath(Path(__file__).parent), os.fspath(Path(__file__).parents[2])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*places, *sys.path])}
    ran = subprocess.run([sys.executable, "-c", COMING_AND_GOING], env=environment, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
