"""Write docs/reasons/, a page for each reason and an index, from the table of reasons and their programs.

python docs/generate_reasons.py
"""

from __future__ import annotations

from pathlib import Path

from torchdynamo.cli.reason import KINDS, page
from torchdynamo.core.reasons import REASONS

FOLDER = Path(__file__).parent / "reasons"
INTRODUCTION = """\
# Reasons

Every message about a graph break, a skipped frame or a fallback ends with a number and a name that never change.
`python -m torchdynamo reason TD101` prints the page below without a network.
"""
HEADINGS = {"1": "Graph breaks", "2": "Skips", "3": "Fallbacks and limits"}


def index() -> str:
    """Return the page that lists all reasons by kind."""
    parts = [INTRODUCTION]
    for digit, heading in HEADINGS.items():
        rows = sorted(row for row in REASONS.values() if row.number[2] == digit)
        links = "\n".join(f"- [{row.number} {row.slug}]({row.slug}.md)" for row in rows)
        names = "\n".join(row.slug for row in rows)
        parts.append(f"## {heading}\n\n{KINDS[digit]}\n\n{links}\n\n```{{toctree}}\n:hidden:\n\n{names}\n```\n")
    return "\n".join(parts)


def pages() -> dict[str, str]:
    """Return the text of each file of the folder, by name."""
    return {"index.md": index(), **{f"{row.slug}.md": page(row) for row in REASONS.values()}}


def main() -> None:
    """Write the pages, and remove those of no reason."""
    FOLDER.mkdir(exist_ok=True)
    written = pages()
    for name, text in written.items():
        (FOLDER / name).write_text(text)
    for file in FOLDER.glob("*.md"):
        if file.name not in written:
            file.unlink()


if __name__ == "__main__":
    main()
