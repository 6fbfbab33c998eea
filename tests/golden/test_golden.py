"""What captures look like. Each Markdown file beside this one is prose, code, and the capture expected of it.

A `python` block defines `f` and the arguments `args` of a call; the `capture` block after it is what `show` prints, and
what ended the capture if it did not reach the end. `make golden` writes those blocks anew: read the diff.
"""

from __future__ import annotations

import builtins
import linecache
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from torchdynamo import pipeline
from torchdynamo.capture.capture import Why
from torchdynamo.capture.show import show
from torchdynamo.capture.source import Roots
from torchdynamo.reasons import title

FOLDER = Path(__file__).parent
ACCEPT = os.environ.get("GOLDEN") == "accept"
PAIR = re.compile(r"```python\n(?P<code>.*?)```\n\n```capture\n(?P<capture>.*?)```\n", re.DOTALL)


def captured(source: str, name: str) -> str:
    """The capture of `f(*args)`, in words."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {"__name__": "golden", "torch": torch}
    exec(compile(source, name, "exec"), space)
    f = space["f"]
    function = f.forward.__func__ if isinstance(f, torch.nn.Module) else f
    args = space["args"] if function is f else (f, *space["args"])
    code = function.__code__
    closure = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    names = code.co_varnames[: code.co_argcount]
    roots = Roots(dict(zip(names, args, strict=True)), space, vars(builtins), closure)
    found = pipeline.follow(code, roots, pipeline.Compiler("eager"))
    if isinstance(found, Why):
        return f"nothing: {title(found.reason, **found.fields)}\n"
    text = re.sub(r"break before instruction \d+", "break", show(found.capture))  # its number depends on the Python
    return text + (f"\nended by\n  {title(found.why.reason, **found.why.fields)}\n" if found.why else "\n")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.md")), ids=lambda path: path.stem)
def test_captures(path: Path) -> None:
    text = path.read_text()
    assert PAIR.search(text), "no code with a capture after it"
    count = iter(range(1000))

    def again(pair: re.Match[str]) -> str:
        new = captured(pair["code"], f"{path.name}-{next(count)}")
        return f"```python\n{pair['code']}```\n\n```capture\n{new}```\n"

    now = PAIR.sub(again, text)
    if ACCEPT:
        path.write_text(now)
    assert now == path.read_text(), "captures changed: `make golden` accepts them"
