"""What captures look like. Each Markdown file beside this one is prose, code, and the capture expected of it.

A `python` block defines `f` and the arguments `args` (and `keywords`) of a call; the `capture` block after it is what
`show` prints, and what ended the capture if it did not reach the end; guards on torch's own insides are left out.
Where the bytecode of CPython 3.14 makes another capture, its block follows under LATER. `make golden` writes the blocks
of the Python it runs on anew: read the diff. Each program is also run, compiled and not, and compared.
"""

from __future__ import annotations

import builtins
import copy
import inspect
import linecache
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import worlds

import torchdynamo
from torchdynamo import capture_retries, pipeline
from torchdynamo.bytecode import versions
from torchdynamo.capture.capture import Why
from torchdynamo.capture.show import guard_line, show
from torchdynamo.core.reasons import title
from torchdynamo.core.source import Guard, Roots

FOLDER = Path(__file__).parent
ACCEPT = os.environ.get("GOLDEN") == "accept"
LATER = "On CPython 3.14:"
PAIR = re.compile(
    r"```python\n(?P<code>.*?)```\n\n```capture\n(?P<capture>.*?)```\n"
    rf"(\n{LATER}\n\n```capture\n(?P<later>.*?)```\n)?",
    re.DOTALL,
)


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
    given = inspect.signature(function).bind(*args, **space.get("keywords", {}))
    given.apply_defaults()
    roots = Roots(dict(given.arguments), space, vars(builtins), closure)
    found = capture_retries.follow(code, roots, pipeline.Compiler("eager"))
    if isinstance(found, Why):
        return f"nothing: {title(found.reason, **found.fields)}\n"
    text = re.sub(r"break before instruction \d+", "break", show(found.capture))  # its number depends on the Python
    for guard in filter(is_of_torch, found.capture.guards):
        text = text.replace(f"  {guard_line(guard)}\n", "")
    return text + (f"\nended by\n  {title(found.why.reason, **found.why.fields)}\n" if found.why else "\n")


def is_of_torch(guard: Guard) -> bool:
    """Facts about the insides of torch, which differ between its versions."""
    root = guard.source.root()
    where = root.arg if root.how == "module" else getattr(getattr(root.arg, "object", None), "__module__", None)
    return str(where).partition(".")[0] == "torch"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.md")), ids=lambda path: path.stem)
def test_captures(path: Path) -> None:
    text = path.read_text()
    assert PAIR.search(text), "no code with a capture after it"
    count = iter(range(1000))

    def again(pair: re.Match[str]) -> str:
        new = captured(pair["code"], f"{path.name}-{next(count)}")
        earlier, later = (pair["capture"], new) if versions.V314 else (new, pair["later"])
        block = "" if later in (None, earlier) else f"\n{LATER}\n\n```capture\n{later}```\n"
        return f"```python\n{pair['code']}```\n\n```capture\n{earlier}```\n{block}"

    now = PAIR.sub(again, text)
    if ACCEPT:
        path.write_text(now)
    assert now == path.read_text(), "captures changed: `make golden` accepts them"


class Afresh:
    """The same arguments and global data for each call."""

    def __init__(self) -> None:
        self.data: dict[int, Any] = {}

    def __call__(self, space: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        known = self.data.get(id(space))
        if known is None:
            kinds = (int, float, list, dict, tuple, torch.Tensor)
            names = [name for name, obj in space.items() if isinstance(obj, kinds) and not name.startswith("__")]
            known = self.data[id(space)] = {name: space[name] for name in names}
        space.update(copy.deepcopy(known))
        return space["args"], space.get("keywords", {})


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.md")), ids=lambda path: path.stem)
def test_programs_run(path: Path) -> None:
    """As they run without us, and the second time without compiling."""
    for pair in PAIR.finditer(path.read_text()):
        torchdynamo.reset()
        changes_itself = "nonlocal calls" in pair["code"] or "self.calls += 1" in pair["code"]
        first, *later = worlds.compare(pair["code"], [Afresh()] * 3).made
        assert first and (changes_itself or later == [0, 0]), f"compiled {later} times again:\n{pair['code']}"
