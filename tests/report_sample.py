"""Sample reports of any size, in the format of `Report.to_dict()`."""

from __future__ import annotations

from typing import Any

SECONDS = {"capture": 0.11, "graph": 0.02, "backend": 1.25, "code": 0.013, "guards": 0.024}
FILE = "/nowhere/model.py"


def version(at: int, filename: str, line: int, guards: int = 10, nodes: int = 20, **others: Any) -> dict[str, Any]:
    return {
        "number": 0,
        "graph": f"forward_{at} graph {at}/0",
        "calls": 412,
        "operators": nodes,
        "backend": "inductor",
        "because": "",
        "ends": None,
        "seconds": SECONDS,
        "inputs": [{"name": "x", "type": "f32[s0, 64]", "source": "x"}],
        "symbols": [{"name": "s0", "source": "x.size(0)", "minimum": 2, "maximum": None}],
        "guards": [
            {"object": f"self.layers.{i}", "kinds": {"TENSOR_MATCH": 63}, "count": 63, "words": 126, "line": line}
            for i in range(guards)
        ],
        "nodes": [
            {"name": f"sin_{i}", "operator": "torch.sin", "filename": filename, "line": line + 1} for i in range(nodes)
        ],
        **others,
    }


def graph_break(filename: str = FILE, line: int = 88, **others: Any) -> dict[str, Any]:
    return {
        "filename": filename, "line": line, "end_line": line, "column": 7, "end_column": 19, "function": "forward",
        "source": "if loss.isnan():", "text": "The branch depends on a tensor's value.",
        "hint": "Choose with torch.where(condition, a, b).", "reason": "TD101", "slug": "data-dependent-branch",
        "url": "https://example.org/reasons/data-dependent-branch", "count": 2, "per_call": 6.0, "calls": 618,
        "microseconds": 912.5, "chain": [{"filename": filename, "line": line, "function": "forward"}], **others,
    }  # fmt: skip


def recompile(**others: Any) -> dict[str, Any]:
    return {
        "function": "forward", "filename": FILE, "line": 85, "source": "x.size(0)", "old": "9", "new": "10",
        "text": "x.size(0) varies from now on", "hint": "torchdynamo.mark_dynamic(x, 0)", "count": 1, "calls": 17,
        **others,
    }  # fmt: skip


def report(graphs: int = 3, filename: str = FILE, **others: Any) -> dict[str, Any]:
    """Return a report with a number of functions of one graph each, ten guards each, and the rest as given."""
    functions = [
        {
            "function": f"forward_{at}",
            "filename": filename,
            "line": 10 * at + 1,
            "versions": [version(at, filename, 10 * at + 1)],
        }
        for at in range(graphs)
    ]
    events = [
        {"number": at, "kind": "compile", "filename": filename, "line": 10 * at + 1, "function": f"forward_{at}",
         "text": "", "started": 1.5 * at, "ended": 1.5 * at + sum(SECONDS.values()), "seconds": SECONDS, "thread": 1,
         "parent": None, "graph": f"forward_{at} graph {at}/0", "reason": ""}
        for at in range(graphs)
    ]  # fmt: skip
    steps = [
        {
            "graph": f"forward_{at} graph {at}/0",
            "function": f"forward_{at}",
            "thread": 1,
            "started": 0.002 * at,
            "ended": 0.002 * at + 0.0012,
        }
        for at in range(graphs)
    ]
    totals = {
        "graphs": graphs, "operators": 20 * graphs, "graph_calls": 412 * graphs,
        "breaks": len(others.get("breaks", ())),
        "breaks_per_call": 6.0, "recompiles": len(others.get("recompiles", ())), "skips": 4, "fallbacks": 0,
        "limits": 0, "step_seconds": 0.002 * (graphs - 1) + 0.0012 if graphs else None, "seconds": SECONDS,
    }  # fmt: skip
    environment = {
        "torchdynamo": "0.1.0", "torch": "2.13.0", "python": "3.11.7", "device": "cpu", "threads": 2,
        "system": "Linux x86_64", "settings": {"suppress_errors": "True"}, "variables": {"TORCHDYNAMO_LOGS": "breaks"},
    }  # fmt: skip
    skip = {
        "reason": "TD301",
        "slug": "no-tensors",
        "title": "No tensors",
        "count": 4,
        "functions": ["load (data.py:3)"],
    }
    return {
        "format": 1, "title": "train.py", "began": 1.8e9, "environment": environment, "totals": totals,
        "functions": functions,
        "breaks": [], "recompiles": [], "skips": [skip], "problems": [], "events": events, "steps": steps, **others,
    }  # fmt: skip
