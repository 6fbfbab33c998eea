"""torch.compile in the same process, as libraries use it: before, inside, around and beside ours; both work."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from torch._dynamo.convert_frame import compile_lock as torchs_lock
from torch.nn.attention.flex_attention import flex_attention

import torchdynamo
from torchdynamo.hook import compile_lock


class Counting:
    """A backend that counts the graphs it is given, and their runs."""

    def __init__(self):
        self.graphs = 0
        self.runs = 0

    def __call__(self, gm, example_inputs):
        self.graphs += 1

        def run(*args):
            self.runs += 1
            return gm.forward(*args)

        return run


@pytest.fixture(autouse=True)
def _fresh():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.fixture
def theirs():
    return Counting()


@pytest.fixture
def ours():
    return Counting()


@pytest.fixture
def x():
    return torch.tensor([1.0, -2.0, 3.0])


def double(x):
    return x * 2


def steps(x):
    y = x + 1
    print(end="")
    return y * 3


def calling(inner):
    """A function that calls another between operators of its own."""

    def outer(x):
        y = x + 1
        return inner(y) - 3

    return outer


def twice(fn, *args):
    """Two calls, which give the same."""
    first, second = fn(*args), fn(*args)
    assert torch.equal(first, second)
    return first


def test_before(theirs, ours, x):
    """The same function, compiled by them first."""
    a = torch.compile(steps, backend=theirs)
    assert torch.equal(twice(a, x), steps(x))
    b = torchdynamo.compile(steps, backend=ours)
    assert torch.equal(twice(b, x), steps(x))
    assert torch.equal(twice(a, x), steps(x))
    assert (theirs.graphs, theirs.runs) == (2, 8)
    assert (ours.graphs, ours.runs) == (2, 4)


def test_after(theirs, ours, x):
    b = torchdynamo.compile(steps, backend=ours)
    assert torch.equal(twice(b, x), steps(x))
    a = torch.compile(steps, backend=theirs)
    assert torch.equal(twice(a, x), steps(x))
    assert torch.equal(twice(b, x), steps(x))
    assert (theirs.graphs, theirs.runs) == (2, 4)
    assert (ours.graphs, ours.runs) == (2, 8)


@pytest.mark.parametrize("called_before", [False, True])
def test_inside(theirs, ours, x, called_before):
    """A function of ours calls one of theirs."""
    inner = torch.compile(double, backend=theirs)
    if called_before:
        inner(x)

    compiled = torchdynamo.compile(calling(inner), backend=ours)
    wanted = (x + 1) * 2 - 3
    for _ in range(3):
        assert torch.equal(compiled(x), wanted)
    assert ours.runs >= 3
    assert torch.equal(twice(inner, x), x * 2)
    assert theirs.runs >= 2


def test_inside_with_effects(theirs, ours, x):
    """Each effect of an inner function happens once, whoever compiles it."""
    log = []

    def noting(x):
        log.append(1)
        return x * 2

    inner = torch.compile(noting, backend=theirs)

    def outer(x):
        log.append(0)
        y = inner(x + 1)
        log.append(2)
        return y

    compiled = torchdynamo.compile(outer, backend=ours)
    for _ in range(3):
        log.clear()
        assert torch.equal(compiled(x), (x + 1) * 2)
        assert log == [0, 1, 2]


def test_around(theirs, ours, x):
    """A function of theirs calls one of ours."""
    inner = torchdynamo.compile(double, backend=ours)

    compiled = torch.compile(calling(inner), backend=theirs)
    wanted = (x + 1) * 2 - 3
    for _ in range(3):
        assert torch.equal(compiled(x), wanted)
    assert theirs.runs >= 3
    assert torch.equal(twice(inner, x), x * 2)
    assert ours.runs >= 2


def test_around_a_block(theirs, ours, x):
    """Their function runs while our compiler is on for the whole block."""
    compiled = torch.compile(steps, backend=theirs)
    with torchdynamo.optimize(ours):
        assert torch.equal(twice(compiled, x), steps(x))
        assert torch.equal(twice(double, x), x * 2)
    assert theirs.runs == 4
    assert ours.runs >= 1
    assert torch.equal(twice(compiled, x), steps(x))
    assert theirs.runs == 8


def test_one_around_the_other(theirs, ours, x):
    """The same function by both at once."""
    for compiled in (
        torch.compile(torchdynamo.compile(steps, backend=ours), backend=theirs),
        torchdynamo.compile(torch.compile(steps, backend=theirs), backend=ours),
    ):
        assert torch.equal(twice(compiled, x), steps(x))
    assert ours.runs + theirs.runs >= 4


def test_our_backend_is_theirs(x):
    """A backend that calls torch.compile for each graph."""

    def backend(gm, example_inputs):
        return torch.compile(gm, backend="eager")

    compiled = torchdynamo.compile(steps, backend=backend)
    for _ in range(3):
        assert torch.equal(compiled(x), steps(x))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_training_by_both(backend):
    """Modules of one class, one compiled by each, inside one step."""
    torch.manual_seed(0)
    models = [torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()) for _ in range(4)]
    for model in models[2:]:
        model.load_state_dict(models[models.index(model) - 2].state_dict())
    a, b = torch.compile(models[0], backend="aot_eager"), torchdynamo.compile(models[1], backend=backend)
    x = torch.randn(2, 4)
    for _ in range(3):
        b(a(x)).sum().backward()
        models[3](models[2](x)).sum().backward()
    for mine, eager in zip(models[:2], models[2:]):
        for p, q in zip(mine.parameters(), eager.parameters()):
            torch.testing.assert_close(p.grad, q.grad)


def test_flex_attention():
    """A library function that is compiled by torch.compile, called by a function of ours, and in our graph."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 16, 8) for _ in range(3))

    def causal(score, batch, head, row, column):
        return torch.where(row >= column, score, float("-inf"))

    def attention(q, k, v):
        return flex_attention(q * 1.5, k, v, score_mod=causal) + 1

    wanted = attention(q, k, v)
    compiled = torchdynamo.compile(attention, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(compiled(q, k, v), wanted)
    library = torch.compile(flex_attention, backend="aot_eager")

    def uses_library(q, k, v):
        return library(q * 1.5, k, v, score_mod=causal) + 1

    compiled = torchdynamo.compile(uses_library, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(compiled(q, k, v), wanted)


def test_errors_cross(theirs, ours, x):
    """An exception goes through both, and both work afterwards."""

    def fails(x):
        y = x + 1
        if y.shape[0] == 3:
            raise LookupError("three")
        return y

    inner = torch.compile(fails, backend=theirs)
    compiled = torchdynamo.compile(lambda x: inner(x * 2) + 1, backend=ours)
    for _ in range(2):
        with pytest.raises(LookupError, match="three"):
            compiled(x)
        assert torch.equal(compiled(x[:2]), x[:2] * 2 + 2)


def test_threads(x):
    """One thread with theirs, one with ours."""
    failures = []

    def work(compiled):
        try:
            for _ in range(200):
                assert torch.equal(compiled(x), steps(x))
        except BaseException as error:
            failures.append(error)

    compiled = [torch.compile(steps, backend="eager"), torchdynamo.compile(steps, backend="eager")]
    threads = [threading.Thread(target=work, args=(fn,)) for fn in compiled * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def all_finish(works):
    """Run them in threads at once; none may hang or fail."""
    with ThreadPoolExecutor(len(works)) as pool:
        for future in [pool.submit(work) for work in works]:
            future.result(timeout=100)


def locking(gm, example_inputs):
    """A backend that takes torch.compile's lock, as Inductor does."""
    with torchs_lock:
        time.sleep(0.001)
        return gm.forward


def test_first_calls_in_many_threads(x):
    """32 threads compile for the first time, half of them by torch.compile, under its lock."""
    start = threading.Barrier(32)

    def work(number):
        space = {}
        exec(f"def fn(x):\n    return (x * {number}).sum() + {number}", space)
        compile_ = torch.compile if number % 2 else torchdynamo.compile
        compiled = compile_(space["fn"], backend="eager" if number % 2 else locking)
        start.wait()
        for _ in range(5):
            assert torch.equal(compiled(x), space["fn"](x))

    all_finish([partial(work, number) for number in range(32)])


def test_locks_taken_crosswise(x, monkeypatch):
    """One thread compiles by us and waits for torch.compile's lock; who has that waits for us to be done compiling."""
    monkeypatch.setattr(compile_lock, "PATIENCE", 0.5)
    torchdynamo.reset()
    ours_inside, theirs_inside = threading.Event(), threading.Event()

    def our_backend(gm, example_inputs):
        ours_inside.set()
        assert theirs_inside.wait(60)
        with torchs_lock:
            return gm.forward

    other = torchdynamo.compile(lambda x: x * 3, backend="eager")

    def their_backend(gm, example_inputs):
        theirs_inside.set()
        assert ours_inside.wait(60)
        assert torch.equal(other(x), x * 3)
        return gm.forward

    ours = torchdynamo.compile(lambda x: x * 2, backend=our_backend)
    theirs = torch.compile(lambda x: x * 5, backend=their_backend)

    def expect(fn, by):
        for _ in range(3):
            assert torch.equal(fn(x), x * by)

    all_finish([lambda: expect(ours, 2), lambda: expect(theirs, 5)])
    expect(other, 3)
