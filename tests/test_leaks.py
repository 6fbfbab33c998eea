"""Ten thousand hits leave nothing behind, and what is compiled lives no longer than its owner."""

from __future__ import annotations

import contextvars
import gc
import linecache
import multiprocessing
import resource
import sys
import warnings
import weakref
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo import events
from torchdynamo.eval_frame import cache_entries

CALLS = 10_000


def count_of_one_variable() -> int:
    """What `sys.getrefcount` says of an object that one variable holds: 2, and 1 from Python 3.14 on, which lends."""
    alone = object()
    return sys.getrefcount(alone)


COUNT = count_of_one_variable()
LIMIT = 100_000  # bytes; less than ten for each call


def resident() -> int:
    """Bytes of memory in use by this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def grows(call: Callable[[], Any]) -> int:
    """Bytes that ten thousand calls keep: the least of some goes, as allocators take their time to settle."""
    sizes = [resident()]
    for _ in range(4):
        for _ in range(CALLS):
            call()
        gc.collect()
        sizes.append(resident())
    return min(after - before for before, after in pairwise(sizes))


class Box:
    def __init__(self, t):
        self.t = t
        self.n = 0


TOTAL = 0


def plain(x, xs, box):
    return x + xs[0] * 2


def written(x, xs, box):
    global TOTAL
    TOTAL += 1 - TOTAL
    box.n = len(xs)
    box.t = x * 2
    xs[0] = box.t + 1
    return {"x": x, "both": (xs, [box.t])}


def in_place(x, xs, box):
    x.mul_(1)
    xs[0].zero_()
    return x


def broken(x, xs, box):
    y = x + 1
    print(end="")
    return y * xs[0]


def branching(x, xs, box):
    if x.sum() > 0:
        return x * 2
    return x - 1


def looping(x, xs, box):
    for t in xs:
        print(end="")
        x = x + t
    return x


def in_context(x, xs, box):
    with torch.no_grad():
        y = x + 1
        print(end="")
        y = y * 2
    return y + 1


def closing(x, xs, box):
    k = 3

    def inner(t):
        nonlocal k
        k += 1
        return t * k

    return [inner(t) for t in xs], k, inner


def raising(x, xs, box):
    y = x + 1
    try:
        raise ValueError(len(xs))
    except ValueError as error:
        return y * error.args[0]


def escaping(x, xs, box):
    y = x + 1
    raise LookupError("no", y.shape)


FUNCTIONS = [plain, written, in_place, broken, branching, looping, in_context, closing, raising, escaping]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(4, 4)
        self.b = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())

    def forward(self, x):
        return self.b(self.a(x))


def calling(fn: Any, *args: Any) -> Callable[[], Any]:
    """Calls whose errors are expected."""

    def call() -> Any:
        try:
            return fn(*args)
        except LookupError:
            return None

    return call


def inputs() -> tuple[Any, ...]:
    return torch.ones(3), [torch.ones(3), torch.ones(3)], Box(torch.ones(3))


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_memory(fn):
    x, xs, box = inputs()
    call = calling(torchdynamo.compile(fn, backend="eager"), x, xs, box)
    for _ in range(200):
        call()
    before = len(cache_entries(fn))
    assert grows(call) < LIMIT
    assert len(cache_entries(fn)) == before, "the calls were no hits"
    assert before > 0 or fn is looping


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_reference_counts(fn):
    x, xs, box = inputs()
    second, inner = xs[1], box.t
    call = calling(torchdynamo.compile(fn, backend="eager"), x, xs, box)
    watched = [x, xs, second, box, fn, fn.__code__, fn.__globals__, torch, Box]
    for _ in range(10):
        result = call()
    gc.collect()
    counts = [sys.getrefcount(thing) for thing in watched]
    for _ in range(1000):
        result = call()
    gc.collect()
    assert [sys.getrefcount(thing) for thing in watched] == counts
    assert fn is written or box.t is inner
    if isinstance(result, torch.Tensor) and result is not x:
        assert sys.getrefcount(result) == COUNT


def test_a_hit_on_a_module():
    model, x = Model(), torch.ones(2, 4)
    compiled = torchdynamo.compile(model, backend="eager")
    for _ in range(200):
        result = compiled(x)
    gc.collect()
    watched = [x, model, model.forward.__func__, model.a, model.a.weight, Model.forward.__code__]
    counts = [sys.getrefcount(thing) for thing in watched]
    assert grows(lambda: compiled(x)) < LIMIT
    assert [sys.getrefcount(thing) for thing in watched] == counts
    result = compiled(x)
    assert sys.getrefcount(result) == COUNT
    assert len(cache_entries(Model.forward)) == 1


# -- lifetimes ---------------------------------------------------------------------------------------------------------
class OwnMethod(Model):
    """Keeps a bound method of itself: a cycle."""

    def __init__(self):
        super().__init__()
        self.act = self.double

    def double(self, x):
        return x * 2

    def forward(self, x):
        return self.act(super().forward(x))


class Breaking(Model):
    def forward(self, x):
        x = self.a(x)
        print(end="")
        return self.b(x) + self.a.weight.sum()


class BreakingInside(Model):
    def middle(self, x):
        x = self.a(x)
        print(end="")
        return x * 2

    def forward(self, x):
        with torch.no_grad():
            return self.b(self.middle(x))


class Branching(Model):
    def forward(self, x):
        x = self.a(x)
        if x.sum() > 1e9:
            return x
        return self.b(x)


class Looping(Model):
    def forward(self, x):
        for layer in self.b:
            print(end="")
            x = layer(x)
        return x


class Hooked(Model):
    def __init__(self):
        super().__init__()
        self.seen = []
        self.a.register_forward_hook(self.note)

    def note(self, module, args, result):
        self.seen.append(result.shape)
        return result + 1


class Remembering(Model):
    """Writes to itself."""

    def forward(self, x):
        self.last = self.a(x)
        self.calls = getattr(self, "calls", 0) + 1 if not hasattr(self, "calls") else 1
        return self.b(self.last)


class Closing(Model):
    def __init__(self):
        super().__init__()
        layer = self.a
        self.run = lambda x: layer(x) * len(list(self.parameters()))

    def forward(self, x):
        return self.run(x)


MODELS = [Model, OwnMethod, Breaking, BreakingInside, Branching, Looping, Hooked, Remembering, Closing]


def all_die(refs: list[weakref.ref[Any]]) -> None:
    gc.collect()
    alive = [ref() for ref in refs if ref() is not None]
    assert not alive, [[type(holder) for holder in gc.get_referrers(thing)] for thing in alive]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("cls", MODELS)
def test_a_model_dies_with_its_owner(cls, backend):
    model = cls()
    compiled = torchdynamo.compile(model, backend=backend)
    for _ in range(3):
        compiled(torch.ones(2, 4))
    refs = [weakref.ref(thing) for thing in (model, *model.modules(), *model.parameters())]
    refs += [weakref.ref(parameter.untyped_storage()) for parameter in model.parameters()]
    del model, compiled
    all_die(refs)


@pytest.mark.parametrize("cls", MODELS)
def test_a_model_dies_under_a_compiler_that_lives(cls):
    """The backend's settings are shared with another model of the class, which goes on."""
    model, other = cls(), cls()
    compile_ = torchdynamo.optimize("eager")
    one, two = compile_(model), compile_(other)
    for _ in range(3):
        one(torch.ones(2, 4))
        two(torch.ones(2, 4))
    refs = [weakref.ref(thing) for thing in (model, *model.parameters())]
    del model, one
    all_die(refs)
    x = torch.ones(2, 4)
    assert torch.equal(two(x), other(x))


