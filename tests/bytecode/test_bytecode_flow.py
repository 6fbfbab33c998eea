"""Loops, live locals, and locals that may be unset, against slower ways to find them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

import pytest

from torchdynamo.bytecode.bound import maybe_unbound
from torchdynamo.bytecode.decode import decode
from torchdynamo.bytecode.flow import loops, reachable, successors
from torchdynamo.bytecode.instruction import Code
from torchdynamo.bytecode.liveness import READS, SETS, live_locals

MODULES = ["argparse", "base64", "calendar", "configparser", "difflib", "json.decoder", "shlex", "textwrap", "tokenize"]


def functions(module: str) -> Iterator[CodeType]:
    for value in vars(importlib.import_module(module)).values():
        for function in (value, *vars(value).values()) if isinstance(value, type) else (value,):
            if isinstance(function, FunctionType):
                yield function.__code__


def onward(code: Code) -> Callable[[int], tuple[int, ...]]:
    normal = successors(code)

    def step(index: int) -> tuple[int, ...]:
        region = code.lookup(index)
        return normal[index] if region is None else (*normal[index], region.handler)

    return step


def reads_first(code: Code, start: int, name: str) -> bool:
    """By walking from `start` until the name is set."""
    seen, waiting = set(), [start]
    step = onward(code)
    while waiting:
        index = waiting.pop()
        if index in seen:
            continue
        seen.add(index)
        row = code.instructions[index]
        if row.op in READS and row.arg == name:
            return True
        region = code.lookup(index)
        if row.op in SETS and row.arg == name:
            waiting += [] if region is None else [region.handler]
        else:
            waiting += step(index)
    return False


@pytest.mark.parametrize("module", MODULES)
def test_live_locals(module: str) -> None:
    checked = 0
    for raw in functions(module):
        code = decode(raw)
        for index in range(0, min(len(code.instructions), 300), 17):
            expected = {name for name in raw.co_varnames if reads_first(code, index, name)}
            assert live_locals(code, index) == expected, (raw, index)
            checked += 1
    assert checked > 30


@pytest.mark.parametrize("module", MODULES)
def test_loops(module: str) -> None:
    """A loop's instructions come round again, and no instruction outside every loop does."""
    for raw in functions(module):
        code = decode(raw)
        step = onward(code)
        live = reachable([0], step)
        coming_round = {index for index in live if index in reachable(step(index), step)}
        inside = set().union(*(loop.body for loop in loops(code)))
        assert coming_round <= inside, raw
        for loop in loops(code):
            assert loop.start in coming_round
            assert loop.end in loop.body
            assert loop.start <= loop.end
            assert loop.start in code.targets.values()


def line_numbers(function: Any) -> list[set[int]]:
    code = decode(function.__code__)
    first = function.__code__.co_firstlineno
    found = []
    for loop in loops(code):
        found.append({line - first for index in loop.body if (line := code.line(index)) is not None})
    return found


def test_lines_of_loops() -> None:
    def work(xs: Any, n: Any) -> Any:
        total = 0
        for x in xs:
            try:
                total += x
            except ValueError:
                n += 1
                continue
            with n as q:
                total += q
            if total > 3:
                n = n + total
                return n  # noqa: RET504
            while n:
                n -= 1
        else:
            total = 5
        try:
            total += 1
        except KeyError:
            n = 3
        return [total for _ in ()] and n

    outer, inner = line_numbers(work)[:2]
    assert outer == {*range(2, 15)}
    assert inner <= {13, 14}


def test_no_loops() -> None:
    def work(n: Any) -> Any:
        try:
            with n:
                n += 1
        except ValueError:
            n = 2
        return n

    assert loops(decode(work.__code__)) == []


def test_handlers_keep_locals_alive() -> None:
    def work(x: Any, y: Any) -> Any:
        try:
            x = y()
        except ValueError:
            return x
        return 1

    code = decode(work.__code__)
    first = next(index for index, row in enumerate(code.instructions) if row.op == "LOAD_FAST")
    assert live_locals(code, first) == {"x", "y"}


def test_maybe_unbound() -> None:
    def work(a: Any, c: Any) -> Any:
        if a:
            b = a
        a, b
        del a
        for d in c:
            try:
                e = d()
            except ValueError:
                e, d
            else:
                e
        return a, c, d  # noqa: F821

    items = decode(work.__code__).items()
    shaky = [items[index].arg for index in sorted(maybe_unbound(items, ["a", "c"]))]
    assert sorted(shaky) == ["a", "b", "d", "e"]
