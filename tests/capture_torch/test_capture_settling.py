"""Numbers that are others in each call stop leading to versions: what asks for their values is left to Python."""

from __future__ import annotations

import copy
import json
import math
import random
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from counting import Counting

import torchdynamo
from torchdynamo.cache import budget
from torchdynamo.errors import CacheLimitWarning

HELD = SimpleNamespace()
CALLS, SETTLED = 9, 5  # of each function; how many of them may compile


def schedule(x, i):
    return x * (i / 3 if i < 3 else 0.5 * (1 + math.cos(math.pi * (i - 3) / 17)))


def kept(x, i):
    HELD.loss = float(i) * 0.5
    return x * HELD.loss


CASES: dict[str, Callable[[Any, Any], Any]] = {
    "cos": lambda x, i: x * math.cos(i * 0.1),
    "exp": lambda x, i: x * math.exp(-i / 10),
    "sqrt": lambda x, i: x * math.sqrt(i + 1),
    "log": lambda x, i: x * math.log(i + 2),
    "a power of a float": lambda x, i: x * (0.9**i),
    "a power with an exponent that is none": lambda x, i: x * (1 - (1 + i / 1.5) ** -0.66),
    "min": lambda x, i: x * min((1 + i) / (10 + i), 0.99),
    "max": lambda x, i: x * max(0.1, 1 - i / 20),
    "a schedule": schedule,
    "round": lambda x, i: x * round(i * 0.37, 2),
    "sides that take turns": lambda x, i: x + 1 if i % 3 == 0 else x * 2,
    "a function of NumPy": lambda x, i: x * float(np.cos(i * 0.1)),
    "a number of NumPy": lambda x, i: x * np.float64(i * 0.37),
    "a text": lambda x, i: (x * 2, f"step {i}"),
    "an attribute": kept,
    "an operator": lambda x, i: torch.add(x, x, alpha=i * 0.1).clamp(max=i * 0.3),
    "a fact": lambda x, i: x if math.isfinite(i * 0.1) else -x,
    "a fact of a function": lambda x, i: x * 2 if math.cos(i * 0.9) > 0 else x,
}


def same(a: Any, b: Any) -> bool:
    return torch.equal(a[0], b[0]) and a[1:] == b[1:] if isinstance(a, tuple) else torch.equal(a, b)


def compiled_in(fn: Callable[[Any, Any], Any], kind: type, backend: str) -> list[int]:
    """How many graphs each call makes; each gives what eager gives."""
    torchdynamo.reset()
    counting, x, made = Counting(backend), torch.rand(4), []
    compiled = torchdynamo.compile(fn, backend=counting)
    for n in range(CALLS):
        before = len(counting.graphs)
        assert same(compiled(x, kind(n * 1.01)), fn(x, kind(n * 1.01)))
        made.append(len(counting.graphs) - before)
    return made


@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.parametrize("name", CASES)
def test_a_number_settles(name: str, kind: type) -> None:
    made = compiled_in(CASES[name], kind, "eager")
    assert not any(made[SETTLED + 1 :]), made


@pytest.mark.parametrize("name", ["cos", "sqrt", "a power of a float", "a schedule"])
def test_functions_of_numbers_are_computed_in_graphs_of_any_backend(name: str) -> None:
    compiled_in(CASES[name], int, "aot_eager")


def test_a_function_that_is_not_asked_for_has_few_versions_that_are_not_used() -> None:
    backend, x = Counting(), torch.rand(4)

    def scaled(x, items):
        return x * len(items)

    def asked(x, items):
        return x * len(items)

    torchdynamo.reset()
    with torchdynamo.optimize(backend):
        for n in range(40):
            assert torch.equal(scaled(x, (0,) * n), x * n)
    few = len(backend.graphs)
    compiled = torchdynamo.compile(asked, backend=backend)
    for n in range(7):
        compiled(x, (0,) * n)
    assert few <= 6
    assert len(backend.graphs) == few + 7


# -- texts and arrays ------------------------------------------------------------------------------------------------
def worded(x, text):
    words = text.split()
    return x * len(words), words[-1]


def keyed(x, text):
    found = {text: x + 1, "last": x}
    return found[text] * 2, list(found)


