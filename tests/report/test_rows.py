"""Rows of a report: the calls of one step, and functions that stayed Python."""

from __future__ import annotations

import itertools

import pytest

from torchdynamo.events import Place
from torchdynamo.report.rows import LISTED, one_step
from torchdynamo.report.summary import report_of
from torchdynamo.report.timing import GraphCall


def calls_of(text: str) -> list[GraphCall]:
    """Calls of graphs with one letter each, in lower case in another thread."""
    return [GraphCall(each.upper(), at, at + 0.5, int(each.islower())) for at, each in enumerate(text)]


@pytest.mark.parametrize(
    ("calls", "step"),
    [("", ""), ("ABC", "ABC"), ("ABCABCABC", "ABC"), ("XABBCABBC", "ABBC"), ("AAA", "A"), ("ABcCAbC", "AbC")],
)
def test_a_step_is_what_ran_since_the_last_graph_ran_before(calls: str, step: str) -> None:
    found = one_step(calls_of(calls))
    assert [each.graph for each in found] == list(step.upper())
    assert all(one.started < other.started for one, other in itertools.pairwise(found))


def test_of_the_functions_that_stay_python_the_first_are_named_and_all_are_counted() -> None:
    skipped = [("no tensors", Place("m.py", line, f"f{line}")) for line in range(1, 51)]
    report = report_of([], skipped=[*skipped, ("stdlib", Place("re.py", 7, "compile"))])
    (many, one) = report["skips"]
    assert many["functions"] == [f"f{line} (m.py:{line})" for line in range(1, LISTED + 1)]
    assert (many["slug"], many["count"], report["totals"]["skips"]) == ("no-tensors", 50, 51)
    assert (one["functions"], one["count"]) == (["compile (re.py:7)"], 1)
