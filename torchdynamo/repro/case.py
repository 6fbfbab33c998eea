"""Hold a graph as data, with its inputs and the backend that is to run it, so that processes can hand it on."""

from __future__ import annotations

import base64
import functools
import importlib
import importlib.util
import io
import json
import os
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch.fx

from torchdynamo.backends.ensemble.graph_data import nodes_of
from torchdynamo.backends.ensemble.record import meta_of
from torchdynamo.backends.ensemble.recorded import CONTENTS, GRAPH, META, Recorded, RecordedData, from_data, load
from torchdynamo.backends.ensemble.subgraph import Subgraph
from torchdynamo.backends.registry import Backend, lookup
from torchdynamo.backends.settings import taken


class Case(NamedTuple):
    """A graph as data, and the backend that is said to fail on it."""

    nodes: Sequence[Mapping[str, Any]]
    meta: Mapping[str, Any]
    """Inputs, modes and versions, as `meta.json` of a recorded graph has them."""
    contents: str
    """Contents of inputs: compressed, in base64."""
    backend: str
    """NAME, MODULE:NAME or FILE.py:NAME."""
    settings: Mapping[str, Any]
    """The backend's mode and options."""
    accuracy: bool
    """True if results are compared with those in float64, too."""

    @classmethod
    def of_text(cls, text: str) -> Case:
        """Return a case from its JSON."""
        return cls(**json.loads(text))

    def text(self) -> str:
        """Return the case as JSON."""
        return json.dumps(self._asdict())

    @classmethod
    def of_folder(cls, folder: Path, backend: str, settings: Mapping[str, Any], accuracy: bool) -> Case:
        """Read a recorded graph. Raises RecordError, OSError or ValueError for a folder that has none."""
        load(folder, values=False)
        nodes, meta = (json.loads((folder / name).read_text()) for name in (GRAPH, META))
        return cls(nodes["nodes"], meta, packed((folder / CONTENTS).read_bytes()), backend, settings, accuracy)

    def with_graph(self, gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Case:
        """Return another graph, with its inputs and current modes. Raises RecordError for what is no data."""
        file = io.BytesIO()
        meta = meta_of(Subgraph(gm, inputs), file)
        return self._replace(nodes=nodes_of(gm.graph), meta=meta, contents=packed(file.getvalue()))

    def made(self) -> Recorded:
        """Return the graph, with inputs. Raises RecordError for what is no graph, or none that runs here."""
        data = zlib.decompress(base64.b64decode(self.contents))
        read = lambda offset, size: data[offset : offset + size]  # noqa: E731
        return from_data(RecordedData(self.nodes, self.meta, read, "the graph", "its inputs"))


def packed(contents: bytes) -> str:
    """Return bytes as text."""
    return base64.b64encode(zlib.compress(contents)).decode()


class NoSuchBackend(Exception):
    """Raised for a backend that cannot be found or imported; its message says why."""


def backend_at(path: str, settings: Mapping[str, Any]) -> Backend:
    """Return the backend that NAME, MODULE:NAME or FILE.py:NAME stands for, with its settings. Raises NoSuchBackend."""
    owner, _, name = path.rpartition(":")
    try:
        found: Any = name if not owner else functools.reduce(getattr, name.split("."), module_at(owner))
        backend = lookup(found)
    except Exception as error:
        raise NoSuchBackend(f"there is no backend {path}: {type(error).__name__}: {error}") from error
    given = taken(backend, dict(settings))
    return functools.partial(backend, **given) if given else backend


def module_at(path: str) -> ModuleType:
    """Import a module by its name, or a file by its path. Raises what the import raises."""
    if not path.endswith(".py"):
        sys.path.append(os.getcwd())
        return importlib.import_module(path)
    sys.path.append(os.path.dirname(os.path.abspath(path)))
    name = Path(path).stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
