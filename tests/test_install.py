"""Installing: which torch a build finds, what a build that cannot work says, what mypy sees of an editable install."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

import pytest
import setuptools

ROOT = Path(__file__).parent.parent
HIDE = """
import os, sys
given = os.environ["PYTHONPATH"].split(os.pathsep)
own = [each for each in sys.path if each.startswith(sys.base_prefix) and "site-packages" not in each]
sys.path[:] = [*given, *own]
"""
USE = """
import with_installed_torch as backend
import torch
print(torch.__version__, callable(backend.build_wheel), callable(backend.build_editable))
"""
USER = """
import torch
import torchdynamo

@torchdynamo.compile(backend="eager")
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2

reveal_type(double)
"""


def environment(folder: Path, *options: str) -> tuple[Path, Path]:
    """Make a virtual environment. Returns its Python and its site-packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", *options, folder], check=True)
    version = f"python{sysconfig.get_python_version()}"
    return folder / "bin" / "python", folder / "lib" / version / "site-packages"


def torch_in(folder: Path, version: str) -> None:
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text(f"__version__ = {version!r}\n")


def isolated(tmp_path: Path) -> dict[str, str]:
    """The variables by which pip hides the packages of an environment, and shows those that the build requires."""
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    (overlay / "sitecustomize.py").write_text(HIDE)
    beside = Path(setuptools.__file__).parent.parent
    for each in [*beside.glob("setuptools*"), beside / "_distutils_hack"]:
        (overlay / each.name).symlink_to(each)
    path = os.pathsep.join([str(overlay), str(ROOT / "build_backend")])
    return {"PATH": os.environ["PATH"], "PYTHONPATH": path, "PYTHONNOUSERSITE": "1"}


def built_against(python: Path, variables: dict[str, str]) -> str:
    done = subprocess.run([python, "-c", USE], env=variables, capture_output=True, text=True)
    return done.stdout.strip() or done.stderr.splitlines()[-1]


def test_the_torch_of_the_environment(tmp_path: Path) -> None:
    python, packages = environment(tmp_path / "venv")
    torch_in(packages, "9.1")
    assert built_against(python, isolated(tmp_path)) == "9.1 True True"


def test_a_torch_that_a_pth_file_names(tmp_path: Path) -> None:
    python, packages = environment(tmp_path / "venv")
    torch_in(tmp_path / "elsewhere", "9.2")
    (packages / "elsewhere.pth").write_text(str(tmp_path / "elsewhere"))
    assert built_against(python, isolated(tmp_path)) == "9.2 True True"


def test_the_torch_of_the_user(tmp_path: Path) -> None:
    python, packages = environment(tmp_path / "venv", "--system-site-packages")
    torch_in(tmp_path / "home" / packages.relative_to(tmp_path / "venv"), "9.3")
    variables = isolated(tmp_path) | {"PYTHONUSERBASE": str(tmp_path / "home")}
    assert built_against(python, variables) == "9.3 True True"


def test_of_two_the_one_that_programs_get(tmp_path: Path) -> None:
    python, packages = environment(tmp_path / "venv", "--system-site-packages")
    torch_in(packages, "9.4")
    torch_in(tmp_path / "home" / packages.relative_to(tmp_path / "venv"), "9.3")
    variables = isolated(tmp_path) | {"PYTHONUSERBASE": str(tmp_path / "home")}
    outside = {name: value for name, value in variables.items() if name not in ("PYTHONPATH", "PYTHONNOUSERSITE")}
    line = [python, "-c", "import torch; print(torch.__version__)"]
    runs_with = subprocess.run(line, env=outside, capture_output=True, text=True, check=True).stdout.strip()
    assert built_against(python, variables) == f"{runs_with} True True"


def test_a_torch_that_can_be_imported_already_is_kept(tmp_path: Path) -> None:
    """As in a build without isolation."""
    python, packages = environment(tmp_path / "venv")
    torch_in(packages, "9.5")
    torch_in(tmp_path / "given", "9.6")
    variables = isolated(tmp_path)
    variables["PYTHONPATH"] += f"{os.pathsep}{tmp_path / 'given'}"
    assert built_against(python, variables) == "9.6 True True"


def refused(python: str | Path, **variables: str) -> str:
    """What the first step of a build says, which stops at once."""
    given = {"PATH": os.environ["PATH"], **variables}
    began = time.monotonic()
    done = subprocess.run([python, "setup.py", "--version"], cwd=ROOT, env=given, capture_output=True, text=True)
    assert done.returncode == 1
    assert time.monotonic() - began < 60
    return done.stderr


