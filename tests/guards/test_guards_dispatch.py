"""Many versions of one function: the right one runs, in whatever order they are called, and after some are dropped."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo import _native, config
from torchdynamo.report.explain import collecting

DTYPES = [
    torch.float32,
    torch.float64,
    torch.int32,
    torch.int64,
    torch.int8,
    torch.uint8,
    torch.float16,
    torch.bfloat16,
]
COUNT = 64


class Scaled(torch.nn.Module):
    def __init__(self, by: int) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.by


def by_number(x: torch.Tensor, by: Any) -> torch.Tensor:
    return x * by


def by_text(x: torch.Tensor, text: str) -> torch.Tensor:
    return x * len(text)


def by_kind(x: torch.Tensor) -> Any:
    return x + 1, x.dtype, x.shape


def by_module(module: Any, x: torch.Tensor) -> Any:
    return module(x)


X = torch.arange(3.0)
CASES: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
    "int": (by_number, lambda i: (X, i)),
    "float": (by_number, lambda i: (X, i + 0.5)),
    "str": (by_text, lambda i: (X, "w" * i)),
    "shape": (by_kind, lambda i: (torch.ones(i + 1),)),
    "dtype": (by_kind, lambda i: (torch.ones(i // 8 + 1, dtype=DTYPES[i % 8]),)),
}
MODULES = [Scaled(i) for i in range(COUNT)]
CASES["module"] = by_module, lambda i: (MODULES[i], X)


class Box:
    def __init__(self, by: Any) -> None:
        self.by = by


def by_attribute(box: Any, x: torch.Tensor) -> torch.Tensor:
    return x * box.by.by


def by_item(items: Any, x: torch.Tensor) -> torch.Tensor:
    return x * items[0]["by"] + len(items)


def by_class(thing: Any, x: torch.Tensor) -> torch.Tensor:
    return x * thing.by


def by_cell(number: int) -> Any:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return x + number

    return inner


CLASSES = [type("Kind", (), {"by": i}) for i in range(COUNT)]
CASES["attribute"] = by_attribute, lambda i: (Box(Box(i)), X)
CASES["item"] = by_item, lambda i: ([{"by": i % 16}] * (i // 16 + 1), X)
CASES["class"] = by_class, lambda i: (CLASSES[i](), X)
CASES["nan"] = by_number, lambda i: (X, float("nan") if i == 0 else float(i))
CASES["tuple"] = by_item, lambda i: (({"by": i},), X)


@pytest.mark.parametrize("name", CASES)
def test_each_call_finds_its_version(name: str) -> None:
    fn, args = CASES[name]
    compiled = torchdynamo.compile(fn, backend="eager", dynamic=False)
    order = list(range(COUNT))
    with config.patch(cache_size_limit=COUNT), collecting() as events:
        for _ in range(3):
            random.Random(name).shuffle(order)
            for i in order:
                assert repr(compiled(*args(i))) == repr(fn(*args(i)))
        assert len(events) == COUNT


def test_cells_tell_versions_apart() -> None:
    functions = [torchdynamo.compile(by_cell(i), backend="eager", dynamic=False) for i in range(COUNT)]
    with config.patch(cache_size_limit=COUNT), collecting() as events:
        for _ in range(3):
            for i in random.Random(0).sample(range(COUNT), COUNT):
                assert torch.equal(functions[i](X), X + i)
        assert len(events) == COUNT


def test_guards_in_python_among_others() -> None:
    """They may drop what the hook is looking through."""
    install = torchdynamo.eval_frame
    compiled = torchdynamo.compile(by_number, backend="eager", dynamic=False)
    for by in range(4):
        compiled(X, by)

    def check(f_locals: dict[str, Any]) -> bool:
        _native.clear_code(by_number.__code__)
        return False

    owner = next(iter(_native.cache_entries(by_number.__code__))).owner_id
    entry = _native.Entry(by_number.__code__, check, owner_id=owner)
    _native.keep_entry(by_number.__code__, entry)
    assert isinstance(install.cache_entries(by_number), list)
    for by in range(4, 8):
        assert torch.equal(compiled(X, by), X * by)


def test_a_version_that_was_dropped_is_not_run() -> None:
    compiled = torchdynamo.compile(by_number, backend="eager", dynamic=False)
    for _ in range(2):
        for by in range(4):
            compiled(X, by)
    served = {entry.hits: entry for entry in _native.cache_entries(by_number.__code__)}
    _native.clear_code(by_number.__code__)
    before = {id(entry): entry.hits for entry in served.values()}
    for by in range(4):
        assert torch.equal(compiled(X, by), X * by)
    assert all(entry.hits == before[id(entry)] and not entry.live for entry in served.values())
    assert len(_native.cache_entries(by_number.__code__)) == 4


def test_versions_may_change_what_they_look_like() -> None:
    """What the guess was made from is the same, and another version fits: the guards say so."""
    module = Scaled(2)
    compiled = torchdynamo.compile(by_module, backend="eager", dynamic=False)
    for by in (2, 3, 2, 5, 3, 2):
        module.by = by
        assert torch.equal(compiled(module, X), X * by)
        assert torch.equal(compiled(module, X), X * by)