def test_a_model_called_in_a_block_dies():
    model = OwnMethod()
    with torchdynamo.optimize("eager"):
        model(torch.ones(2, 4))
    refs = [weakref.ref(thing) for thing in (model, *model.parameters())]
    del model
    all_die(refs)


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_arguments_and_results_die(fn):
    compiled = torchdynamo.compile(fn, backend="eager")
    for _ in range(3):
        x, xs, box = inputs()
        result = calling(compiled, x, xs, box)()
        refs = [weakref.ref(thing) for thing in (x, *xs, box, box.t)]
        if isinstance(result, torch.Tensor):
            refs.append(weakref.ref(result))
        del x, xs, box, result
        all_die(refs)


def makes_functions(x, box):
    return sum(inner(x) for inner in [lambda y: y + box.t, lambda y: y * 2])


def iterates(x, box):
    for number, (item, other) in enumerate(zip((y + 1 for y in [x, x]), [box.t, x], strict=True)):
        x = x + number * item + other
    return x


def breaks_in_a_loop(x, box):
    for number in range(2):
        torchdynamo.graph_break()
        x = x + number * box.t
    return x


def breaks_twice(x, box):
    torchdynamo.graph_break()
    y = [part + 1 for part in (x, box.t)]
    torchdynamo.graph_break()
    return y[0] + y[1]


@pytest.mark.parametrize("fn", [makes_functions, iterates, breaks_in_a_loop, breaks_twice])
def test_what_was_captured_is_let_go_of_at_once(fn):
    """A capture is no garbage for the collector to find: it would keep what the function was given."""
    compiled = torchdynamo.compile(fn, backend="eager")
    for warm in (True, False):  # modules of torch are imported in the first
        torchdynamo.reset()
        x, box = torch.ones(2), Box(torch.ones(2))
        refs = [weakref.ref(x), weakref.ref(box), weakref.ref(box.t)]
        gc.disable()
        try:
            compiled(x, box)
            del x, box
            assert warm or [ref() for ref in refs] == [None] * 3
        finally:
            gc.enable()


