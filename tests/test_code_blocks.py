"""Run every block of Python in README and docs, each as a program of its own."""

from __future__ import annotations

import linecache
import re
import sys
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = [
    (path, text[: match.start()].count("\n") + 2, match[1])
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if path.parent.name != "reasons"  # generated; tests/api/test_reason_pages.py runs their programs
    for text in [path.read_text()]
    for match in BLOCK.finditer(text)
]


@pytest.mark.parametrize(("path", "line", "source"), BLOCKS, ids=[f"{path.name}:{line}" for path, line, _ in BLOCKS])
def test_block_runs(path: Path, line: int, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # torch.distributed puts its own there
    name = f"<{path.name}:{line}>"
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(source, name, "exec"), {"__name__": "__main__"})
