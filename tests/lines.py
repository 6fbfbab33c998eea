"""Lines of `torchdynamo/capture/` by file, as a table in Markdown: `make lines`."""

from __future__ import annotations

from pathlib import Path

CAPTURE = Path(__file__).resolve().parent.parent / "torchdynamo" / "capture"


def counted() -> dict[str, list[tuple[int, str]]]:
    """By folder: lines and names, the longest first."""
    found: dict[str, list[tuple[int, str]]] = {}
    for path in CAPTURE.rglob("*.py"):
        lines = len(path.read_text().splitlines())
        if lines:
            found.setdefault(path.parent.relative_to(CAPTURE.parent).as_posix(), []).append((lines, path.name))
    return {folder: sorted(files, reverse=True) for folder, files in sorted(found.items())}


def main() -> None:
    for folder, files in counted().items():
        print(f"\n### {folder}/: {sum(lines for lines, _ in files):,} lines in {len(files)} files\n")
        print("| lines | file |\n|--:|---|")
        for lines, name in files:
            print(f"| {lines} | `{name}` |")


if __name__ == "__main__":
    main()
