"""`python -m torchdynamo doctor`, in set-ups that work and in some that are broken."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from apart import command_in_a_fork

from torchdynamo.__main__ import main
from torchdynamo.cli import doctor

TESTS = Path(__file__).parent.parent
PACKAGE = TESTS.parent / "torchdynamo"


def examined(folder: Path, python: str = sys.executable, **variables: str) -> tuple[int, list[dict[str, str]]]:
    """The exit status and the findings in a process of its own, whose caches are in a folder."""
    given = {name: value for name, value in os.environ.items() if not name.startswith(("TORCH", "CXX"))}
    given |= {"XDG_CACHE_HOME": str(folder), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    given |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    given |= {name: value.replace("$PYTHONPATH", given["PYTHONPATH"]) for name, value in variables.items()}
    done = subprocess.run(
        [python, "-m", "torchdynamo", "doctor", "--json"], env=given, capture_output=True, text=True, timeout=300
    )
    return done.returncode, json.loads(done.stdout or f'"{done.stderr}"')


def examined_here(folder: Path, **variables: str) -> tuple[int, list[dict[str, str]]]:
    """The same in a copy of this process, for what the doctor reads when it is asked, not when a process begins."""
    done = command_in_a_fork(
        "doctor",
        "--json",
        **{"XDG_CACHE_HOME": str(folder), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), **variables},
    )
    return done.returncode, json.loads(done.stdout or f'"{done.stderr}"')


def fault(status: int, findings: list[dict[str, str]]) -> dict[str, str]:
    """The one fault beside that of the compiler which this machine names, with one line to type."""
    named = f"{os.environ.get('CXX')} builds code that crashes"
    (only,) = [each for each in findings if each["remedy"] and not each["text"].startswith(named)]
    assert status == 1
    assert "\n" not in only["remedy"]
    return only


def test_nothing_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    status, findings = examined(tmp_path)
    assert (status, [each for each in findings if each["remedy"]]) == (0, [])
    assert {each["check"] for each in findings} >= {"torch", "compiler", "Python.h", "Inductor's cache", "variables"}

    monkeypatch.setenv("TORCHDYNAMO_LOG", "breaks")
    assert main(["doctor"]) == 1
    assert (
        "fault  variables: TORCHDYNAMO_LOG is set, and has no effect on torchdynamo; did you mean TORCHDYNAMO_LOGS?\n"
        "       type: unset TORCHDYNAMO_LOG\n"
    ) in capsys.readouterr().out


def test_another_torch_than_it_was_built_for(tmp_path: Path) -> None:
    other = tmp_path / "torch"
    other.mkdir()
    (other / "__init__.py").write_text("__version__ = '1.13.1'\n")
    found = fault(*examined(tmp_path, PYTHONPATH=f"{tmp_path}{os.pathsep}$PYTHONPATH"))
    assert found["check"] == "torch"
    assert "another torch" in found["text"]
    assert "1.13.1" in found["text"]
    assert "pip install -e . --no-build-isolation" in found["remedy"]


def test_no_torch(tmp_path: Path) -> None:
    """In a process that has the package, and of other packages those that are not found by `site`."""
    given = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PACKAGE.parent), "XDG_CACHE_HOME": str(tmp_path)}
    line = [sys.executable, "-S", "-m", "torchdynamo", "doctor"]
    done = subprocess.run(line, env=given, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert f"fault  torch: torch is not installed in this environment\n       type: {sys.executable}" in done.stdout


def test_no_compiler(tmp_path: Path) -> None:
    found = fault(*examined_here(tmp_path, PATH=str(tmp_path), CXX=""))
    assert found["check"] == "compiler"
    assert found["text"] == "no C++ compiler: g++ is not on PATH"
    assert found["remedy"] == "apt install g++"


def of_compiler(compiler: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """What is found about a compiler that CXX names, and what to type."""
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setattr(
        doctor, "compiler_name", lambda: str(compiler)
    )  # as it is where Inductor is imported after that
    (found,) = doctor.check_compiler()
    return found.text, found.remedy


def test_a_compiler_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "broken++"
    compiler.write_text("#!/bin/sh\ntest \"$1\" = --version && exit 0\necho 'cc1plus: error: no cc1plus' >&2; exit 1\n")
    told = f"{compiler} cannot make a shared library (cc1plus: error: no cc1plus)"
    assert of_compiler(compiler, monkeypatch) == (told, "unset CXX")


def test_a_compiler_whose_code_crashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = tmp_path / "crash.h"
    header.write_text("static struct Crash { Crash() { __builtin_trap(); } } crash;\n")
    compiler = tmp_path / "crashing++"
    compiler.write_text(f'#!/bin/sh\nexec g++ -include {header} "$@"\n')
    told = f"{compiler} builds code that crashes (SIGILL) where it writes a number, as kernels that raise do"
    assert of_compiler(compiler, monkeypatch) == (told, "unset CXX")


def test_no_header(tmp_path: Path) -> None:
    """In a Python that has its library and no folder `include`, as Debian installs it without python3-dev."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "lib").symlink_to(Path(sys.base_prefix, "lib"))
    python: Any = getattr(sys, "_base_executable")  # noqa: B009 - private
    found = fault(*examined(tmp_path, python, PYTHONHOME=str(home)))
    assert found["check"] == "Python.h"
    assert str(home / "include") in found["text"]
    assert found["remedy"] == f"apt install python{sysconfig.get_python_version()}-dev"


