"""`python -m torchdynamo diff`, on reports of programs that were run, and how rows of two reports are matched."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from apart import command_in_a_fork
from report_sample import graph_break, recompile, report

from torchdynamo.__main__ import main
from torchdynamo.report.difference import difference

PROGRAM = """
import torch

def first(x, scale):
    y = x.sin()
    if y.sum() > 0:
        y = y.cos()
    return y * scale

def second(x):
    y = x.exp()
    if y.sum() > 1000:
        return x
    return y + 1

for turn in range(4):
    x = torch.ones(3)
    first(x, 2)
    second(x)
"""
WITHOUT_SECOND_BREAK = PROGRAM.replace(
    "    if y.sum() > 1000:\n        return x\n    return y + 1\n",
    "    return torch.where(y.sum() > 1000, x, y + 1)\n",
)
Saved = Callable[[str, str], Path]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """Run a program in a folder of its own and return the file with its report."""

    def run(name: str, program: str) -> Path:
        folder = tmp_path_factory.mktemp(name)
        (folder / "program.py").write_text(program)
        line = ("run", "--backend", "eager", "--quiet", "--report", "out.json", "program.py")
        assert command_in_a_fork(*line, cwd=folder).returncode == 0
        return folder / "out.json"

    return run


@pytest.fixture(scope="module")
def plain(saved: Saved) -> Path:
    return saved("plain", PROGRAM)


def compared(capsys: pytest.CaptureFixture[str], *given: object) -> tuple[int, Any]:
    """The exit status and what `diff --json` printed."""
    status = main(["diff", "--json", *map(str, given)])
    return status, json.loads(capsys.readouterr().out)


def changes(rows: list[dict[str, Any]]) -> list[tuple[str, str, int]]:
    return [(row["change"], row["function"], row["line"]) for row in rows]


def line_of(text: str, program: str = PROGRAM) -> int:
    return next(number for number, line in enumerate(program.splitlines(), 1) if text in line)


def test_two_runs_of_one_program_are_the_same(plain: Path, saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    again = saved("again", PROGRAM)
    status, found = compared(capsys, "--fail-on", "breaks,recompiles,fallback,limits", plain, again)
    assert status == 0
    for kind, number in (("breaks", 2), ("recompiles", 0), ("problems", 0), ("functions", 2)):
        assert [row["change"] for row in found[kind]] == ["same"] * number
    assert found["operators"] == [] and found["environment"] == []
    assert all("seconds" in row["name"] for row in found["totals"] if row["before"] != row["after"])
    assert main(["diff", str(plain), str(again)]) == 0
    assert "program.py -> program.py: the same was compiled" in capsys.readouterr().out


def test_lines_that_move_are_the_same_lines(plain: Path, saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    moved = saved("moved", PROGRAM.replace("import torch\n", "import torch\n\n# more\n# lines\n"))
    status, found = compared(capsys, "--fail-on", "breaks", plain, moved)
    assert status == 0
    assert [(row["line_before"], row["line"]) for row in found["breaks"]] == [
        (line, line + 3) for line in (row["line_before"] for row in found["breaks"])
    ]
    assert {row["line_before"] for row in found["breaks"]} == {line_of("y.sum() > 0"), line_of("y.sum() > 1000")}


def test_a_break_that_appears_fails_and_one_that_goes_does_not(
    plain: Path, saved: Saved, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = saved("whole", WITHOUT_SECOND_BREAK)
    status, found = compared(capsys, "--fail-on", "breaks", whole, plain)
    assert status == 1
    line = line_of("y.sum() > 1000")
    assert changes(found["breaks"]) == [("appeared", "second", line), ("same", "first", line_of("y.sum() > 0"))]
    assert found["breaks"][0]["after"]["calls"] == 4
    assert changes(found["functions"])[0] == ("changed", "second", line_of("def second"))
    assert found["functions"][0]["before"]["graphs"] == 1
    assert {"name": "where", "before": 1, "after": None} in found["operators"]

    assert main(["diff", "--fail-on", "breaks", str(whole), str(plain)]) == 1
    shown = capsys.readouterr()
    assert "Breaks: 1 appeared, 1 break the same" in shown.out
    assert f"+ program.py:{line} in second   x1 per call   [TD101 data-dependent-branch]" in shown.out
    assert "torch.where" in shown.out
    assert shown.err == "python -m torchdynamo diff: 1 break appeared\n"

    assert main(["diff", "--fail-on", "breaks", str(plain), str(whole)]) == 0
    shown = capsys.readouterr()
    assert f"- program.py:{line} in second" in shown.out
    assert len(shown.out.splitlines()) < 40


def test_recompiles_that_appear_fail(plain: Path, saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    text = PROGRAM.replace("first(x, 2)", "first(x, 2 if turn < 2 else 'scale')").replace(
        "y * scale", "y * 2 if scale == 'scale' else y * scale"
    )
    again = saved("recompiled", text)
    status, found = compared(capsys, "--fail-on", "recompiles", plain, again)
    assert status == 1
    assert [(row["change"], row["function"], row["what"]) for row in found["recompiles"]] == [
        ("appeared", "first", "scale")
    ]
    assert compared(capsys, "--fail-on", "breaks", plain, again)[0] == 0
    assert compared(capsys, "--fail-on", "recompiles", again, plain)[0] == 0


def test_fallbacks_that_appear_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem = {"kind": "fallback", "filename": "m.py", "line": 3, "function": "f", "text": "it failed", "count": 1}
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text(json.dumps(report(1)))
    after.write_text(json.dumps(report(1, problems=[problem])))
    assert main(["diff", "--fail-on", "fallback", str(before), str(after)]) == 1
    assert main(["diff", "--fail-on", "limits", str(before), str(after)]) == 0
    assert "+ fallback  m.py:3 in f   it failed" in capsys.readouterr().out


def test_a_line_with_another_text_is_another_line() -> None:
    found = difference(
        report(0, breaks=[graph_break(line=8, source="if x.sum() > 0:")]),
        report(0, breaks=[graph_break(line=8, source="if x.isnan():")]),
    )
    assert [row["change"] for row in found["breaks"]] == ["appeared", "disappeared"]


def test_without_texts_the_number_of_the_line_decides() -> None:
    before = report(0, breaks=[graph_break(line=8, source="")])
    for line, change in ((8, ["same"]), (9, ["appeared", "disappeared"])):
        found = difference(before, report(0, breaks=[graph_break(line=line, source="")]))
        assert [row["change"] for row in found["breaks"]] == change


def test_equal_lines_of_a_function_are_counted() -> None:
    before = report(0, breaks=[graph_break(line=8), graph_break(line=20)])
    after = report(0, breaks=[graph_break(line=11), graph_break(line=23), graph_break(line=30)])
    found = difference(before, after)
    assert [(row["change"], row["line_before"], row["line"]) for row in found["breaks"]] == [
        ("appeared", None, 30),
        ("same", 8, 11),
        ("same", 20, 23),
    ]


def test_another_checkout_has_the_same_files() -> None:
    here, there = "/here/model.py", "/there/model.py"
    found = difference(
        report(2, here, breaks=[graph_break(here)], recompiles=[recompile(filename=here)]),
        report(2, there, breaks=[graph_break(there)], recompiles=[recompile(filename=there)]),
    )
    for kind in ("breaks", "recompiles", "functions"):
        assert {row["change"] for row in found[kind]} == {"same"}


def test_a_program_may_be_called_something_else() -> None:
    old, new = "/here/train.py", "/here/train_new.py"
    found = difference(
        report(2, old, breaks=[graph_break(old)], title="train.py"),
        report(2, new, breaks=[graph_break(new)], title="train_new.py"),
    )
    for kind in ("breaks", "functions"):
        assert {row["change"] for row in found[kind]} == {"same"}


def test_a_break_that_runs_more_often_has_changed() -> None:
    found = difference(
        report(0, breaks=[graph_break(per_call=1.0)]), report(0, breaks=[graph_break(per_call=6.0, microseconds=1.0)])
    )
    (row,) = found["breaks"]
    assert (row["change"], row["before"]["per_call"], row["after"]["per_call"]) == ("changed", 1.0, 6.0)


def test_skips_are_compared_by_function_unless_a_list_is_cut() -> None:
    def skip(*functions: str, count: int | None = None) -> dict[str, Any]:
        names = {"reason": "TD209", "slug": "no-tensors", "title": "no tensors", "url": ""}
        return {**names, "count": count or len(functions), "functions": list(functions)}

    found = difference(report(0, skips=[skip("f (m.py:3)")]), report(0, skips=[skip("f (m.py:5)", "g (m.py:9)")]))
    assert changes(found["skips"]) == [("appeared", "g", 9), ("same", "f", 5)]
    found = difference(report(0, skips=[skip("f (m.py:3)")]), report(0, skips=[skip("g (m.py:9)", count=70)]))
    (row,) = found["skips"]
    assert (row["before"], row["after"]) == ({"functions": 1}, {"functions": 70})


def test_a_file_that_is_no_report_is_told(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", str(plain), __file__]) == 2
    assert "is not JSON" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["diff", "--fail-on", "graphs", str(plain), str(plain)])
