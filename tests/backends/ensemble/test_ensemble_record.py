"""A recorded graph comes back as it was, and whatever else its files say is refused with the file and the node."""

from __future__ import annotations

import itertools
import json
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils import _pytree as pytree

import torchdynamo
from torchdynamo.backends.ensemble import operator_names
from torchdynamo.backends.ensemble.identity import graph_hash
from torchdynamo.backends.ensemble.recorded import CONTENTS, GRAPH, META, Recorded, load
from torchdynamo.backends.ensemble.subgraph import Subgraph
from torchdynamo.errors import RecordError, TorchDynamoWarning

Fn = Callable[..., Any]


def tanh(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x)


class Kept:
    """A backend that keeps the graphs it is given."""

    def __init__(self) -> None:
        self.seen: list[tuple[torch.fx.GraphModule, list[Any], str | None]] = []

    def __call__(self, gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        self.seen.append((gm, inputs, graph_hash(Subgraph(gm, inputs))))
        return gm.forward


def record(folder: Path, fn: Fn, *args: Any, data: bool = True, **settings: Any) -> Kept:
    kept = Kept()
    torchdynamo.reset()
    with torchdynamo.record(folder, data=data):
        torchdynamo.compile(fn, backend=kept, **settings)(*args)
    return kept


def loaded(folder: Path) -> Recorded:
    (path,) = folder.iterdir()
    return load(path)


def numbers(x: torch.Tensor, index: torch.Tensor) -> Any:
    y = F.gelu(x, approximate="tanh")[..., 1:3].to(torch.float64)
    z = torch.full((2, 2), float("-inf"), device="cpu")
    z = torch.cat([y.sum(0, keepdim=True), y]).clamp(min=-2.5) * z.shape[0] - float(2**70)
    return {"a": z, "b": (F.embedding(index, x), x.T, x.new_ones(2), torch.arange(3)), "c": F.max_pool2d(x[None], 2)}


def writing(x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    x[0] = 3.0
    return x.mul_(2).sum()


@pytest.mark.parametrize("fn", [numbers, writing])
@pytest.mark.parametrize("grad", [True, False])
def test_graph_comes_back_to_the_same_bits(fn: Fn, grad: bool, tmp_path: Path) -> None:
    x, index = torch.randn(8, 4).t().contiguous().t(), torch.tensor([1, 0, 7])
    with torch.set_grad_enabled(grad):
        ((gm, inputs, name),) = record(tmp_path, fn, x.clone(), index).seen
        found = loaded(tmp_path)
        assert graph_hash(found.subgraph) == name == next(tmp_path.iterdir()).name
        inputs = [x.clone(), *inputs[1:]]
        have, want = (pytree.tree_leaves(run(*given)) for run, given in runs(gm, inputs, found))
        assert len(want) == len(have) and all(
            torch.equal(a, b) and a.stride() == b.stride() for a, b in zip(want, have)
        )
        assert gm.graph.output_node().args[0] is not None
        assert found.subgraph.effects.mutated == (frozenset({"input_0"}) if fn is writing else frozenset())


def runs(gm: Any, inputs: list[Any], found: Recorded) -> list[tuple[Fn, list[Any]]]:
    given = found.subgraph.example_inputs
    if found.subgraph.effects.mutated:
        given = [inputs[0].clone(), *given[1:]]  # what was recorded had not been written to either, in another order
    return [(found.subgraph.gm.forward, given), (gm.forward, inputs)]


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64)

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.linear(x[index])))


def test_without_data_only_statistics_of_floats_are_kept(tmp_path: Path) -> None:
    model, x, index = Model().eval(), torch.rand(64, 64) + 5, torch.arange(64).flip(0)
    model.norm.running_var.uniform_(0.5, 2.0)
    with torch.no_grad():
        ((_, inputs, name),) = record(tmp_path, model, x, index, data=False).seen
        found = loaded(tmp_path)
        assert graph_hash(found.subgraph) == name
    assert (tmp_path / name / CONTENTS).stat().st_size == index.numel() * 8
    for mine, its, node in zip(inputs, found.subgraph.example_inputs, found.subgraph.placeholders):
        assert (mine.shape, mine.stride(), mine.dtype, type(mine)) == (its.shape, its.stride(), its.dtype, type(its))
        assert bool(node.meta.get("static_input")) == (mine is not x and mine is not index)
        if not mine.is_floating_point():
            assert torch.equal(mine, its)
        else:
            assert mine.min() <= its.min() and its.max() <= mine.max()
            assert abs(mine.mean() - its.mean()) < 0.1 and abs(mine.std() - its.std()) < 0.1
        assert mine.numel() == 1 or not mine.is_floating_point() or mine.std() == 0 or not torch.equal(mine, its)
    again = load(tmp_path / name).subgraph.example_inputs
    assert all(torch.equal(a, b) for a, b in zip(again, found.subgraph.example_inputs))