def make(breaks: bool) -> tuple[Any, list[weakref.ref[Any]]]:
    """A function with a closure, and references to what only it holds."""
    weight, holder = torch.ones(3), Box(torch.ones(3))

    def fn(x):
        nonlocal weight
        x = x * weight
        if breaks:
            print(end="")
        holder.n = 1
        weight = weight + 0
        return x + holder.t

    return fn, [weakref.ref(fn), weakref.ref(holder), weakref.ref(holder.t)]


@pytest.mark.parametrize("breaks", [False, True])
def test_closures_die(breaks):
    fn, refs = make(breaks)
    other, _ = make(breaks)  # shares the code
    compile_ = torchdynamo.optimize("eager")
    one, two = compile_(fn), compile_(other)
    x = torch.ones(3)
    for _ in range(3):
        one(x)
        two(x)
    del fn, one
    all_die(refs)
    assert torch.equal(two(x), other(x))


def applying(module, x):
    return module(x) + 1


def closing(number):
    inner = lambda x: x * number  # noqa: E731
    return lambda x: inner(x) + 1


def running(thing, x):
    return thing.run(x)


class Patched:
    pass


def test_an_entry_goes_with_what_it_cannot_do_without():
    """Each of many methods has a version of its own, and none stays when its method has gone."""
    x = torch.ones(4)
    compiled = torchdynamo.compile(running, backend="eager", dynamic=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # there is no end of places
        for number in range(30):
            Patched.run = lambda self, x, number=number: x + number
            for _ in range(3):
                assert torch.equal(compiled(Patched(), x), x + number)
            assert len(torchdynamo.eval_frame.cache_entries(running)) == 1
    gone = weakref.ref(torchdynamo.eval_frame.cache_entries(running)[0].graph)
    del Patched.run
    assert not torchdynamo.eval_frame.cache_entries(running)
    gc.collect()
    assert gone() is None


def test_an_entry_that_serves_the_next_stays():
    """It belongs to the code: a module's own death takes nothing from others of its class, nor a closure's."""
    x = torch.ones(2, 4)
    compiled = torchdynamo.compile(applying, backend="eager")
    made = []
    for _ in range(20):
        torch.manual_seed(0)
        model = Model()
        assert torch.equal(compiled(model, x), model(x) + 1)
        made.append(torchdynamo.eval_frame.cache_entries(applying))
        del model
    assert len(made[-1]) == 1 and made[-1][0].graph is made[0][0].graph
    for _ in range(20):
        fn = closing(2)
        assert torch.equal(torchdynamo.compile(fn, backend="eager")(x), x * 2 + 1)
        assert len(torchdynamo.eval_frame.cache_entries(fn)) == 1


def test_code_dies():
    """A function made from text, its code, continuations and graphs; its compiler lives."""
    compile_ = torchdynamo.optimize("eager")
    space = {"torch": torch}
    exec("def f(x):\n    y = x + 1\n    print(end='')\n    return y * 2", space)
    f = space["f"]
    compiled = compile_(f)
    compiled(torch.ones(3))
    (entry,) = cache_entries(f)
    refs = [weakref.ref(f), weakref.ref(f.__code__), weakref.ref(entry.code), weakref.ref(entry.graph)]
    space.clear()
    del f, entry, compiled
    all_die(refs)


SOURCE = """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)

    def forward(self, x):
        return self.inner(x) + 1
"""


def left_by_new_classes(backend: str) -> tuple[list[tuple[int, int, int]], Counter[str]]:
    """Return what is there after each five classes that are made, compiled for and gone; and of what types is more."""

    def once() -> None:
        space: dict[str, Any] = {"torch": torch, "__name__": "made"}
        exec(SOURCE, space)
        model = space["Model"]()
        compiled = torchdynamo.compile(model, backend=backend)
        for _ in range(2):
            compiled(torch.ones(2, 3))
        space.clear()
        events.clear()  # they are bounded, but not yet as many as are kept

    def there() -> tuple[int, int, int]:
        for _ in range(3):
            gc.collect()
        return len(gc.get_objects()), len(linecache.cache), len(contextvars.copy_context())

    found = []
    for _ in range(6):
        types = Counter(type(each).__qualname__ for each in gc.get_objects())
        for _ in range(5):
            once()
        found.append(there())
    return found, Counter(type(each).__qualname__ for each in gc.get_objects()) - types


@pytest.mark.long
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_new_classes_leave_no_objects(backend: str) -> None:
    """As many objects are there as before, and as much text. In a new process: in a fork, autograd has no threads."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        found, more = pool.submit(left_by_new_classes, backend).result()
    for kind in zip(*found, strict=True):  # the first rounds fill tables of torch's and Python's
        assert min(after - before for before, after in pairwise(kind)) <= 0, more