def test_a_cache_that_cannot_be_made(tmp_path: Path) -> None:
    """Also for root, who may write anywhere."""
    taken = tmp_path / "taken"
    taken.write_text("")
    found = fault(*examined_here(tmp_path, TORCHINDUCTOR_CACHE_DIR=str(taken / "inductor")))
    assert found["check"] == "Inductor's cache"
    assert found["text"] == f"{taken}/inductor cannot be made: {taken} is a file"
    assert found["remedy"].startswith("export TORCHINDUCTOR_CACHE_DIR=")
    assert fault(*examined(tmp_path, XDG_CACHE_HOME=str(taken)))["check"] == "ensemble's cache"


@pytest.mark.skipif(not os.path.exists("/proc/sys"), reason="needs a folder that nobody can write to")
def test_a_read_only_cache(tmp_path: Path) -> None:
    found = fault(*examined_here(tmp_path, TORCHINDUCTOR_CACHE_DIR="/proc/sys/inductor"))
    assert found["check"] == "Inductor's cache"
    assert found["text"].startswith("/proc/sys/inductor cannot be written to (")
    assert found["remedy"].startswith("export TORCHINDUCTOR_CACHE_DIR=")


def test_a_cache_that_others_may_write_to(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    assert doctor.fault_of_folder(tmp_path, private=True) == f"others may write to {tmp_path}, so it is not used"
    assert doctor.fault_of_folder(tmp_path, private=False) == ""


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LEAST_SPACE", 2**80)
    assert re.search(r"has only \d+ MiB of free space", doctor.fault_of_folder(tmp_path / "a" / "b", private=True))


def test_somebody_elses_frame_evaluator(tmp_path: Path) -> None:
    library = tmp_path / "other_hook.so"
    source = TESTS / "hook" / "other_hook.c"
    include = sysconfig.get_path("include")
    subprocess.run(["cc", "-shared", "-fPIC", f"-I{include}", str(source), "-o", str(library)], check=True)
    start = f"import ctypes\nctypes.PyDLL({str(library)!r}).other_hook_enter()\n"
    (tmp_path / "sitecustomize.py").write_text(start)
    found = fault(*examined(tmp_path, PYTHONPATH=f"{tmp_path}{os.pathsep}$PYTHONPATH"))
    assert found["check"] == "frame evaluator"
    assert str(library) in found["text"]
    assert "importtime" in found["remedy"]


def test_the_variables_that_are_read_are_those_of_the_source() -> None:
    named = {
        name
        for path in PACKAGE.rglob("*.py")
        if path.name != "doctor.py"
        for name in re.findall(r'"(TORCHDYNAMO_[A-Z_]+)"', path.read_text())
    }
    assert named == set(doctor.READ)
    assert set(re.findall(r'"(TORCHDYNAMO_[A-Z_]+)"', (PACKAGE.parent / "setup.py").read_text())) == set(doctor.BUILD)


def test_variables_of_torch_compile() -> None:
    found = doctor.ignored_variables(
        {"TORCHDYNAMO_VERBOSE": "1", "TORCH_COMPILE_CPROFILE": "1", "TORCH_LOGS": "guards"}
    )
    assert [each.remedy for each in found] == ["unset TORCHDYNAMO_VERBOSE", "unset TORCH_COMPILE_CPROFILE"]


def test_only_the_command_begins_with_the_doctor() -> None:
    assert doctor.is_asked(["-m", "doctor", "--json"], ["python", "-m", "torchdynamo", "doctor", "--json"])
    assert doctor.is_asked(["-m", "doctor"], ["python", "-mtorchdynamo", "doctor"])
    assert not doctor.is_asked(["-m", "doctor"], ["python", "-m", "clinic", "doctor"])
    assert not doctor.is_asked(["doctor.py", "doctor"], ["python", "doctor.py", "doctor"])
