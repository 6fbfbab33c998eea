"""What is said when a function is compiled once more: what changed, what varies now, and which line decides."""

from __future__ import annotations

import logging
import re
import warnings
from types import CodeType
from typing import Any

import pytest
import torch
from counting import Counting

import torchdynamo
from torchdynamo.errors import CacheLimitWarning
from torchdynamo.eval_frame import cache_entries, callback_active
from torchdynamo.pipeline import Compiler


def branching(x: Any, k: Any) -> Any:
    if x.shape[0] > 6:
        x = x + 1
    return x * k


def each_row(x: Any) -> Any:
    return [x + i for i in range(x.shape[0])]


LIMIT = torch.tensor(3)


def compared(x: Any) -> Any:
    return x + 1 if (x.shape[0] - LIMIT) // 2 > 1 else x * 2


def ones(*lengths: int) -> list[Any]:
    return [torch.ones(length, 2) for length in lengths]


def test_explain_lists_symbols_and_the_lines_that_decide() -> None:
    report = torchdynamo.explain(branching, dynamic=True)(torch.ones(5, 2), 3)
    assert [(number.name, str(number.source), number.bounds) for number in report.symbols] == [
        ("s0", "x.size(0)", "0 to 6"),
        ("s1", "x.size(1)", "at least 0"),
        ("s2", "k", "any"),
    ]
    (decision,) = report.decisions
    line = branching.__code__.co_firstlineno + 1
    assert decision.fact == "x.size(0) <= 6" and decision.position.line == line
    lines = [text.strip() for text in str(report).splitlines()]
    at = lines.index("Specializations")
    carets = "^^^^^^^^^^^^^^" if hasattr(CodeType, "co_positions") else "^^^^^^^^^^^^^^^^^^"  # 3.10 knows the line
    assert lines[at + 2 : at + 4] == ["if x.shape[0] > 6:", carets]


def test_what_a_line_fixes_does_not_vary(caplog: pytest.LogCaptureFixture) -> None:
    compiled = torchdynamo.compile(each_row, backend="eager")
    with caplog.at_level(logging.INFO, "torchdynamo.recompiles"):
        for x in ones(5, 1, 3):
            compiled(x)
    for record, size in zip(caplog.records, (1, 3), strict=True):
        assert "what varies" not in record.getMessage()
        assert f"decides: x.size(0) == {size}" in record.getMessage()


def test_what_keeps_sizes_constant_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """With a symbol the graph would end at the comparison: some versions of constants are better."""
    compiled = torchdynamo.compile(compared, backend="eager")
    with caplog.at_level(logging.INFO, "torchdynamo.recompiles"):
        for x in ones(5, 7):
            compiled(x)
    (text,) = [record.getMessage() for record in caplog.records]
    line = compared.__code__.co_firstlineno + 1
    assert "x is static: where it varies, " in text and f"{__file__}:{line})" in text
    assert "(x.shape[0] - LIMIT) // 2 > 1 else" in text and "^^^^" in text


def test_recompiles_are_explained(caplog: pytest.LogCaptureFixture) -> None:
    compiled = torchdynamo.compile(branching, backend="eager")
    with caplog.at_level(logging.INFO, "torchdynamo.recompiles"):
        for x, k in zip(ones(5, 7, 3, 4), (1, 1, 1, 2)):
            compiled(x, k)
    size, side, number = [record.getMessage() for record in caplog.records]
    assert "x.size(): (5, 2) -> (7, 2)" in size
    assert "what varies from now on: x.size(0) (s0, at least 7)" in size
    assert "is compiled again: x.size(0) > 6 -> x.size(0) = 3" in side
    assert "    if x.shape[0] > 6:\n" in side and "^^^^^^^^^^^^^^" in side
    assert "k: 1 -> 2" in number and "k (s1, any)" in number


