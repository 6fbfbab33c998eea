"""The printouts of `config.debug`, and the report of `explain`, on frames made by hand."""

from __future__ import annotations

import json
import re

import pytest
import torch

import torchdynamo
from torchdynamo.bytecode.versions import OUTLINES
from torchdynamo.core.source import Guard, Source, builtin, free, global_, instance_attr, local
from torchdynamo.report import debug, explain
from torchdynamo.report.explain import CompileEvent, Explanation


def difference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.sub(a, b)


def traced() -> torch.fx.GraphModule:
    return torch.fx.symbolic_trace(difference)


GUARDS = [Guard(local("a"), "TENSOR_MATCH"), Guard(global_("torch"), "FUNCTION_MATCH")]


def test_the_debug_printout(capsys) -> None:
    code = difference.__code__
    debug.print_frame("__compiled_fn_0", traced(), code, code, GUARDS)
    out = capsys.readouterr().out
    heading, columns, rule, first, *_ = out.splitlines()
    assert re.fullmatch(r"__compiled_fn_0 <eval_with_key>\.\d+.*", heading)
    assert columns.split() == ["opcode", "name", "target", "args", "kwargs"]
    assert set(rule) == {"-", " "}
    assert first.split() == ["placeholder", "a", "a", "()", "{}"]
    place = f"difference test_api_report.py {code.co_firstlineno}"
    assert f"\n\nORIGINAL BYTECODE {place}\n" in out
    assert f"\n\nMODIFIED BYTECODE {place}\n" in out
    assert out.count("LOAD_GLOBAL") == 2
    assert out.endswith("\n\nGUARDS:\n - local 'a' TENSOR_MATCH\n - global 'torch' FUNCTION_MATCH\n\n")


def test_a_frame_without_a_graph_is_printed_without_one(capsys) -> None:
    code = difference.__code__
    debug.print_frame(None, None, code, code, [])
    assert capsys.readouterr().out.startswith("ORIGINAL BYTECODE")


def test_guards_are_told_by_where_their_path_starts() -> None:
    sources = {
        "local 'self.layers'": instance_attr(local("self"), "layers"),
        "global 'CFG.flag'": instance_attr(global_("CFG"), "flag"),
        "builtin 'len'": builtin("len"),
        "free 'scale'": free("scale"),
    }
    assert [debug.place(source) for source in sources.values()] == list(sources)
    assert debug.guard_line(Guard(Source("globals"), "GLOBAL_STATE")) == "torch's state GLOBAL_STATE"


def steps(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    if y.sum() > 0:
        return y + 1
    return y - 1


def blocks(x: torch.Tensor) -> torch.Tensor:
    for _ in range(6):
        x = steps(x)
    return x


def report() -> Explanation:
    return torchdynamo.explain(blocks, calls=3)(torch.ones(3))


def test_an_explanation_adds_up() -> None:
    found = report()
    assert found.graph_count == len(found.graphs) == len(found.ops_per_graph)
    assert found.op_count == sum(found.ops_per_graph)
    assert found.graph_break_count == len(found.break_reasons)
    assert len(found.guards) == sum(len(event.guards) for event in found.compiled)
    assert found.seconds > 0


def test_breaks_are_counted_by_call_and_line() -> None:
    (row,) = report().to_dict()["breaks"]
    assert (row["line"], row["per_call"], row["calls"]) == (steps.__code__.co_firstlineno + 2, 6.0, 18)
    assert (row["source"], row["reason"]) == ("if y.sum() > 0:", "TD101")
    assert 0 < row["microseconds"] < 1e6


def test_an_explanation_can_be_read() -> None:
    text = str(report())
    assert text.startswith("blocks: ")
    assert f"test_api_report.py:{steps.__code__.co_firstlineno + 2} in steps   x6 per call   at most " in text
    assert "[TD101 data-dependent-branch]" in text
    assert "\n       if y.sum() > 0:\n" in text
    assert "torch.where" in text
    assert "\x1b" not in text


def test_guards_are_told_by_object() -> None:
    guards = [row for each in report().to_dict()["functions"] for row in each["versions"][0]["guards"]]
    assert [row["kinds"] for row in guards if row["object"] == "x"][0] == {"TENSOR_MATCH": 1}


def test_an_explanation_is_data_and_html() -> None:
    found = report()
    assert json.loads(found.to_json()) == found.to_dict()
    assert "<pre>" in found._repr_html_()
    assert "data-dependent-branch" in found._repr_html_()


def test_the_same_is_reported_after_the_fact() -> None:
    torchdynamo.reset()
    compiled = torchdynamo.compile(blocks, backend="eager")
    for _ in range(4):
        compiled(torch.ones(3))
    (row,) = torchdynamo.report().to_dict()["breaks"]
    assert (row["line"], row["calls"]) == (steps.__code__.co_firstlineno + 2, 24)
    assert (row["per_call"], row["of"]) == ((6.0, "blocks") if OUTLINES else (1.0, "steps"))  # in each turn of its loop


@pytest.mark.parametrize("calls", [0, -1, 1.5, True])
def test_a_wrong_number_of_calls_is_refused(calls: object) -> None:
    with pytest.raises(ValueError, match="calls is a number of calls"):
        torchdynamo.explain(steps, calls=calls)


def test_events_go_to_everybody_who_collects() -> None:
    event = CompileEvent("f", "f.py", 1)
    assert not explain.watched()
    with explain.collecting() as outer:
        explain.emit(event)
        with explain.collecting() as inner:
            assert explain.watched()
            explain.emit(event)
    explain.emit(event)
    assert (outer, inner) == ([event, event], [event])