def test_no_torch(tmp_path: Path) -> None:
    python, _ = environment(tmp_path / "venv")
    said = refused(python, **isolated(tmp_path))
    assert f"torch is not installed for {python}.\nInstall it first: `{python} -m pip install torch`." in said


@pytest.mark.parametrize("version", ["2.9.1", "2.15.0a0+git1234", "3.0"])
def test_a_torch_that_is_not_known(tmp_path: Path, version: str) -> None:
    torch_in(tmp_path, version)
    said = refused(sys.executable, PYTHONPATH=str(tmp_path))
    assert f"it knows PyTorch 2.10 to 2.14, and this is {version}.\nInstall one of these first: `" in said


def test_no_compiler(tmp_path: Path) -> None:
    assert "no C compiler (absent is not on PATH).\nInstall one (`apt install g++`)" in refused(
        sys.executable, CC="absent"
    )
    assert "no C++ compiler (absent is not on PATH)" in refused(sys.executable, CXX="absent")


def test_no_header(tmp_path: Path) -> None:
    """In a Python that has its library and no folder `include`, as Debian installs it without python3-dev."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "lib").symlink_to(Path(sys.base_prefix, "lib"))
    python: Any = getattr(sys, "_base_executable")  # noqa: B009 - private
    said = refused(python, **isolated(tmp_path) | {"PYTHONHOME": str(home)})
    assert f"there is no {home}/include" in said
    assert f"`apt install python{sysconfig.get_python_version()}-dev`" in said


@pytest.mark.long
def test_wheels_skips_a_python_without_torch(tmp_path: Path) -> None:
    line = [ROOT / "build_backend" / "wheels.sh", tmp_path, "0.0.1", "python0.0", sys.executable]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "python0.0: skipped, it cannot be run here"
    assert second.startswith(f"{sys.executable}: skipped, no torch 0.0.1 for it")


def test_the_supported_versions_agree() -> None:
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["requires-python"] == ">=3.10,<3.15"
    assert not [each for each in project["build-system"]["requires"] if each.startswith("torch")]
    assert "SUPPORTED = ((3, 10), (3, 14))" in (ROOT / "setup.py").read_text()
    assert "CPython 3.10 to 3.14" in (ROOT / "docs" / "support.md").read_text()
    assert "CPython 3.10 to 3.14" in (ROOT / "README.md").read_text()
    assert "TORCHES = ((2, 10), (2, 14))" in (ROOT / "setup.py").read_text()
    assert "PyTorch 2.10 to 2.14" in (ROOT / "docs" / "support.md").read_text()
    assert "TORCHES ?= 2.10 2.11 2.12 2.13 2.14\n" in (ROOT / "Makefile").read_text()


@pytest.mark.long
def test_mypy_sees_the_types_of_an_editable_install(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    python, packages = environment(tmp_path / "venv")
    (packages / "others.pth").write_text(str(Path(setuptools.__file__).parent.parent))
    copy = shutil.copytree(
        ROOT, tmp_path / "copy", ignore=shutil.ignore_patterns(".*", "build", "tests", "docs", "*.so", "*.egg-info")
    )
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-build-isolation", "-e", copy]
    subprocess.run(pip, env=os.environ | {"TORCHDYNAMO_HOOK_ONLY": "1"}, check=True)
    (link,) = packages.glob("__editable__*")
    assert link.read_text().strip() == str(copy)  # a folder, not an import hook
    (tmp_path / "user.py").write_text(USER)
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", python, tmp_path / "user.py"]
    done = subprocess.run(mypy, cwd=tmp_path, capture_output=True, text=True)
    assert "def (x: torch._tensor.Tensor) -> torch._tensor.Tensor" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("broken", [None, b"no library"])
def test_an_extension_that_does_not_load_says_what_to_do(tmp_path: Path, broken: bytes | None) -> None:
    package = tmp_path / "torchdynamo"
    shutil.copytree(ROOT / "torchdynamo", package, ignore=shutil.ignore_patterns("_native*.so", "__pycache__"))
    if broken is not None:
        (package / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}").write_bytes(broken)
    done = subprocess.run(
        [sys.executable, "-c", "import torchdynamo"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 1
    said = done.stderr.strip().splitlines()[-1]
    assert said.startswith("ImportError: torchdynamo's extension cannot be loaded ("), said
    assert "Build it here: `pip install -e . --no-build-isolation`" in said
