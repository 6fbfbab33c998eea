"""`TORCHDYNAMO_REPRO` and `python -m torchdynamo repro`, on backends that fail."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import broken_backends
import pytest
import torch

import torchdynamo
from torchdynamo.__main__ import main
from torchdynamo.exc import BackendError, FallbackWarning, VerificationError

BACKENDS = Path(__file__).parent / "broken_backends.py"


def python(*arguments: object, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    paths = [os.path.abspath(path) for path in sys.path if path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **variables}
    line = [sys.executable, *map(str, arguments)]
    return subprocess.run(line, env=environment, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


def arguments_in(text: str) -> list[str]:
    """The arguments of the command that a message ends with."""
    found = re.search(r"^To repeat it: python -m torchdynamo (repro .*)$", text, re.MULTILINE)
    assert found, text
    return shlex.split(found[1])


def recorded(folder: Path, requires_grad: bool = False, **settings: object) -> str:
    """Record the graph of `long_way`; return its folder."""
    compiled = torchdynamo.compile(broken_backends.long_way, backend="eager", **settings)
    with torchdynamo.record(folder):
        compiled(*broken_backends.arguments(requires_grad))
    (name,) = folder.iterdir()
    return str(name)


@pytest.mark.parametrize(
    ("backend", "settings", "expected"),
    [
        (broken_backends.refusing, {"fullgraph": True}, BackendError),
        (broken_backends.refusing, {}, FallbackWarning),
        (broken_backends.raising, {}, FallbackWarning),
        (broken_backends.raising, {"dynamic": True}, FallbackWarning),
        (broken_backends.wrong, {"verify": True}, VerificationError),
        (broken_backends.wrong, {"verify": True, "dynamic": True}, VerificationError),
    ],
)
def test_a_failure_ends_with_the_command(backend, settings, expected, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TORCHDYNAMO_REPRO", str(tmp_path / "a folder"))
    settings = dict(settings)
    with torchdynamo.config.patch(verify_correctness=settings.pop("verify", False)):
        compiled = torchdynamo.compile(broken_backends.long_way, backend=backend, **settings)
        if issubclass(expected, Warning):
            with pytest.warns(expected) as shown:
                compiled(*broken_backends.arguments())
            text = str(shown[0].message)
            (problem,) = torchdynamo.report()["problems"]
            assert problem["text"] == text and f"{problem['graph']} " in text
        else:
            with pytest.raises(expected) as error:
                compiled(*broken_backends.arguments())
            text = str(error.value)
    verb, folder, *rest = arguments_in(text)
    assert (verb, rest) == ("repro", ["--backend", f"broken_backends:{backend.__name__}"])
    assert sorted(each.name for each in Path(folder).iterdir()) == ["graph.json", "inputs.bin", "meta.json"]


def test_without_the_variable_nothing_is_copied_and_nothing_is_said(monkeypatch) -> None:
    monkeypatch.delenv("TORCHDYNAMO_REPRO", raising=False)
    monkeypatch.setattr("copy.deepcopy", lambda value: pytest.fail(f"a {type(value)} was copied"))
    with pytest.warns(FallbackWarning) as shown:
        torchdynamo.compile(lambda x: torch.relu(x), backend=broken_backends.refusing)(torch.ones(3))
    assert "repro" not in str(shown[0].message)


def test_a_graph_is_copied_once(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TORCHDYNAMO_REPRO", str(tmp_path))
    copies = []
    original = torchdynamo.backends.failed_graph.FailedGraph

    class Counted(original):
        def __init__(self, gm, backend):
            copies.append(gm)
            super().__init__(gm, backend)

    monkeypatch.setattr("torchdynamo.backends.failed_graph.FailedGraph", Counted)
    torchdynamo.compile(lambda x: x.sin(), backend=broken_backends.wrong)(torch.ones(3))
    assert len(copies) == 1


def test_a_graph_that_cannot_be_recorded_is_said_so(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TORCHDYNAMO_REPRO", str(tmp_path))
    with pytest.warns(FallbackWarning, match="cannot be recorded in .*: input 0 is complex"):
        torchdynamo.compile(lambda x: torch.relu(x.real), backend=broken_backends.refusing)(
            torch.ones(3, dtype=torch.complex64)
        )


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        pytest.param("wrong", 1, "gives wrong results: .*Mismatched elements", marks=pytest.mark.long),
        pytest.param("raising", 1, "raises: .*OverflowError: a relu ran", marks=pytest.mark.long),
        ("deadly", 1, "ends the process: SIGKILL"),
        pytest.param("detached", 1, "gives wrong results: 0 gradients for eager's 1", marks=pytest.mark.long),
        ("eager", 0, "nothing fails"),
        pytest.param("missing", 2, "there is no backend", marks=pytest.mark.long),
    ],
)
def test_a_script_runs_alone(name: str, status: int, said: str, tmp_path: Path) -> None:
    folder = recorded(tmp_path / "graphs", requires_grad=name in ("detached", "eager"))
    script = tmp_path / "script.py"
    backend = name if name == "eager" else f"{BACKENDS}:{name}"
    assert main(["repro", folder, "--backend", backend, "--out", str(script)]) == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    script = script.rename(elsewhere / "moved.py")
    done = python(script, cwd=elsewhere)
    assert done.returncode == status, done.stderr
    assert re.search(said, done.stdout + done.stderr, re.DOTALL)


def test_the_command_writes_and_runs_nothing(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    folder = recorded(tmp_path / "graphs")
    assert main(["repro", str(tmp_path / "graphs"), "--backend", "nothing.that:exists"]) == 0
    (script,) = tmp_path.glob("repro_*.py")
    assert script.stem == f"repro_{Path(folder).name[:8]}"
    assert "operators; to run it: python" in capsys.readouterr().out
    text = script.read_text()
    assert "graph.call_function(torch.relu, (" in text
    assert "BACKEND, SETTINGS, ACCURACY = 'nothing.that:exists', {}, False" in text


@pytest.mark.parametrize("given", [["/nowhere"], ["."]])
def test_a_folder_without_a_graph_is_said_so(given, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["repro", *given]) == 2
    assert "has no recorded graph" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "settings", "flags", "said"),
    [
        ("wrong", {"dynamic": True}, (), "gives wrong results"),
        pytest.param("imprecise", {}, ("--accuracy",), "its error against float64 is", marks=pytest.mark.long),
        pytest.param("wrong", {"requires_grad": True}, (), "gives wrong results", marks=pytest.mark.long),
        pytest.param("refusing", {}, (), "does not compile", marks=pytest.mark.long),
        pytest.param("raising", {}, (), "OverflowError: a relu ran", marks=pytest.mark.long),
        pytest.param("deadly", {}, (), "ends the process: SIGKILL", marks=pytest.mark.long),
        pytest.param("endless", {}, ("--timeout", "3"), "does not end", marks=pytest.mark.long),
    ],
)
def test_a_graph_is_cut_to_the_operator_that_fails(name, settings, flags, said, tmp_path: Path) -> None:
    folder = recorded(tmp_path / "graphs", **settings)
    arguments = ["--minify", "--backend", f"{BACKENDS.name}:{name}", "--out", str(tmp_path / "script.py")]
    done = python("-m", "torchdynamo", "repro", folder, *arguments, *flags, cwd=BACKENDS.parent)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    assert not (BACKENDS.parent / "repro.py").exists()
    lines = (tmp_path / "script.py").read_text().splitlines()
    assert len([line for line in lines if re.search(r"graph\.(placeholder|call_\w+|output)\(", line)]) <= 5
    assert any("torch.relu" in line for line in lines)
    if name != "endless":
        done = python("script.py", cwd=tmp_path)
        assert (done.returncode, said in done.stdout) == (1, True), done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "status", "said"), [("detached", 0, "nothing fails"), ("missing", 2, "there is no backend")]
)
def test_a_graph_that_does_not_fail_is_not_cut(name, status, said, tmp_path: Path) -> None:
    out = tmp_path / "script.py"
    line = ["repro", recorded(tmp_path / "graphs"), "--minify", "--backend", f"{BACKENDS}:{name}", "--out", out]
    done = python("-m", "torchdynamo", *line, cwd=tmp_path)
    assert (done.returncode, said in done.stdout + done.stderr) == (status, True), done.stderr
    assert not out.exists()