def test_layouts_come_back(tmp_path: Path) -> None:
    given = [torch.randn(3, 4).t(), torch.randn(3, 1).expand(3, 5), torch.randn(0, 2), torch.tensor(3.0), torch.ones(2)]
    given += [
        torch.randn(4, 4, dtype=torch.bfloat16)[::2, 1:],
        torch.tensor([True, False]),
        torch.full((2,), -torch.inf),
    ]

    def fn(*args: torch.Tensor) -> Any:
        return [each + 1 for each in args]

    record(tmp_path, fn, *given)
    for mine, its in zip(given, loaded(tmp_path).subgraph.example_inputs):
        assert torch.equal(mine, its) and mine.stride() == its.stride() and mine.dtype == its.dtype


def test_modes_are_those_of_the_capture(tmp_path: Path) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x @ x

    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        ((_, _, name),) = record(tmp_path, fn, torch.randn(4, 4)).seen
    found = loaded(tmp_path)
    assert graph_hash(found.subgraph) != name and found.threads == torch.get_num_threads()
    with found.as_captured():
        assert graph_hash(found.subgraph) == name
        assert found.subgraph.gm.forward(*found.subgraph.example_inputs)[0].dtype == torch.bfloat16
        assert torch.is_inference_mode_enabled()
    assert found.subgraph.results[0].dtype == torch.bfloat16 and found.subgraph.example_inputs[0].is_inference()
    assert f"line {fn.__code__.co_firstlineno + 1}" in found.source


def test_sizes_that_vary_are_recorded_as_they_are_now(tmp_path: Path) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0] * 2, -1) + x.shape[1]

    record(tmp_path, fn, torch.randn(3, 4), dynamic=True)
    found = loaded(tmp_path).subgraph
    assert not found.is_symbolic and len(found.example_inputs) == 1 and found.results[0].shape == (6, 2)


