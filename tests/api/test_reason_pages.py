"""Each reason has a page, whose first program meets the reason and whose second one is one graph without it."""

from __future__ import annotations

import contextlib
import io
import linecache
import runpy
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

import torchdynamo
from torchdynamo import _native
from torchdynamo.__main__ import main
from torchdynamo.cli.reason import PROGRAMS, page, programs_of
from torchdynamo.core.reasons import REASONS, Reason, pointer
from torchdynamo.events import skips
from torchdynamo.report.explain import collecting

DOCS = Path(__file__).parents[2] / "docs"
# What no program of a user's meets: a fault of ours, and a decision that rests on measured times.
WITHOUT_PROGRAMS = {"internal error", "seldom used"}
# The loop is left to Python for the break inside of it, and that is what is told.
TOLD_AS = {"loop with a break": "user graph break"}
PAGES = [row for row in REASONS.values() if row.id not in WITHOUT_PROGRAMS]


def codes(code: CodeType) -> Iterator[CodeType]:
    """All code of a program: its own, and that of its functions and classes."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from codes(inner)


class Ran:
    """What became of a program's functions: their reasons, and the number of graphs."""

    def __init__(self, row: Reason, number: int) -> None:
        source = programs_of((PROGRAMS / f"{row.slug}.md").read_text())[number]
        name = f"<{row.slug}-{number}>"
        linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
        program = compile(source, name, "exec")
        space: dict[str, Any] = {"__name__": "__main__"}
        torchdynamo.reset()
        printed = io.StringIO()
        with (
            contextlib.redirect_stdout(printed),
            torchdynamo.config.patch(cache_size_limit=torchdynamo.config.cache_size_limit),
            collecting() as events,
            warnings.catch_warnings(record=True) as log,
        ):
            warnings.simplefilter("always")
            try:
                exec(program, space)
            finally:
                torchdynamo.config.reset()
        told = [str(each.message) for each in log if issubclass(each.category, torchdynamo.exc.TorchDynamoWarning)]
        self.told = [*told, *filter(None, [printed.getvalue().strip()])]
        self.graphs = sum(event.graph is not None for event in events)
        self.breaks = {event.reason for event in events if event.reason}
        functions = [each.__code__ for each in space.values() if isinstance(each, FunctionType)]
        functions += [each for each in space.values() if isinstance(each, CodeType)]
        skipped = {_native.skip_reason(code) for code in [*codes(program), *functions]}
        self.skips = {each for each in skipped if isinstance(each, str)} | {reason for reason, _ in skips()}


@pytest.mark.parametrize("row", PAGES, ids=lambda row: row.slug)
def test_the_first_program_meets_the_reason(row: Reason) -> None:
    ran = Ran(row, 0)
    told = any(each.endswith(f"({pointer(row.id)})") for each in ran.told)
    assert TOLD_AS.get(row.id, row.id) in ran.breaks | ran.skips or told, (ran.breaks, ran.skips, ran.told)


@pytest.mark.parametrize("row", PAGES, ids=lambda row: row.slug)
def test_the_second_program_is_compiled_without_it(row: Reason) -> None:
    ran = Ran(row, 1)
    assert (ran.breaks, ran.told) == (set(), []) and row.id not in ran.skips
    assert ran.graphs > 0


def test_each_reason_has_its_two_programs() -> None:
    files = {path.stem: len(programs_of(path.read_text())) for path in PROGRAMS.glob("*.md")}
    assert files == {row.slug: 2 for row in PAGES}


def test_the_pages_of_the_documentation_are_those_of_the_table() -> None:
    """If not: `python docs/generate_reasons.py`."""
    script = runpy.run_path(str(DOCS / "generate_reasons.py"))
    assert {path.name: path.read_text() for path in (DOCS / "reasons").iterdir()} == script["pages"]()


@pytest.mark.parametrize("name", ["TD101", "td101", "data-dependent-branch", "data-dependent branch"])
def test_the_command_prints_a_page(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reason", name]) == 0
    assert capsys.readouterr().out == page(REASONS["data-dependent branch"])


def test_the_command_lists_all_reasons_and_suggests_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reason"]) == 0
    numbers = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert numbers == sorted(row.number for row in REASONS.values())
    assert main(["reason", "data-dependant-branch"]) == 2
    assert "did you mean data-dependent-branch?" in capsys.readouterr().err
