"""What is public, with its signatures, is in `public_api.txt` beside this file: nothing of it goes or changes."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torchdynamo
from torchdynamo import config, eval_frame, exc
from torchdynamo.__main__ import VERBS
from torchdynamo.core.reasons import REASONS

GOLDEN = Path(__file__).with_name("public_api.txt")


def signature(name: str, thing: Any) -> str:
    """A line for a function or class; parameters without their annotations, since these may become more precise."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return name
    bare = [each.replace(annotation=inspect.Parameter.empty) for each in found.parameters.values()]
    return f"{name}{re.sub(r' at 0x[0-9a-f]+', '', str(inspect.Signature(bare)))}"


def public() -> Iterator[str]:
    for name in sorted(torchdynamo.__all__):
        thing = getattr(torchdynamo, name)
        yield signature(f"torchdynamo.{name}", thing) if callable(thing) else f"torchdynamo.{name}"
    for name in sorted(exc.__all__):
        bases = ", ".join(base.__name__ for base in getattr(exc, name).__bases__)
        yield f"torchdynamo.exc.{name}({bases})"
    for name in sorted(eval_frame.__all__):
        yield signature(f"torchdynamo.eval_frame.{name}", getattr(eval_frame, name))
    yield from (f"torchdynamo.config.{name}" for name in sorted(config._DEFAULTS))
    yield from (f"python -m torchdynamo {verb}" for verb in sorted(VERBS))
    yield from (f"{row.number} {row.slug}" for row in sorted(REASONS.values()))


def test_nothing_that_is_public_is_gone_or_has_changed() -> None:
    found = list(public())
    if os.environ.get("GOLDEN") == "accept":
        GOLDEN.write_text("".join(f"{line}\n" for line in found))
    gone = [line for line in GOLDEN.read_text().splitlines() if line not in found]
    assert gone == [], "that is for a major version; GOLDEN=accept writes the file anew, also with what is added"


def test_each_public_name_is_there_and_documented() -> None:
    for name in torchdynamo.__all__:
        thing = getattr(torchdynamo, name)
        assert inspect.getdoc(thing), f"torchdynamo.{name} has no docstring"
