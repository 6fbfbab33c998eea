"""Record a graph on which a backend failed, and say what to type to repeat the failure.

With TORCHDYNAMO_REPRO=folder, a copy of each graph is kept until its backend has compiled and run it, because a backend
may modify the graph that it is given.
"""

from __future__ import annotations

import copy
import functools
import json
import os
import shlex
import sys
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch.fx

from torchdynamo.backends.ensemble import record
from torchdynamo.backends.registry import BACKENDS, Backend, backend_name
from torchdynamo.errors import RecordError
from torchdynamo.graph.modules import graph_module
from torchdynamo.hook import interrupts

VARIABLE = "TORCHDYNAMO_REPRO"
SETTINGS = ("mode", "options")
"""The keywords that `compile` passes on to a backend, and that the command takes."""


def failed_graph(gm: torch.fx.GraphModule, backend: Backend) -> FailedGraph:
    """Return what can record a graph if its backend fails; one object for each graph, with one copy of it."""
    found = _kept.get(gm)
    if found is None:
        found = FailedGraph(gm, backend)
        if found.folder:
            _kept[gm] = found
    return found


class FailedGraph:
    """A graph as it was captured, and the backend that compiles it."""

    def __init__(self, gm: torch.fx.GraphModule, backend: Backend) -> None:
        """Copy a graph that the backend has not seen yet, if TORCHDYNAMO_REPRO names a folder."""
        self.folder = os.environ.get(VARIABLE, "")
        self.backend = backend
        if self.folder:
            self.gm = graph_module(gm, copy.deepcopy(gm.graph))
            self.gm.meta = dict(gm.meta)

    def advice(self, inputs: Sequence[Any]) -> str:
        """Record the graph; return a line with the command that repeats the failure, to be put after a message.

        The line says why if the graph cannot be recorded. It is empty unless TORCHDYNAMO_REPRO names a folder.
        """
        if not self.folder:
            return ""
        try:
            name = record.write(Path(self.folder), self.gm, inputs)
        except RecordError as error:
            return f"\nThe graph cannot be recorded in {self.folder}: {error}"
        except Exception as error:
            if interrupts.came():
                raise
            return f"\nThe graph cannot be recorded in {self.folder}: {type(error).__name__}: {error}"
        line = ["python", "-m", "torchdynamo", "repro", os.path.join(self.folder, name), *arguments_of(self.backend)]
        return f"\nTo repeat it: {shlex.join(line)}"


_kept: weakref.WeakKeyDictionary[torch.fx.GraphModule, FailedGraph] = weakref.WeakKeyDictionary()


def arguments_of(backend: Backend) -> list[str]:
    """Return the arguments of the command `repro` that stand for a backend, with its mode and options."""
    settings: dict[str, Any] = {}
    while hasattr(backend, "func"):
        if isinstance(backend, functools.partial):
            settings = {**backend.keywords, **settings}
        backend = backend.func
    given = ["--backend", path_of(backend)]
    for name in SETTINGS:
        if name in settings:
            value = settings[name]
            given += [f"--{name}", value if isinstance(value, str) else json.dumps(value, default=str)]
    return given


def path_of(backend: Backend) -> str:
    """Return the name of a backend of this package, else MODULE:NAME, or FILE.py:NAME for one of the program's file."""
    name = backend_name(backend)
    module = getattr(backend, "__module__", None) or ""
    if BACKENDS.get(name) is backend and module.startswith("torchdynamo."):
        return name
    owner = sys.modules.get(module)
    file = getattr(owner, "__file__", None) if module == "__main__" else None
    names = [each for each, value in vars(owner).items() if value is backend] if owner is not None else []
    found = names[0] if names else getattr(backend, "__qualname__", name)
    return f"{os.path.abspath(file) if file else module}:{found}"
