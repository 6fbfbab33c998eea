"""Graphs of ATen operators compiled in one process run in another, and do the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from programs import PROGRAMS

from torchdynamo.backends import artifacts
from torchdynamo.backends.artifacts import aten, values
from torchdynamo.backends.artifacts.artifact import BadArtifact, BlobFile
from torchdynamo.backends.registry import lookup
from torchdynamo.backends.split_backward import SplitGraph
from torchdynamo.errors import RecordError

SCRIPT = Path(__file__).parent / "process.py"
QUICK = (
    "views_of_inputs inputs_that_are_written an_input_with_other_sizes numbers_that_vary constants "
    "a_tensor_of_the_program random_numbers indices a_gradient gradients_whose_sizes_vary a_buffer_that_is_written"
).split()
REFUSED = {"views_with_gradients"}


def run(way: str, folder: Path, *names: str) -> Any:
    done = subprocess.run([sys.executable, str(SCRIPT), way, str(folder), *names], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("names", [QUICK, pytest.param(sorted(PROGRAMS), marks=pytest.mark.long)], ids=["some", "all"])
def test_what_is_loaded_does_what_eager_does(tmp_path: Path, names: list[str]) -> None:
    reasons = run("write", tmp_path, "aot_eager", *names)
    assert {name for name, graphs in reasons.items() if any(graphs)} == REFUSED & {*names}
    told = run("read", tmp_path)
    assert {graph.partition(".")[0] for graph in told["programs"]} == {*names} - REFUSED
    different = {graph: found["eager"] for graph, found in told["programs"].items() if found["eager"]}
    assert not {graph: each for graph, each in different.items() if PROGRAMS[graph.partition(".")[0]].equal}
    assert not {graph: found["compiled"] for graph, found in told["programs"].items() if found["compiled"]}
    compilers = ("torch._inductor", "torch._dynamo", "torch._functorch.aot_autograd")
    assert not [name for name in told["imported"] if name.startswith(compilers)]


def test_a_function_that_is_replaced_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    name = aten.name_of(torch.add)
    monkeypatch.setattr(torch, "add", torch.sub)
    assert aten.named(name)(torch.ones(1), 1).item() == 2


@pytest.mark.parametrize("function", [torch.nn.functional.softmax, print, torch.compile, lambda x: x])
def test_what_is_no_operator_has_no_name(function: Any) -> None:
    with pytest.raises(RecordError):
        aten.name_of(function)


@pytest.mark.parametrize(
    "name",
    [
        *["builtins.open", "ours.open", "operator.no.such", "operator.aten.no_such", "os.system", "nothing", ""],
        *["operator.call", "operator.attrgetter", "operator.methodcaller", "operator.setitem", "math.__loader__"],
        *["functions.__class__", "functions.__getattribute__", "methods.__setattr__", "methods.__reduce_ex__"],
        *["functions.from_file", "operator.aten.from_file.default", "operator.aten.add", "nn.__init__"],
    ],
)
def test_a_name_without_a_function_is_refused(name: str) -> None:
    with pytest.raises(BadArtifact):
        aten.named(name)


def test_damaged_nodes_are_refused() -> None:
    with torch.no_grad():
        gm = torch.fx.symbolic_trace(lambda x: (x.sin() + 1,))
        made = artifacts.dump(lookup("aot_eager")(gm, [torch.ones(2)]))
    assert isinstance(made, artifacts.Artifact), made
    name = made.data["forward"]["nodes"]
    for content in (made.blobs[name][:-5], made.blobs[name] + b"]", b""):
        with pytest.raises(BadArtifact):
            artifacts.load(made.data, lambda _, content=content: BlobFile("", content))
    for broken in (b"[]", b"7", b'[{"op": "call_function"}]', b"\xff", b"[" * 100_000):
        data = {**made.data, "forward": {**made.data["forward"], "nodes": artifacts.digest_of(broken)}}
        with pytest.raises(BadArtifact):
            artifacts.load(data, lambda _, broken=broken: BlobFile("", broken))


def test_constants_do_not_obey_a_default_device() -> None:
    blobs: dict[str, bytes] = {}
    for tensor in (torch.tensor([1.0, float("nan")]), torch.empty(0, 2)):
        with torch.device("meta"):
            data = values.encode_tensor(tensor, blobs)
            again = values.decode_tensor(data, lambda name: BlobFile("", blobs[name]))
        torch.testing.assert_close(again, tensor, rtol=0, atol=0, equal_nan=True)
    with pytest.raises(BadArtifact, match="does not fit"):
        values.decode_tensor({**data, "strides": [1]}, lambda name: BlobFile("", blobs[name]))


def test_a_graph_in_parts_says_why_it_is_not_stored() -> None:
    gm = torch.fx.symbolic_trace(lambda x, y: (x * 2, y.sin()))
    made = artifacts.dump(SplitGraph(gm, [], lookup("aot_eager")))
    assert isinstance(made, artifacts.NotStored) and "in parts" in made.reason
