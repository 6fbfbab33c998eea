"""Say why the entries of a function do not serve it in a new process: what their keys are made of has changed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType
from typing import Any

from torchdynamo.bytecode.qualnames import qualname_of
from torchdynamo.cache.store import keys, notes
from torchdynamo.cli.explain import target_of
from torchdynamo.eval_frame import code_of

LONGEST = 60
SHORT = {"processor": "the processor's instructions", "code": "the function's code", "extension": "the C extension"}
"""Parts of a key whose values tell people nothing."""
FOUND_BY_A_CALL = ("arguments", "closure", "backend", "settings", "continuation")
"""Parts of a key that only the call says: an entry serves calls that have the same."""


def why(name: str, stored: Iterator[tuple[Path, float, Mapping[str, Any]]]) -> Iterator[str]:
    """Yield for each entry of a function what keeps it from being used here, or that nothing known does.

    name: MODULE:FUNCTION. stored: files, when each was used last, and what is told of it.

    Raises ValueError for a name of another form, ImportError, AttributeError or TypeError if it is no function.
    """
    target = target_of(name)
    code, module = code_of(target), getattr(target, "__module__", "")
    for path, used, about in stored:
        if about.get("qualified name") != qualname_of(code) or about.get("file") != code.co_filename:
            continue
        age = (time.time() - used) / 86400
        place = f"line {about['line']}" if about["key"]["continuation"] else "its beginning"
        yield f"{path.stem[:12]}  {age:.1f}d  {about['backend']}  from {place} on  {path}"
        changes = list(differences(code, module, about))
        yield from (f"    {each}" for each in changes)
        if not changes:
            yield "    nothing differs that is known before a call: its guards decide"


def told(name: str, root: Path) -> Iterator[str]:
    """Yield what processes have noted of a function, why it was not stored or no entry served it. Raises as `why`."""
    code = code_of(target_of(name))
    for note in notes.notes_on(root, code):
        age = (time.time() - note.written) / 86400
        yield f"{age:.1f}d ago, from line {note.line} on: {note.text}"


def differences(code: CodeType, module: str, about: Mapping[str, Any]) -> Iterator[str]:
    """Yield what an entry's key is made of and is something else in this process."""
    before: dict[str, str] = {**about["key"], **about["environment"]}
    backend = before["backend"]
    now = {**keys.parts_of_code(code, module), **keys.parts_of_process(backend), **keys.facts_of_environment()}
    for part in sorted({*before, *now} - {*FOUND_BY_A_CALL}):
        was, is_now = before.get(part, ""), now.get(part, "")
        if was == is_now:
            continue
        if part in SHORT:
            yield f"{SHORT[part]}: changed"
        else:
            yield f"{part}: was {shown(was)}, is {shown(is_now)}"


def shown(text: str) -> str:
    """Return a text, cut off if it is long."""
    return (text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}...") or "nothing"
