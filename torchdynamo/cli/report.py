"""The command `report`: show a report that was saved as JSON, or write it as a page."""

from __future__ import annotations

import argparse
import json
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from torchdynamo.report.redact import redacted
from torchdynamo.report.saving import load, save, suffix_of
from torchdynamo.report.screen import screen
from torchdynamo.report.summary import Report


def main(given: Sequence[str]) -> int:
    """Show a saved report. Returns 0, or 2 for a file that is none."""
    parser = argparse.ArgumentParser(prog="python -m torchdynamo report", description=__doc__)
    parser.add_argument("file", help="a report, as TORCHDYNAMO_REPORT or `run --report` writes it")
    parser.add_argument("--to", metavar="FILE", help="write it in another form: .html, .json, .trace.json")
    parser.add_argument("--open", action="store_true", help="open what was written in a browser")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.add_argument(
        "--redact", action="store_true", help="hide strings of the program, values that changed, and variables"
    )
    found = parser.parse_args(given)
    if found.open and not found.to:
        parser.error("--open shows the file that --to names")
    try:
        report = load(found.file)
        if found.redact:
            report = Report(redacted(report.to_dict()))
        if found.to and found.redact and suffix_of(found.to) == ".html":
            report.to_html(found.to, redact=True)  # the sources that it shows, too
        elif found.to:
            save(report, found.to)
    except (OSError, ValueError) as error:
        print(f"python -m torchdynamo report: {error}", file=sys.stderr)
        return 2
    if found.open:
        webbrowser.open(Path(found.to).resolve().as_uri())
    if found.json:
        print(json.dumps(report.to_dict(), indent=1))
    elif not found.to:
        Console().print(screen(report.to_dict()))
    return 0
