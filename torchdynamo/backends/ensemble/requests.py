"""Requests to the processes that tune, and their answers: JSON in both directions."""

from __future__ import annotations

import importlib
import json
import os
import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torchdynamo.backends.ensemble.database import Row
from torchdynamo.backends.ensemble.measure import Timing


class TrialRequest(NamedTuple):
    """A recorded graph, and the members to build for it."""

    folder: str
    members: Sequence[str]
    constants: bool
    imports: Sequence[str]
    seconds: float
    """How long to measure at most."""
    out: str = ""
    """The file for the answer."""

    @classmethod
    def of(cls, text: str) -> TrialRequest:
        return cls(**json.loads(text))

    def text(self) -> str:
        return json.dumps(self._asdict())


def load_users_members(paths: Sequence[str]) -> None:
    """Run a user's files or import modules, which may register members of their own."""
    for path in paths:
        if path.endswith(".py"):
            runpy.run_path(path)
        else:
            importlib.import_module(path)


class TrialAnswer(NamedTuple):
    """Answer of a process that tuned."""

    rows: list[Row]
    key: str = ""
    """The graph's hash in the database, from the process that measured; "" if it has none."""

    def write(self, path: str) -> None:
        """Write the answer, whole or not at all."""
        part = path + ".part"
        Path(part).write_text(json.dumps({"key": self.key, "rows": [row._asdict() for row in self.rows]}))
        os.replace(part, path)

    @classmethod
    def read(cls, path: Path) -> TrialAnswer:
        """Read an answer. Raises OSError if there is none."""
        data = json.loads(path.read_text())
        return cls([row_of(each) for each in data["rows"]], data["key"])


def row_of(data: dict[str, Any]) -> Row:
    """Return a row from its JSON object."""
    timing = data["timing"]
    return Row(**{**data, "timing": None if timing is None else Timing(*timing)})