TEXTS: dict[str, Callable[[Any, str], Any]] = {
    "passed on": lambda x, text: (x * 2, text),
    "in a list": lambda x, text: (x * 2, [text, text]),
    "its length": lambda x, text: x * len(text),
    "split": worded,
    "a key": keyed,
    "compared": lambda x, text: x * 3 if text == "step 4 a" else x,
    "a prefix": lambda x, text: x * (2 if text.startswith("step") else 3),
    "a number in it": lambda x, text: x * int(text.split()[1]),
    "formatted": lambda x, text: (x + 1, f"<{text!r:>20}>"),
    "joined": lambda x, text: (x + 1, text + "b", "b" + text, text * 2, text % ()),
    "sliced": lambda x, text: (x + 1, text[0], text[1:], text[::-1], [*text], max(text), sorted(set(text))),
    "asked": lambda x, text: (x + 1, not text, text or 1, text is None, isinstance(text, str), text < "t", "p" in text),
    "the same": lambda x, text: (x + 1, [text][0] is text, text == text, (text,) == (text,), text in (text, 1)),
    "parsed": lambda x, text: (x * len(json.loads(json.dumps([text]))), text),
    "its hash": lambda x, text: (x + 1, hash(text) == hash(text + ""), {text} == {text[:1] + text[1:]}),
}


def items_of(kind: type, n: int) -> Any:
    return {list: [*range(n)], dict: {f"key {n}": n, "n": n}, set: {n, "n"}, deque: deque(range(n))}[kind]


CONTAINERS: dict[str, Callable[[Any, Any], Any]] = {
    "its length": lambda x, items: x * len(items),
    "a loop": lambda x, items: x * sum(1 for _ in items),
    "passed on": lambda x, items: (x + 1, [items], items is None),
    "copied": lambda x, items: (x + 1, copy.copy(items), type(items)),
    "its truth": lambda x, items: x * 2 if items else x,
    "membership": lambda x, items: x * 2 if 3 in items else x,
    "compared": lambda x, items: (x + 1, items == items, items != 1),
}


def arrays(seed: int) -> np.ndarray[Any, Any]:
    return np.random.RandomState(seed).rand(3)


ARRAYS: dict[str, Callable[[Any, Any], Any]] = {
    "a tensor of it": lambda x, array: x * torch.tensor(array).sum(),
    "its memory": lambda x, array: x * torch.from_numpy(array).sum(),
    "its sum": lambda x, array: x * float(array.sum()),
    "an item": lambda x, array: x * array[1],
    "decided": lambda x, array: x * (2 if array.max() > 0.7 else 3),
    "computed with": lambda x, array: x * np.sqrt(array + 1).mean(),
    "passed on": lambda x, array: (x + 1, array.shape, array is None),
}


def values_of(kind: str) -> list[Any]:
    return [f"step {n} {'ab'[n % 2]}" if kind == "text" else arrays(n) for n in range(24)]


@pytest.mark.parametrize("name", CONTAINERS)
@pytest.mark.parametrize("kind", [list, dict, set, deque])
def test_containers_that_hold_something_else_in_each_call(kind: type, name: str) -> None:
    backend, x = Counting(), torch.rand(4)
    compiled, made = torchdynamo.compile(CONTAINERS[name], backend=backend), []
    for n in range(2, 22):
        before = len(backend.graphs)
        assert same(compiled(x, items_of(kind, n)), CONTAINERS[name](x, items_of(kind, n))), n
        made.append(len(backend.graphs) - before)
    assert not any(made[10:]) and sum(made) <= 10, made


@pytest.mark.parametrize(("kind", "name"), [("text", name) for name in TEXTS] + [("array", name) for name in ARRAYS])
def test_what_never_comes_back_is_not_rested_on(kind: str, name: str) -> None:
    fn = (TEXTS if kind == "text" else ARRAYS)[name]
    torchdynamo.reset()
    backend, x = Counting(), torch.rand(4)
    compiled, made = torchdynamo.compile(fn, backend=backend), []
    for value in values_of(kind):
        before = len(backend.graphs)
        assert same(compiled(x, value), fn(x, value)), value
        made.append(len(backend.graphs) - before)
    assert not any(made[10:]) and sum(made) <= 10, made


def test_texts_that_come_back_have_versions() -> None:
    backend, x = Counting(), torch.rand(4)

    def reduced(x, how):
        return x.mean() if how == "mean" else x.sum() if how == "sum" else x.amax() if how == "max" else x

    torchdynamo.reset()
    compiled = torchdynamo.compile(reduced, backend=backend)
    for _ in range(5):
        for how in ("mean", "sum", "max", "none"):
            for _ in range(3):
                assert torch.equal(compiled(x, how), reduced(x, how))
    assert len(backend.graphs) == 3
    assert len(torchdynamo.eval_frame.cache_entries(reduced)) == 4


