"""Record captured graphs on disk, as data, so that other processes may tune them.

    with torchdynamo.record("graphs"):
        model(x)

There is a folder for each graph, named by its hash: `graph.json` (operators and arguments), `meta.json` (inputs, modes,
the number of threads) and `inputs.bin` (contents of inputs). No pickle, and nothing to execute.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import torch
import torch.fx

from torchdynamo.backends.ensemble.capture_modes import CaptureModes
from torchdynamo.backends.ensemble.graph_data import nodes_of
from torchdynamo.backends.ensemble.identity import graph_hash, versions
from torchdynamo.backends.ensemble.input_data import input_data
from torchdynamo.backends.ensemble.recorded import CONTENTS, FORMAT, GRAPH, META
from torchdynamo.backends.ensemble.subgraph import Subgraph
from torchdynamo.backends.preserve import mutated_positions
from torchdynamo.errors import RecordError, TorchDynamoWarning
from torchdynamo.graph.concretize import at_sizes, places, specialize_examples, without_numbers
from torchdynamo.graph.numbers import has_numbers
from torchdynamo.graph.sizes import sizes_of
from torchdynamo.hook import interrupts
from torchdynamo.hook.user_warnings import warn_user

VARIABLE = "TORCHDYNAMO_RECORD"
log = logging.getLogger("torchdynamo.record")


class Recorder(contextlib.AbstractContextManager["Recorder"]):
    """Records each graph that is compiled, by whatever backend, until the end of its `with` block, or `stop()`."""

    def __init__(self, folder: str | os.PathLike[str], data: bool = False) -> None:
        """Begin. folder: made if it does not exist. data: keep floats, too, instead of statistics of them."""
        self.folder = Path(folder)
        self.data = data
        self.broken = False
        _active.append(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Record no further graphs."""
        if self in _active:
            _active.remove(self)

    def add(self, gm: torch.fx.GraphModule, inputs: Sequence[Any], name: str) -> None:
        """Record a graph, unless it is there already. A failure is a warning, and ends the recording."""
        if self.broken:
            return
        try:
            log.info("%s is recorded as %s", name, write(self.folder, gm, inputs, self.data))
        except RecordError as error:
            log.info("%s is not recorded: %s", name, error)
        except Exception as error:
            if interrupts.came():
                raise
            self.broken = True
            what = f"{type(error).__name__}: {error}"
            warn_user(f"graphs are no longer recorded in {self.folder}: {what}", TorchDynamoWarning)


def write(folder: Path, gm: torch.fx.GraphModule, inputs: Sequence[Any], data: bool = False) -> str:
    """Write a graph into a folder of its own in `folder`, complete or not at all, and return that folder's name.

    data: keep floats, too, instead of statistics of them. Raises RecordError for what cannot be recorded.
    """
    subgraph = recordable(gm, inputs)
    nodes = nodes_of(subgraph.gm.graph)
    name = graph_hash(subgraph)
    if name is None:
        raise RecordError("a value in it has no name by which another process knows it")
    if (folder / name).exists():
        return name
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=folder))
    try:
        (unfinished / GRAPH).write_text(json.dumps({"format": FORMAT, "nodes": nodes}, indent=1))
        with (unfinished / CONTENTS).open("wb") as file:
            meta = meta_of(subgraph, file, data)
        (unfinished / META).write_text(json.dumps(meta, indent=1))
        unfinished.chmod(0o755)
        with contextlib.suppress(OSError):  # another process was faster
            unfinished.rename(folder / name)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return name


def recordable(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Subgraph:
    """Return a graph without symbols: the sizes of this call are constants. Raises RecordError where that cannot be."""
    subgraph = _at_its_sizes(gm, inputs)
    if subgraph.effects.as_captured:
        raise RecordError("it has operators that only run as they were captured")
    return subgraph


def _at_its_sizes(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Subgraph:
    if not has_numbers(gm):
        return Subgraph(gm, inputs)
    known = {symbol: place.read(inputs) for symbol, place in places(gm, sizes_of(gm)).items()}
    fixed = at_sizes(gm, known)
    specialize_examples(fixed, known)
    kept = without_numbers(fixed)
    if has_numbers(fixed):
        raise RecordError("a size or a number in it depends on what tensors hold")
    return Subgraph(fixed, [inputs[position] for position in kept])


def meta_of(subgraph: Subgraph, file: BinaryIO, data: bool = False) -> dict[str, Any]:
    """Return what `meta.json` holds; write contents of inputs to the file. data: write floats, too."""
    inputs = [
        input_data(value, node, position, file, data)
        for position, (value, node) in enumerate(zip(subgraph.example_inputs, subgraph.placeholders))
    ]
    effects = {"mutated": mutated_positions(subgraph.gm), "random": subgraph.effects.random}
    traces = (str(node.meta.get("stack_trace", "")).strip().splitlines() for node in subgraph.nodes)
    source = next((lines[0].strip() for lines in traces if lines), "")
    return {
        "format": FORMAT,
        "source": source,
        "versions": versions(),
        "threads": torch.get_num_threads(),
        "modes": CaptureModes.now().as_data(),
        "effects": effects,
        "inputs": inputs,
    }


_active: list[Recorder] = []


def is_active() -> bool:
    """Return whether graphs are recorded."""
    return bool(_active)


def note(gm: torch.fx.GraphModule, inputs: Sequence[Any], name: str) -> None:
    """Record a graph that is about to be compiled, wherever recording is on. name: of the graph, for the log."""
    for each in list(_active):
        each.add(gm, inputs, name)


def record(folder: str | os.PathLike[str], data: bool = False) -> Recorder:
    """Record each graph that is compiled from now on, as data, for `python -m torchdynamo tune`.

    Also a context manager that records until its block ends; without a block, until `.stop()`. What has been compiled
    already is not recorded: see `reset`. Setting TORCHDYNAMO_RECORD=folder records a whole process.

    folder: made if it does not exist; each graph gets a folder in it.
    data: keep the contents of floating-point inputs and parameters as well. Otherwise integers and booleans are kept,
        and of floats the mean, the standard deviation and the range.
    """
    return Recorder(folder, data)


if os.environ.get(VARIABLE):
    record(os.environ[VARIABLE])
