"""The command `reason`: print what a reason for a graph break, a skipped frame or a fallback means, and what to do."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from torchdynamo.core.reasons import REASONS, Reason, find

PROGRAMS = Path(__file__).with_name("reasons")  # a file of Markdown for each reason, named by its slug
KINDS = {
    "1": "A graph break: the code before it and the code after it are compiled as separate graphs.",
    "2": "A skip: the whole frame runs as normal Python.",
    "3": "A fallback: calls run eagerly that could have run in a compiled graph.",
}
FIELD = re.compile(r"^(name|type|what): (.+)$", re.MULTILINE)
BLOCK = re.compile(r"^```python\n.*?^```\n", re.MULTILINE | re.DOTALL)


def fields_of(written: str) -> dict[str, str]:
    """Return the fields of the message that a reason's file fills in, for the program that it shows."""
    return {
        "name": "it",
        "type": "value",
        "what": "the details",
        "said": "",
        **dict(FIELD.findall(BLOCK.sub("", written))),
    }


def programs_of(written: str) -> list[str]:
    """Return the programs of a reason's file: the one that meets the reason, and the one that does not."""
    return [block.removeprefix("```python\n").removesuffix("```\n") for block in BLOCK.findall(written)]


def page(row: Reason) -> str:
    """Return the page of a reason, in Markdown."""
    file = PROGRAMS / f"{row.slug}.md"
    written = file.read_text() if file.exists() else ""
    fields = fields_of(written)
    parts = [
        f"# {row.number} {row.slug}\n\n{KINDS[row.number[2]]}\n",
        f"## What happens\n\n{row.text.format_map(fields)}\n",
        f"## What to write instead\n\n{row.hint.format_map(fields)}\n",
    ]
    for heading, program in zip(("A program that shows it", "The same without it"), programs_of(written)):
        parts.append(f"## {heading}\n\n```python\n{program}```\n")
    notes = FIELD.sub("", BLOCK.sub("", written)).strip()
    return "\n".join(parts + ([f"## Notes\n\n{notes}\n"] if notes else []))


def listing() -> str:
    """Return a line for each reason: number, slug and title."""
    return "\n".join(f"{row.number}  {row.slug}" for row in sorted(REASONS.values()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the page of a reason, or a list of all. Returns the exit status: 0, or 2 for a reason that is unknown."""
    parser = argparse.ArgumentParser("python -m torchdynamo reason", description=__doc__)
    parser.add_argument("name", nargs="?", help="a number, such as TD101, or a slug, such as data-dependent-branch")
    name = parser.parse_args(arguments).name
    if name is None:
        print(listing())
        return 0
    row = find(name)
    if row is None:
        near = difflib.get_close_matches(name, [each for row in REASONS.values() for each in (row.number, row.slug)])
        print(f"no reason is called {name!r}{f'; did you mean {near[0]}?' if near else ''}", file=sys.stderr)
        return 2
    print(page(row), end="")
    return 0
