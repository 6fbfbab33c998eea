"""The HTML page of a report: what it holds, and what of other people's texts it must not do."""

from __future__ import annotations

import json
import re

import pytest
from report_sample import graph_break, recompile, report

from torchdynamo.report.page import page
from torchdynamo.report.page.contents import skips
from torchdynamo.report.page.packing import pack
from torchdynamo.report.page.wording import duration

BAD = ["</script><img src=x onerror=alert(1)>", "{{ 7 * 7 }}", "{% raise %}", "a\0b", "a\u202eb\u2028c", "y" * 100_000]


def test_a_large_report_is_a_small_file():
    breaks = [graph_break(line=line) for line in range(1, 301)]
    assert len(page(report(300, breaks=breaks, recompiles=[recompile()] * 300)).encode()) < 1_000_000


def test_a_version_that_is_no_longer_in_use_is_shown():
    built = report(1)
    built["functions"][0]["versions"][0]["calls"] = None
    assert "no longer in use" in page(built)


def test_reasons_about_the_program_come_first():
    rows = [{**report(0)["skips"][0], "slug": slug, "title": slug, "count": count} for slug, count in
            (("stdlib", 70), ("no-tensors", 2), ("coroutine", 3))]  # fmt: skip
    built = report(0, skips=rows)
    assert [each["slug"] for each in skips(built)] == ["coroutine", "no-tensors", "stdlib"]
    assert "Most often: coroutine" in page(built)


@pytest.mark.parametrize(
    "value",
    [
        [],
        [{}, {}],
        [{"a": []}, {"a": []}],
        [{"a": [{"b": 1}, {"b": 2}]}, {"a": [{"b": 1}]}, {"a": []}],
        [{"a": {"b": [1, 2]}}] * 9,
        [{"a": None}, {"a": "x"}, {"a": 1.5}] * 5,
        [{"a": [[1], [2, 3]]}, {"a": [[]]}],
    ],
)
def test_packed_data_is_whole(value):
    assert unpacked(json.loads(json.dumps(pack(value)))) == value


def unpacked(value):
    """The counterpart of `pack`, as page.js has it."""
    if isinstance(value, list):
        return [unpacked(each) for each in value]
    if not isinstance(value, dict):
        return value
    if [*value] == ["columns"]:
        columns = {key: cells(column) for key, column in value["columns"].items()}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return {key: unpacked(each) for key, each in value.items()}


def cells(column):
    if isinstance(column, list):
        return unpacked(column)
    if "lengths" in column:
        items = iter(unpacked(column["items"]))
        return [[next(items) for _ in range(length)] for length in cells(column["lengths"])]
    return [unpacked(column["values"][at]) for at in column["at"]]


@pytest.mark.parametrize("bad", BAD, ids=["script", "braces", "block", "nul", "direction", "long"])
def test_texts_of_the_program_are_only_text(bad):
    broken = graph_break(source=bad, text=bad, hint=bad, function=bad, url="javascript:alert(1)", slug=bad)
    text = page(report(2, title=bad, breaks=[broken], recompiles=[recompile(old=bad, new=bad, text=bad)]))
    assert "<img" not in text and "javascript:alert(1)" not in text.split('id="data"')[0]
    assert text.count("</script>") == 2
    assert not re.search("[\0\u202e\u2028]", text)
    assert ">49<" not in text


def test_redacted_pages_have_no_strings_of_the_program(tmp_path):
    file = tmp_path / "model.py"
    file.write_text('def forward(x):\n    key = "tops3cret"  # tops3cret too\n    if x.isnan():\n        return x\n')
    broken = graph_break(str(file), 3, source="if x.isnan():", text="cfg['tops3cret'] is a tensor's key")
    changed = recompile(old="'tops3cret", new="Key(tops3cret)", text="n was Key(tops3cret)", hint="'tops3cret'")
    built = report(1, str(file), breaks=[broken], recompiles=[changed])
    built["environment"]["variables"]["TORCHDYNAMO_REPORT"] = "tops3cret"
    assert "tops3cret" in page(built)
    redacted = page(built, redact=True)
    assert "tops3cret" not in redacted
    assert "is a tensor&#39;s key" in redacted


def test_a_stretch_that_begins_in_a_string_is_colored_and_redacted_as_what_it_is(tmp_path):
    file = tmp_path / "model.py"
    told = "".join(f"    tops3cret {line}\n" for line in range(9))
    file.write_text(f'def forward(x):\n    """Told.\n{told}    """\n    if x.isnan():\n        return x\n')
    broken = graph_break(str(file), 13, source="if x.isnan():")
    text = page(report(0, breaks=[broken]))
    assert '<span class="tk">if</span> x.isnan():' in text
    assert '<span class="ts">    tops3cret 8</span>' in text
    redacted = page(report(0, breaks=[broken]), redact=True)
    assert "tops3cret" not in redacted
    assert '<span class="tk">if</span> x.isnan():' in redacted


def test_functions_that_stay_python_are_marked_in_their_file(tmp_path):
    file = tmp_path / "model.py"
    file.write_text("def forward(x):\n    return x.sin()\n\n\ndef load():\n    return 3\n")
    skipped = {**report(0)["skips"][0], "functions": [f"load ({file}:5)"]}
    text = page(report(1, str(file), skips=[skipped]))
    assert '<div id="f0-6" class="line python">' in text
    assert '<div id="f0-2" class="line graph">' in text


def test_the_page_says_what_is_wrong_with_a_source(tmp_path):
    file = tmp_path / "model.py"
    assert "The source is not here." in page(report(1, str(file)))
    file.write_text("def forward(x):\n    if x.isnan():\n        return x\n")
    assert "changed" not in page(report(0, breaks=[graph_break(str(file), 2, source="if x.isnan():")]))
    assert "The file has changed" in page(report(0, breaks=[graph_break(str(file), 2, source="while x.isnan():")]))


def test_files_that_are_no_python_are_not_opened(tmp_path):
    file = tmp_path / "passwords.txt"
    file.write_text("one\ntwo\n")
    text = page(report(1, breaks=[graph_break(str(file), 2, source="two")]))
    assert "This is no Python file" in text and ">one<" not in text


def test_the_verdict_names_what_to_look_at_first():
    assert "Nothing to change" in page(report(1))
    assert "Nothing was compiled." in page(report(0))
    assert "Start with" in page(report(1, breaks=[graph_break()]))
    problem = {"kind": "limit", "filename": "/m.py", "line": 4, "function": "f", "text": "8 versions", "count": 1}
    verdict = page(report(1, breaks=[graph_break()], problems=[problem])).split('class="verdict bad">')[1]
    assert verdict.startswith("Start with <a href='#worst-0'>m.py:4</a>: limit in f")


def test_numbers_that_json_has_not_are_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        page(report(1, breaks=[graph_break(microseconds=float("nan"))]))


def test_durations_have_the_unit_that_suits_them():
    shown = [duration(value) for value in (0, 1e-6, 0.0009125, 0.0182, 1.25, 62.1, 5000)]
    assert shown == ["0 µs", "1.00 µs", "912 µs", "18.2 ms", "1.25 s", "62.1 s", "5,000 s"]