def test_a_number_that_must_stay_fixed_says_which_line_asks(caplog: pytest.LogCaptureFixture) -> None:
    compiled = torchdynamo.compile(each_row, backend="eager")
    with caplog.at_level(logging.INFO, "torchdynamo.recompiles"):
        for x in ones(2, 3):
            compiled(x)
    (record,) = caplog.records
    assert "decides: x.size(0) == 3" in record.getMessage() and "range(x.shape[0])" in record.getMessage()


def statics(*sizes: int) -> list[torch.Tensor]:
    found = ones(*sizes)
    for each in found:
        torchdynamo.mark_static(each, 0)
    return found


@pytest.mark.parametrize(
    ("fn", "calls", "dynamic", "remedy"),
    [
        (lambda x: x + 1, [(x,) for x in ones(2, 3)], None, "torchdynamo.mark_dynamic(x, 0)"),
        (lambda x, k: x + k, [(torch.ones(2), k) for k in (2, 3)], None, 'dynamic_sources = "k"'),
        (lambda x: x + 1, [(x,) for x in ones(2, 3)], False, "dynamic=None, the default, makes that a symbol"),
        (lambda x, k: x + k, [(torch.ones(2), k) for k in (2, 3)], False, "dynamic=None, the default, makes that"),
        (lambda x: x + 1, [(x,) for x in statics(2, 3)], True, "mark_static has been said of x"),
        (each_row, [(x,) for x in ones(*range(2, 5))], None, "so each answer needs its own version"),
        (lambda x, s: x + len(s), [(torch.ones(2), s) for s in ("a", "b")], None, "Each string needs its own version"),
        (lambda x, s: x + 1 if s else x, [(torch.ones(2), s) for s in (True, False)], None, "Each side of a flag"),
        (lambda x: x + 1, [(torch.ones(2, dtype=d),) for d in (torch.int32, torch.int64)], None, "to one dtype"),
        (lambda x, f: f(x), [(torch.ones(2), f) for f in (torch.sin, torch.cos)], None, "Define the function once"),
    ],
)
def test_the_limit_names_what_would_help(fn: Any, calls: list[Any], dynamic: bool | None, remedy: str) -> None:
    compiled = torchdynamo.compile(fn, backend="eager", dynamic=dynamic)
    with torchdynamo.config.patch(cache_size_limit=len(calls) - 1):
        for args in calls[:-1]:
            compiled(*args)
        with pytest.warns(CacheLimitWarning, match=re.escape(remedy)):
            compiled(*calls[-1])


def test_a_source_may_be_named_as_torch_compile_names_it() -> None:
    backend = Counting()
    with torchdynamo.config.patch(dynamic_sources="L['x'], L['k']"):
        compiled = torchdynamo.compile(lambda x, k: x * k, backend=backend)
        for size in (5, 7, 1, 0):
            assert torch.equal(compiled(torch.ones(size), size + 2), torch.ones(size) * (size + 2))
    assert len(backend.graphs) == 1


def test_over_the_limit_it_is_asked_rarely() -> None:
    """A limit that is raised is noticed all the same, after some calls."""
    asked = []

    class Asking(Compiler):
        def __call__(self, frame: Any, cache_entry: Any, frame_state: Any) -> Any:
            asked.extend(frame.f_locals.keys() & {"name"})
            return super().__call__(frame, cache_entry, frame_state)

    def named(x: torch.Tensor, name: str) -> torch.Tensor:
        for _ in range(8):
            x = x + 1
        return x + len(name) - 8

    compiler = Asking("eager")
    with torchdynamo.config.patch(cache_size_limit=2), warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheLimitWarning)
        with callback_active(compiler):
            assert [named(torch.zeros(1), "a" * n).item() for n in range(300)] == list(range(300))
    assert 15 < len(asked) < 40
    with callback_active(compiler):
        for n in range(100):
            named(torch.zeros(1), "b" * n)
    assert len(cache_entries(named)) > 2