def test_same_graph_is_recorded_once(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        record(tmp_path, tanh, torch.full((3,), value))
    assert len(list(tmp_path.iterdir())) == 1


def test_recording_ends_with_its_block_or_by_stop(tmp_path: Path) -> None:
    recording = torchdynamo.record(tmp_path)
    recording.stop()
    recording.stop()
    torchdynamo.compile(tanh, backend="eager")(torch.ones(2))
    assert list(tmp_path.iterdir()) == []


def nested(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


def spread(x: torch.Tensor) -> torch.Tensor:
    return torch.fft.fft(torch.complex(x, x))


def test_what_cannot_be_recorded_is_a_line_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "torchdynamo.record")
    record(tmp_path, nested, torch.ones(3))
    record(tmp_path, lambda x: x * 2, torch.randn(2, dtype=torch.complex64), data=False)
    record(tmp_path, lambda x: x * 2, torch.randn(4).as_strided((3, 2), (1, 1)))
    texts = [each.getMessage() for each in caplog.records if "not recorded" in each.getMessage()]
    assert len(texts) == 3 and "complex" in texts[1] and "overlaps" in texts[2]
    assert list(tmp_path.iterdir()) == []


def test_folder_that_cannot_be_written_is_one_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with torchdynamo.record(tmp_path / "file"):
        with pytest.warns(TorchDynamoWarning, match="no longer recorded"):
            assert torchdynamo.compile(tanh, backend="eager")(torch.zeros(2)).shape == (2,)
        torchdynamo.reset()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert torchdynamo.compile(tanh, backend="eager")(torch.zeros(3)).shape == (3,)


@pytest.mark.long
def test_variable_records_a_process(tmp_path: Path) -> None:
    program = "import torch, torchdynamo; torchdynamo.compile(lambda x: x.tanh(), backend='eager')(torch.ones(3))"
    environment = {**os.environ, "TORCHDYNAMO_RECORD": str(tmp_path / "graphs")}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    assert loaded(tmp_path / "graphs").subgraph.gm.forward(torch.zeros(3))[0].tolist() == [0, 0, 0]


# ---- files that say something else ----------------------------------------------------------------------------------


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    record(tmp_path, lambda x, w: torch.tanh(x.view(4) @ w)[1:], torch.ones(2, 2), torch.arange(16.0).view(4, 4))
    (path,) = tmp_path.iterdir()
    return path


def edited(file: Path, *keys: Any, to: Any) -> None:
    data = at = json.loads(file.read_text())
    for key in keys[:-1]:
        at = at[key]
    at[keys[-1]] = to
    file.write_text(json.dumps(data))


FORBIDDEN = (
    "os.system builtins.eval builtins.exec builtins.getattr builtins.__import__ torch.load torch.save torch.compile "
    "torch.from_file torch.ops.aten.from_file torch.ops.aten.from_file.default torch.ops.aten.save.default "
    "torch.ops.load_library torch.ops.load_library.__globals__ torch.classes.load_library torch.hub.load "
    "torch.jit.load operator.methodcaller operator.attrgetter _operator.attrgetter _operator.methodcaller "
    "_operator.call subprocess.run torch.serialization.load torch.utils.cpp_extension.load torch.import_ir_module "
    "torch._C._VariableFunctions.from_file torch.set_default_device pickle.loads torchdynamo.compile"
).split()


def refused(file: Path, keys: list[Any], values: Sequence[Any], text: str) -> list[str]:
    """Put each of these in its place in a file, and return the errors that reading it raises."""
    kept, found = file.read_bytes(), []
    for value in values:
        edited(file, *keys, to=value)
        with pytest.raises(RecordError, match=text) as caught:
            load(file.parent)
        found.append(str(caught.value))
        file.write_bytes(kept)
    return found


def test_targets_that_are_no_operators_are_refused(graph: Path) -> None:
    texts = refused(graph / GRAPH, ["nodes", 4, "target"], FORBIDDEN, r"graph\.json, node 4: ")
    assert all(name in text for name, text in zip(FORBIDDEN, texts) if name != "builtins.getattr")


def test_methods_that_are_no_operators_are_refused(graph: Path) -> None:
    names = ["__class__", "__reduce_ex__", "apply_", "register_hook", "_make_subclass", "x; y", ""]
    refused(graph / GRAPH, ["nodes", 2, "target"], names, r"node 2: .* is no method of tensors")


def test_attributes_that_hold_no_data_are_refused(graph: Path) -> None:
    names = ["__class__", "__dict__", "_backward_hooks", "register_hook", "add_", 3]
    call = {"op": "call_function", "target": "builtins.getattr", "kwargs": {}}
    nodes = [{**call, "args": [{"node": 0}, name]} for name in names]
    refused(graph / GRAPH, ["nodes", 4], nodes, r"node 4: .* is no attribute of tensors")


MALFORMED: dict[str, tuple[list[Any], Any]] = {
    "operator that is gone": (["nodes", 4, "target"], "torch.ops.mylib.gone.default"),
    "namespace of os": (["nodes", 4, "target"], "torch.ops.os.system"),
    "function that is gone": (["nodes", 4, "target"], "torch.gone"),
    "code as a keyword": (["nodes", 4, "kwargs"], {"a=__import__('os'), b": 1}),
    "keyword": (["nodes", 4, "kwargs"], {"lambda": 1}),
    "node that comes later": (["nodes", 4, "args"], [{"node": 7}]),
    "node of no number": (["nodes", 4, "args"], [{"node": "0"}]),
    "argument of two kinds": (["nodes", 4, "args"], [{"node": 0, "torch": "float32"}]),
    "argument of no kind": (["nodes", 4, "args"], [{"pickle": "gASV"}]),
    "name that is no dtype": (["nodes", 4, "args"], [{"torch": "load"}]),
    "device": (["nodes", 4, "args"], [{"device": "nowhere"}]),
    "arguments that do not fit": (["nodes", 4, "args"], [1, 2, 3]),
    "kind of node": (["nodes", 4, "op"], "call_module"),
    "attribute": (["nodes", 4, "op"], "get_attr"),
    "no node": (["nodes", 4], 5),
    "no nodes": (["nodes"], None),
    "no output": (["nodes"], [{"op": "placeholder"}, {"op": "placeholder"}]),
    "other format": (["format"], 2),
}


def test_malformed_graphs_are_refused(graph: Path) -> None:
    for keys, value in MALFORMED.values():
        refused(graph / GRAPH, keys, [value], r"graph\.json")


def test_malformed_inputs_are_refused(graph: Path) -> None:
    for keys, value in [
        (["inputs", 0, "size"], [3, 3, 3]),
        (["inputs", 0, "dtype"], "float32"),
        (["inputs", 0, "kind"], "module"),
        (["inputs", 0, "contents", "offset"], 10**6),
        (["inputs", 0, "stride"], ["a", "b"]),
        (["inputs"], []),
        (["modes", "autocast"], None),
        (["modes"], {}),
        (["effects", "mutated"], [17]),
        (["threads"], "many"),
    ]:
        refused(graph / META, keys, [value], r"meta\.json|graph\.json, node")


def test_damaged_files_are_refused(graph: Path) -> None:
    for name, damage in itertools.product([GRAPH, META, CONTENTS], ["cut off", "gone", "garbage"]):
        content = (graph / name).read_bytes()
        (graph / name).unlink()
        if damage != "gone":
            (graph / name).write_bytes(content[: len(content) // 2] if damage == "cut off" else b"\x80\x04" * 8)
        with pytest.raises(RecordError, match=r"graph\.json|meta\.json"):
            load(graph)
        (graph / name).write_bytes(content)


def test_every_name_of_an_operator_leads_back_to_it() -> None:
    names = operator_names._functions()
    assert len(names) > 1000 and not any("eval" in name or "load" in name or "save" in name for name in names)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, function in names.items():
            assert operator_names.name_of_function(function) == name
    for op in (torch.ops.aten.add.Tensor, torch.ops.aten.relu):
        assert operator_names.function_named(operator_names.name_of_function(op)) is op
