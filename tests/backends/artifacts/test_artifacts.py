"""Graphs compiled in one process are called in another, which has no compiler, and do the same."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from programs import PROGRAMS

from torchdynamo.backends import artifacts
from torchdynamo.backends.artifacts.artifact import BlobFile, CannotStore, NotReady
from torchdynamo.backends.artifacts.inductor import alignment, kernels, triton_kernels, wrapper_code
from torchdynamo.cli.doctor import fault_of

SCRIPT = Path(__file__).parent / "process.py"
# Compiled in each run of the tests; the others in long runs.
QUICK = frozenset(
    "pointwise sizes_that_vary views_of_inputs inputs_that_are_written constants random_numbers indices a_gradient "
    "results_of_other_inputs_each gradients_whose_sizes_vary a_buffer_that_is_written".split()
)
STORED = [name for name, program in PROGRAMS.items() if not program.reason]
# What is wrong with the compiler that CXX names, where kernels crash when they raise (and torch.compile's do, too).
CRASHES = "CXX" in os.environ and fault_of(os.environ["CXX"])
RAISES = {"indices": [None, "RuntimeError", "RuntimeError"], "integer_division": [None, "RuntimeError"]}


def marked(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=marks_of(name)) for name in names]


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    crashes = [pytest.mark.skip(reason=f"CXX {CRASHES}")] if CRASHES and name in RAISES else []
    return crashes + [pytest.mark.long] * (name not in QUICK)


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
    names = (QUICK | ({*asked} & PROGRAMS.keys())) - (RAISES.keys() if CRASHES else set())
    found: dict[str, list[str | None]] = run("write", folder, "inductor", *sorted(names))
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
KERNELS = "kernel = async_compile.triton('k', 'source')\nother = async_compile.multi_kernel('k', [])\n"
BODIES = {
    "return helper(args)": "'helper'",
    "return torch.ops.prims.sin(args)": "torch.ops.prims.sin",
    "return torch.ops.others.sin(args)": "torch.ops.others.sin",
    "return aten.no_such_operator(args)": "aten.no_such_operator",
    "return torch.compile(args)": "torch.compile",
    "return open(args)": "'open'",
    "return args._cdata": "args._cdata",
    "import os": "import os",
    "return kernel(args)": "'kernel' than launch it",
    "return kernel.launchers": "attribute of the kernel 'kernel'",
    "return other(args)": "async_compile.multi_kernel",
    "return torch.cuda.empty_cache()": "torch.cuda.empty_cache",
    "return missing(args)": "'missing'",
}


@pytest.mark.parametrize("body", BODIES)
def test_a_name_without_a_meaning_is_the_reason(body: str) -> None:
    source = f"{HEAD}{KERNELS}def call(args):\n    {body}\n"
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


def test_kernels_are_told_by_who_compiles_them() -> None:
    source = (
        f"{HEAD}{KERNELS}third = async_compile.cpp_pybinding([], 'source')\ndef call(args):\n"
        "    with torch.cuda._DeviceGuard(0):\n        kernel.run(args, stream=0)\n    third(args)\n"
    )
    code = wrapper_code.read(source)
    assert (code.kernels, code.launched) == (("third",), ("kernel",))


# -- kernels of Triton ------------------------------------------------------------------------------------------------
class Static:
    """Stands for torch's launcher of a binary."""

    name, num_warps, shared, arg_tys = "function", 4, 16, "OOi"
    has_global_scratch, has_profile_scratch = True, False

    def run(self, *args: Any) -> None:
        raise AssertionError("nothing is launched while it is written")


def kernel_of_triton(lines: str, count: int = 1, **about: Any) -> Any:
    scope: dict[str, Any] = {"runner": Static().run}
    exec(f"def launcher(a, b, n, stream):\n    {lines}", scope)
    launcher = scope["launcher"]
    launcher.cache_hash, launcher._is_static = "folder", True
    launcher.config = SimpleNamespace(found_by_coordesc=about.pop("found", False))
    heuristic = SimpleNamespace(name="POINTWISE")
    return SimpleNamespace(
        launchers=[launcher] * count, inductor_meta=about, heuristic_type=heuristic, triton_meta={"device": 0}
    )


