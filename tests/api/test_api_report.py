"""The printouts of `config.debug`, and the report of `explain`, on frames made by hand."""

from __future__ import annotations

import re

import torch

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


def report() -> Explanation:
    line = difference.__code__.co_firstlineno
    return Explanation(
        "difference",
        [
            CompileEvent("difference", __file__, line, traced(), 1, GUARDS, 0.25, "eager"),
            CompileEvent(
                "difference",
                __file__,
                line + 1,
                traced(),
                2,
                GUARDS[:1],
                0.5,
                "eager",
                "unknown call",
                "It is unknown.",
            ),
            CompileEvent("steps", __file__, line, reason="generator", reason_text="It is a generator."),
        ],
    )


def test_an_explanation_adds_up() -> None:
    found = report()
    assert (found.graph_count, found.op_count, found.ops_per_graph) == (2, 3, [1, 2])
    assert (found.graph_break_count, found.break_reasons) == (1, ["It is unknown."])
    assert [event.function for event in found.skips] == ["steps"]
    assert len(found.guards) == 3
    assert found.seconds == 0.75


def test_an_explanation_can_be_read() -> None:
    lines = [line.split() for line in str(report()).splitlines()]
    text = str(report())
    assert text.startswith("difference: 2 graphs, 3 operations, 1 break, 3 guards, 0.750 s\n")
    line = difference.__code__.co_firstlineno
    assert ["0", "difference", f"test_api_report.py:{line}", "1", "2", "0.250", "eager"] in lines
    assert f"test_api_report.py:{line + 1} in difference: It is unknown. [unknown call]\n" in text
    assert ["return", "torch.sub(a,", "b)"] in lines
    assert ["TENSOR_MATCH", "local", "'a'", "0,", "1"] in lines
    assert "\x1b" not in text


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
