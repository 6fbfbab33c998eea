"""The command `explain`: call a function or a model of a module on inputs made here, and show what is captured."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import torch
from rich.console import Console

from torchdynamo.api import explain
from torchdynamo.errors import TorchDynamoError
from torchdynamo.report.saving import save


def main(given: Sequence[str]) -> int:
    """Explain one function or model. Returns 0, 1 if the call raises, 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m torchdynamo explain", description=__doc__)
    parser.add_argument("target", metavar="MODULE:NAME", help="a function, a model, or a class to be called for one")
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="EXPRESSION",
        help='an argument, in Python with the names of torch: "randn(2, 3, 224, 224)"; once for each',
    )
    parser.add_argument("--calls", type=int, default=3, help="calls, of which the later ones are timed (default: 3)")
    parser.add_argument("--backend", default="eager", help="the backend (default: eager)")
    parser.add_argument("--dynamic", action="store_true", help="sizes are symbols from the first call on")
    parser.add_argument("--fullgraph", action="store_true", help="fail at the first break")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--report", metavar="FILE", help="write the report: .json, .html, .trace.json")
    found = parser.parse_args(given)
    sys.path.insert(0, os.getcwd())
    try:
        target = target_of(found.target)
        inputs = [evaluated(each) for each in found.input]
    except Exception as error:  # of the user's own module or expression: shown with its name, whatever it is
        parser.error(f"{type(error).__name__}: {error}")
    try:
        explained = explain(
            target,
            backend=found.backend,
            fullgraph=found.fullgraph,
            dynamic=found.dynamic or None,
            calls=found.calls,
        )(*inputs)
    except TorchDynamoError as error:
        print(error, file=sys.stderr)
        return 1
    if found.report:
        save(explained.report, found.report)
    if found.json:
        print(explained.to_json())
    else:
        Console().print(explained)
    return 0


def target_of(named: str) -> Any:
    """Return the object that `module:name` names; a class of modules is called without arguments.

    Raises ValueError for another form, ImportError and AttributeError for a name that is not there.
    """
    module, _, name = named.partition(":")
    if not name:
        raise ValueError(f"{named!r} names no object: write MODULE:NAME")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found() if isinstance(found, type) else found


def evaluated(expression: str) -> Any:
    """Return the value of an expression of the command line, in which the names of torch are known."""
    return eval(expression, {"torch": torch, **vars(torch)})
