"""Read recorded graphs. Nothing that is read is executed: operators come from a closed list, all else is data."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensorMode

from torchdynamo.backends.ensemble.capture_modes import CaptureModes
from torchdynamo.backends.ensemble.graph_data import graph_of
from torchdynamo.backends.ensemble.input_data import input_of
from torchdynamo.backends.ensemble.subgraph import Subgraph
from torchdynamo.errors import RecordError
from torchdynamo.graph.modules import graph_module
from torchdynamo.graph.mutation import Effects, note_effects
from torchdynamo.graph.torch_compat import static_fake

FORMAT = 1
GRAPH, META, CONTENTS = "graph.json", "meta.json", "inputs.bin"
_MALFORMED = (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError, OverflowError)


class Recorded(NamedTuple):
    """A recorded graph, and what was set when it was captured."""

    subgraph: Subgraph
    modes: CaptureModes
    threads: int
    source: str
    """The line of the program that the graph begins at."""

    @contextlib.contextmanager
    def as_captured(self) -> Iterator[None]:
        """Set modes and the number of threads to what they were at capture, for the length of the block."""
        threads = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            with self.modes.set():
                yield
        finally:
            torch.set_num_threads(threads)


def load(folder: Path, *, constants: bool = False, values: bool = True) -> Recorded:
    """Return the graph that was recorded in a folder.

    constants: members may make constants of its parameters. values: fill its inputs; without, only their layouts count.
    Raises RecordError for a file that is missing or malformed and for a graph that this process cannot run, with the
    file and the node in its message.
    """

    def contents(offset: int, size: int) -> bytes:
        try:
            with (folder / CONTENTS).open("rb") as file:
                file.seek(offset)
                return file.read(size)
        except OSError as error:
            raise RecordError(f"{CONTENTS} beside it cannot be read ({error.strerror})") from error

    graph, meta = folder / GRAPH, folder / META
    data = RecordedData(_object(graph).get("nodes"), _object(meta), contents, str(graph), str(meta))
    return from_data(data, constants=constants, values=values)


class RecordedData(NamedTuple):
    """A graph as data, with what was set when it was captured."""

    nodes: Any
    meta: Mapping[str, Any]
    contents: Callable[[int, int], bytes]
    """(offset, number of bytes) -> contents of inputs."""
    graph_place: str
    meta_place: str
    """Where the nodes and the rest were read, for errors."""


def from_data(data: RecordedData, *, constants: bool = False, values: bool = True) -> Recorded:
    """Return the graph that data stands for. The arguments and errors are those of `load`."""
    where = data.graph_place
    try:
        graph = graph_of(data.nodes)
    except RecordError as error:
        raise RecordError(error.text, f"{where}, {error.place}" if error.place else where) from error
    except _MALFORMED as error:
        raise RecordError(f"this is no graph ({_short(error)})", where) from error
    try:
        made = _described(data, graph, constants, values)
    except RecordError as error:
        raise RecordError(error.text, data.meta_place) from error
    except _MALFORMED as error:
        raise RecordError(f"this describes no inputs and modes ({_short(error)})", data.meta_place) from error
    with made.modes.set():
        ExampleValues(made.subgraph.gm, where).run_on(made.subgraph.example_inputs)
    return made


def _described(data: RecordedData, graph: torch.fx.Graph, constants: bool, values: bool) -> Recorded:
    """Return a graph with its inputs, as data describes them."""
    meta = data.meta
    inputs = [input_of(each, data.contents, values) for each in meta["inputs"]]
    placeholders = list(graph.find_nodes(op="placeholder"))
    for node, each in zip(placeholders, meta["inputs"], strict=True):
        if each["static"]:
            node.meta["static_input"] = True
    gm = graph_module(torch.nn.Module(), graph)
    mutated = frozenset(placeholders[int(position)].name for position in meta["effects"]["mutated"])
    note_effects(gm, Effects(mutated, bool(meta["effects"]["random"])))
    subgraph = Subgraph(gm, inputs, constants=constants)
    return Recorded(subgraph, CaptureModes.of(meta["modes"]), int(meta["threads"]), str(meta["source"]))


def _object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raises RecordError for a file that has none of this format."""
    try:
        found = json.loads(path.read_text())
    except OSError as error:
        raise RecordError(f"it cannot be read ({error.strerror})", str(path)) from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"it is no JSON, or has been cut off ({_short(error)})", str(path)) from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise RecordError(f"it is no recorded graph of format {FORMAT}", str(path))
    return found


class ExampleValues(torch.fx.Interpreter):
    """Gives each node of a graph the fake tensor, or the number, that it stands for."""

    def __init__(self, gm: torch.fx.GraphModule, where: str) -> None:
        """Make the interpreter. where: the file, for errors."""
        super().__init__(gm)
        self.where = where
        self.extra_traceback = False
        self.numbers = {node: index for index, node in enumerate(gm.graph.nodes)}

    def run_on(self, inputs: Sequence[Any]) -> None:
        """Run on fake tensors. Raises RecordError for the node whose operator fails."""
        mode = FakeTensorMode()
        fakes = [static_fake(mode, each) if isinstance(each, torch.Tensor) else each for each in inputs]
        with mode:
            self.run(*fakes)

    def run_node(self, n: torch.fx.Node) -> Any:
        try:
            value = super().run_node(n)
        except Exception as error:
            place = f"{self.where}, node {self.numbers[n]}"
            raise RecordError(f"{n.op} {n.target} fails here ({_short(error)})", place) from error
        if n.op != "output":
            n.meta["example_value"] = value
        return value


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]
