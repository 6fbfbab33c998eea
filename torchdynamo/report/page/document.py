"""Write a report as one HTML file: open it anywhere, offline; nothing in it is fetched, and no text of it is run."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from torchdynamo.report.page import contents, source, timeline, wording
from torchdynamo.report.page.packing import script_json
from torchdynamo.report.redact import redacted

FOLDER = Path(__file__).parent
FOLD = 200  # rows of a list that are shown at first


def page(report: Mapping[str, Any], *, redact: bool = False) -> str:
    """Return the HTML file of a report, as one string to be written in UTF-8.

    `report` is what `Report.to_dict()` returns; lines of source are read from the files that it names. `redact` hides
    string literals, changed values and contents of environment variables, in the data that the file holds too.
    Raises ValueError for numbers that JSON has not, such as nan.
    """
    data = redacted(report) if redact else report
    anchors = {
        version["graph"]: f"v{at}-{index}"
        for at, function in enumerate(data["functions"])
        for index, version in enumerate(function["versions"])
    }
    rows = contents.worst(data)
    files = source.files(data, redact=redact)
    style, script = text_of("page.css"), text_of("page.js")
    return template().render(
        report=data,
        rating=contents.verdict(data, rows),
        tiles=contents.tiles(data),
        rows=rows,
        skips=contents.skips(data),
        files=files,
        lines=shown_lines(files),
        step=timeline.step_timeline(data["steps"], anchors),
        process=timeline.process_timeline(data["events"], anchors),
        style=Markup(style),
        script=Markup(script),
        data=Markup(script_json(data)),
        policy=policy(style, script),
        fold=FOLD,
    )


def shown_lines(files: list[source.File]) -> dict[tuple[str, int], str]:
    """Return the anchors of all lines of source that the page shows, by file and line."""
    return {
        (file.filename, line.number): f"f{file.at}-{line.number}"
        for file in files
        for stretch in file.stretches
        for line in stretch
    }


def template() -> jinja2.Template:
    """Return the template of the page. All that it prints is escaped, and has no invisible characters."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        finalize=wording.shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for each in (wording.count, wording.counted, wording.seconds, wording.microseconds, wording.place, wording.short):
        environment.globals[each.__name__] = each
    environment.globals["web_address"] = wording.web_address
    return environment.get_template("page.html.j2")


def policy(style: str, script: str) -> str:
    """Return the content security policy: this style and this script, and nothing from anywhere."""
    return (
        f"default-src 'none'; style-src '{digest(style)}'; script-src '{digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def digest(text: str) -> str:
    """Return the hash of an element's text, as content security policies name it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def text_of(name: str) -> str:
    """Return one of the files of the page that are put into it as they are."""
    return (FOLDER / name).read_text(encoding="utf-8")