LAUNCH = "runner(max(1, -(n // -128)), 1, 1, stream, a, b, n)"


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Stand for torch's launcher, and return what it is asked."""
    found: list[Any] = []
    launcher = SimpleNamespace(
        _load_kernel=lambda *args: (found.append(args), (None, 7, 32, 0))[1],
        _launch_kernel=lambda *args: found.append(args),
    )
    monkeypatch.setattr(triton_kernels, "launcher_in_cpp", lambda: launcher)
    monkeypatch.setattr(triton_kernels, "binary_of", lambda *args: b"binary")
    monkeypatch.setattr(triton_kernels, "_loaded", {})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "device", lambda at: contextlib.nullcontext())
    return found


def test_a_kernel_is_launched_as_inductor_launches_it(launched: list[Any], tmp_path: Path) -> None:
    blobs: dict[str, bytes] = {}
    data, code = triton_kernels.encode_launch("kernel", kernel_of_triton(LAUNCH), blobs)
    (digest,) = blobs
    path = tmp_path / digest
    path.write_bytes(blobs[digest])
    read = partial(BlobFile, str(path))
    for _ in range(2):
        kernel = triton_kernels.decode_launch(data, code, lambda name: read(path.read_bytes()))
        kernel.run("x", "y", 300, stream=5)
    expected = (7, 3, 1, 1, 4, 16, "OOiO", ("x", "y", 300, None), 5)
    assert launched == [(str(path), "function", 16, 0), expected, expected]  # loaded once
    triton_kernels._loaded.clear()
    path.write_bytes(b"binarz")
    with pytest.raises(artifacts.BadArtifact):
        triton_kernels.decode_launch(data, code, lambda name: read(path.read_bytes()))
    with pytest.raises(artifacts.BadArtifact):
        triton_kernels.decode_launch({**data, "device": 1}, code, lambda name: read(path.read_bytes()))


def test_kernels_that_are_not_settled_are_stored_later(launched: list[Any]) -> None:
    for kernel in (kernel_of_triton(LAUNCH, count=2), kernel_of_triton(LAUNCH, coordinate_descent_tuning=True)):
        with pytest.raises(NotReady):
            triton_kernels.encode_launch("kernel", kernel, {})
    tuned = kernel_of_triton(LAUNCH, coordinate_descent_tuning=True, found=True)
    assert triton_kernels.encode_launch("kernel", tuned, {})
    assert launched == []


def test_launchers_that_are_not_torchs_are_a_reason(launched: list[Any]) -> None:
    by_triton = kernel_of_triton(LAUNCH)
    by_triton.launchers[0]._is_static = False
    for kernel, reason in (
        (by_triton, "launched by Triton"),
        (kernel_of_triton("runner(open(a))"), "uses"),
        (object(), "nothing launches it"),
    ):
        with pytest.raises(CannotStore, match=reason):
            triton_kernels.encode_launch("kernel", kernel, {})
    assert launched == []


@pytest.mark.parametrize("base", [torch.arange(12.0), torch.arange(12.0)[1:]])
def test_inputs_are_copied_where_inductor_copies_them(base: torch.Tensor) -> None:
    """A graph that writes to one input and reads another, strided one."""
    inductors = pytest.importorskip("torch._inductor.utils")

    def graph(args: list[Any]) -> Any:
        assert [each.data_ptr() % inductors.ALIGNMENT for each in args] == [0, 0]
        args[0].add_(1)
        assert args[1].stride() == (2,)
        return [args[0] * 2, args[1] * 3]

    inner = inductors.align_inputs_from_check_idxs(graph, [0, 1], {0})
    entry, about = alignment.without_alignment(inner)
    assert entry is graph
    assert alignment.without_alignment(graph) == (graph, None)
    ours, theirs = base.clone(), base.clone()
    ours, theirs = (torch.cat((each[:1], each))[1:] if base.storage_offset() else each for each in (ours, theirs))
    made = [run([x, x.clone()[::2]]) for run, x in ((alignment.with_alignment(entry, about), ours), (inner, theirs))]
    assert all(map(torch.equal, *made))
    assert torch.equal(ours, theirs) and torch.equal(ours, base + 1)


def test_what_other_backends_return_is_not_stored() -> None:
    assert isinstance(artifacts.dump(lambda x: x), artifacts.NotStored)