@pytest.mark.parametrize(("operators", "versions"), [(1, 2), (20, 6)])
def test_versions_that_are_used_pay_for_others(operators: int, versions: int) -> None:
    """The more, the more is in them."""
    backend, x = Counting(), torch.arange(4)

    def scaled(x, items):
        for _ in range(operators):
            x = x + len(items)
        return x

    torchdynamo.reset()
    with torchdynamo.optimize(backend):
        for n in range(6):
            for _ in range(30):
                assert torch.equal(scaled(x, (0,) * n), x + n * operators)
    assert len(backend.graphs) == versions


@pytest.mark.parametrize("settled", [True, False])
def test_what_first_comes_late_is_compiled_when_it_comes_again(settled: bool) -> None:
    """Until then nothing is compiled for what it calls either. A program that still compiles has not settled."""
    backend, x = Counting(), torch.rand(4)

    def halved(x):
        return x * 0.5

    def reduced(x, how):
        y = halved(x) if how == "halved" else getattr(x, how)()
        return y.sin().cos().sin().cos().sin().cos().sin().cos()

    def others(x):
        return x.tan()

    def versions(function: Callable[..., Any]) -> int:
        return len(torchdynamo.eval_frame.cache_entries(function))

    torchdynamo.reset()
    made = []
    with torchdynamo.optimize(backend):
        for _ in range(10):
            others(x)
            reduced(x, "mean")
            reduced(x, "sum")
        if not settled:
            others(x.double())
        for _ in range(100):
            assert torch.equal(reduced(x, "halved"), (x * 0.5).sin().cos().sin().cos().sin().cos().sin().cos())
            made.append((versions(reduced), versions(halved)))
    assert made[-1] == (3, 0)
    assert {of_callee for _, of_callee in made} == {0}
    waited = made.index((3, 0))
    assert waited > budget.CALLS if settled else waited == 0


def test_functions_that_compute_with_numbers_alone_stay_python() -> None:
    backend = Counting()

    def box(size, share):
        side = int(size * share)
        left = np.clip(random.randrange(size) - side // 2, 0, size)
        top = np.clip(random.randrange(size) - side // 2, 0, size)
        return left, top, left + side, top + side

    torchdynamo.reset()
    with torchdynamo.optimize(backend):
        for n in range(20):
            assert len(box(32, n / 20)) == 4
    assert len(backend.graphs) <= 3


def test_what_is_tried_again_takes_a_twentieth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(budget, "credit", budget.Credit(lambda: now[0]))
    backend, x = Counting(), torch.rand(4)

    def scaled(x, items):
        return x * len(items)

    torchdynamo.reset()
    made = []
    with torchdynamo.optimize(backend):
        for n in range(600):
            assert torch.equal(scaled(x, (0,) * n), x * n)
            if n == 300:
                now[0] += 1000.0
            made.append(len(backend.graphs))
    assert made[300] == 2
    assert 2 < made[599] < 6


def test_functions_without_an_operator_stay_python() -> None:
    backend, x = Counting(), torch.rand(4)

    def chosen(x, n):
        return x if n else (x, 1)

    torchdynamo.reset()
    with torchdynamo.optimize(backend):
        for n in range(10):
            assert chosen(x, n % 2) is not None
    assert torchdynamo.eval_frame.cache_entries(chosen) == []
    assert not backend.graphs


# -- what is said of it ------------------------------------------------------------------------------------------------
def test_what_is_not_compiled_any_more_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def scaled(x, items):
        return x * len(items)

    torchdynamo.reset()
    with caplog.at_level("INFO", "torchdynamo.recompiles"), torchdynamo.optimize("eager"):
        for n in range(9):
            scaled(torch.ones(2), (0,) * n)
    (text,) = (record.message for record in caplog.records if "costs more than it saves" in record.message)
    assert "scaled" in text and "was compiled 2 times" in text and "items length" in text


@pytest.mark.parametrize("folder", ["site-packages", "mine"])
def test_the_limit_is_a_warning_about_the_programs_own_functions(
    folder: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    """What an installed package does is in the log."""
    names: dict[str, Any] = {}
    source = "def scaled(x, items):\n    return x * len(items)\n"
    exec(compile(source, str(tmp_path / folder / "package" / "module.py"), "exec"), names)
    torchdynamo.reset()
    compiled = torchdynamo.compile(names["scaled"], backend="eager")
    with caplog.at_level("INFO", "torchdynamo.recompiles"):
        for n in range(12):
            compiled(torch.ones(2), (0,) * n)
    recompiles = [record for record in caplog.records if record.name == "torchdynamo.recompiles"]
    logged = [record for record in recompiles if "cache_size_limit" in record.message]
    warned = [each for each in recwarn if each.category is CacheLimitWarning]
    assert (len(logged), len(warned)) == ((1, 0) if folder == "site-packages" else (0, 1))
