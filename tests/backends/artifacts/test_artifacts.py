"""Graphs compiled in one process are called in another, which has no compiler, and do the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from programs import PROGRAMS

from torchdynamo.backends import artifacts
from torchdynamo.backends.artifacts.artifact import BlobFile, CannotStore
from torchdynamo.backends.artifacts.inductor import kernels, wrapper_code

SCRIPT = Path(__file__).parent / "process.py"
# Compiled in each run of the tests; the others in long runs.
QUICK = frozenset(
    "pointwise sizes_that_vary views_of_inputs inputs_that_are_written constants random_numbers indices a_gradient "
    "results_of_other_inputs_each gradients_whose_sizes_vary a_buffer_that_is_written".split()
)
STORED = [name for name, program in PROGRAMS.items() if not program.reason]
RAISES = {"indices": [None, "RuntimeError", "RuntimeError"], "integer_division": [None, "RuntimeError"]}


def marked(names: Iterable[str]) -> list[Any]:
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in names]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("artifacts")


def run(way: str, folder: Path, *names: str) -> Any:
    command = [sys.executable, str(SCRIPT), way, str(folder), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def written(request: pytest.FixtureRequest, folder: Path) -> dict[str, list[str | None]]:
    """By program that a test of this run is about, for each graph: why it was not stored, None if it was."""
    asked = [item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")]
    found: dict[str, list[str | None]] = run("write", folder, "inductor", *sorted(QUICK | ({*asked} & PROGRAMS.keys())))
    return found


@pytest.fixture(scope="module")
def told(folder: Path, written: object) -> Any:
    return run("read", folder)


@pytest.mark.parametrize("name", marked(PROGRAMS))
def test_what_is_stored(written: dict[str, list[str | None]], name: str) -> None:
    reason = PROGRAMS[name].reason
    assert written[name]
    for given in written[name]:
        assert reason in (given or "") if reason else given is None, given


@pytest.mark.parametrize("name", marked(STORED))
def test_what_is_loaded_does_the_same(told: Any, name: str) -> None:
    for graph, found in told["programs"].items():
        if graph.partition(".")[0] == name:
            assert found["compiled"] == []


@pytest.mark.parametrize("name", marked(name for name in STORED if PROGRAMS[name].equal and name not in RAISES))
def test_what_is_loaded_does_what_eager_does(told: Any, name: str) -> None:
    for graph, found in told["programs"].items():
        if graph.partition(".")[0] == name:
            assert found["eager"] == []


@pytest.mark.parametrize("name", marked(RAISES))
def test_checks_of_numbers_still_raise(told: Any, name: str) -> None:
    """What they raise is an error of the backend, upon which eager runs and raises its own."""
    assert told["programs"][f"{name}.0"]["raised"] == RAISES[name]


def test_each_program_has_been_called(written: dict[str, list[str | None]], told: Any) -> None:
    for name in written.keys() & STORED:
        calls = [found["calls"] for graph, found in told["programs"].items() if graph.partition(".")[0] == name]
        assert sum(calls) == len(PROGRAMS[name].calls), name


def test_no_compiler_is_imported(told: Any) -> None:
    compilers = ("torch._inductor", "torch._dynamo", "torch._functorch.aot_autograd", "triton")
    assert [name for name in told["imported"] if name.startswith(compilers)] == []
    assert not any(name.startswith("torchdynamo.artifact") for name in told["imported"])


# -- damage -----------------------------------------------------------------------------------------------------------
def stored(folder: Path, name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / f"{name}.0.json").read_text())
    return data


def damaged(content: bytes) -> dict[str, bytes]:
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    return {"cut": content[: len(content) // 2], "empty": b"", "longer": content + b"\0", "flipped": bytes(flipped)}


@pytest.mark.parametrize("damage", damaged(b"0123"))
@pytest.mark.parametrize("which", ["bytecode", "kernel", "constant"])
def test_a_damaged_blob_is_not_used(
    folder: Path, written: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str, damage: str
) -> None:
    def must_not_load(path: str) -> Any:
        raise AssertionError("a damaged library was loaded")

    monkeypatch.setattr(kernels, "_loaded", {})
    data = stored(folder, "constants")
    assert data["forward"]["constants"]
    code = data["forward"]
    bad = {
        "bytecode": code["bytecode"],
        "kernel": next(iter(code["kernels"].values())),
        "constant": next(iter(code["constants"].values()))["memory"],
    }[which]
    if which == "kernel":
        monkeypatch.setattr(kernels, "kernel_at", must_not_load)
    for name in os.listdir(folder):
        if "." not in name:
            (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / bad).write_bytes(damaged((folder / bad).read_bytes())[damage])
    if which == "kernel":
        others = {name: each for name, each in code["kernels"].items() if each == bad}
        code["kernels"] = others
    with pytest.raises(artifacts.BadArtifact):
        artifacts.load(data, lambda name: BlobFile(str(tmp_path / name), (tmp_path / name).read_bytes()))


def test_a_library_without_a_kernel_is_refused(tmp_path: Path) -> None:
    name = artifacts.digest_of(b"no library")
    (tmp_path / name).write_bytes(b"no library")
    with pytest.raises(artifacts.BadArtifact):
        kernels.load_kernel(name, lambda name: BlobFile(str(tmp_path / name), (tmp_path / name).read_bytes()))


@pytest.mark.parametrize("field", ["kind", "format", "forward", "runtime"])
def test_data_without_a_field_is_refused(folder: Path, written: object, field: str) -> None:
    data = stored(folder, "pointwise")
    del data[field]
    with pytest.raises(artifacts.BadArtifact):
        artifacts.load(data, lambda name: BlobFile(str(folder / name), (folder / name).read_bytes()))


def test_the_environment_is_as_before(folder: Path, written: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_loaded", {})
    for before in (None, "7"):
        monkeypatch.delenv(kernels.ADDRESS, raising=False)
        if before is not None:
            monkeypatch.setenv(kernels.ADDRESS, before)
        artifacts.load(
            stored(folder, "pointwise"), lambda name: BlobFile(str(folder / name), (folder / name).read_bytes())
        )
        assert os.environ.get(kernels.ADDRESS) == before


# -- what Inductor writes ---------------------------------------------------------------------------------------------
HEAD = "import math\nimport torch\naten = torch.ops.aten\nfrom torch._inductor.x import helper\n"
BODIES = {
    "return helper(args)": "'helper'",
    "return torch.ops.prims.sin(args)": "torch.ops.prims.sin",
    "return torch.ops.others.sin(args)": "torch.ops.others.sin",
    "return aten.no_such_operator(args)": "aten.no_such_operator",
    "return torch.compile(args)": "torch.compile",
    "return open(args)": "'open'",
    "return args._cdata": "args._cdata",
    "import os": "import os",
    "return kernel(args)": "async_compile.triton",
    "return missing(args)": "'missing'",
}


@pytest.mark.parametrize("body", BODIES)
def test_a_name_without_a_meaning_is_the_reason(body: str) -> None:
    source = f"{HEAD}kernel = async_compile.triton('k', 'source')\ndef call(args):\n    {body}\n"
    with pytest.raises(CannotStore, match=BODIES[body]):
        wrapper_code.read(source)


@pytest.mark.parametrize("line", ["print(1)", "import atexit; atexit.register(call)", "del call", "call = 1\ncall = 2"])
def test_what_happens_when_the_code_is_loaded_is_a_reason(line: str) -> None:
    with pytest.raises(CannotStore):
        wrapper_code.read(f"{line}\ndef call(args):\n    return args\n")


def test_a_name_that_stands_for_something_else_is_a_reason() -> None:
    for bound in ("import cmath as math", "math = 1", "from elsewhere import math"):
        with pytest.raises(CannotStore, match="'math'"):
            wrapper_code.read(f"{bound}\ndef call(args):\n    return math.pi\n")


def test_what_the_entry_does_not_reach_is_left_behind() -> None:
    source = (
        f"{HEAD}def used(x):\n    return x\ndef call(args):\n    return used(args)\ndef get_args():\n    helper()\n"
    )
    code = wrapper_code.read(source)
    assert "get_args" not in code.source and "def used" in code.source


def test_what_other_backends_return_is_not_stored() -> None:
    assert isinstance(artifacts.dump(lambda x: x), artifacts.NotStored)
