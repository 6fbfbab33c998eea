"""The documentation builds without a warning, where Sphinx is installed (requirements-docs.txt): `make docs`."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import torchdynamo

DOCS = Path(__file__).parent.parent / "docs"


def test_the_site_builds_strictly_and_without_a_network(tmp_path: Path) -> None:
    for package in ("sphinx", "furo", "myst_parser"):
        pytest.importorskip(package)
    command = [sys.executable, "-m", "sphinx", "-W", "-n", "--keep-going", "-q", "-b", "html", str(DOCS), str(tmp_path)]
    offline = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "PYTHONPATH": str(DOCS.parent)}
    done = subprocess.run(command, env=offline, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert 'class="sig' in (tmp_path / "api.html").read_text()
    assert "TD101" in (tmp_path / "reasons" / "data-dependent-branch.html").read_text()


FUNCTIONS = [name for name in torchdynamo.__all__ if inspect.isfunction(getattr(torchdynamo, name))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_public_functions_are_in_the_reference_and_explain_each_argument(name: str) -> None:
    function = getattr(torchdynamo, name)
    assert f".. autofunction:: {name}\n" in (DOCS / "api.md").read_text()
    explained = re.findall(r"^(\w+(?:, \w+)*): ", inspect.getdoc(function) or "", re.MULTILINE)
    assert {each for line in explained for each in line.split(", ")} >= set(inspect.signature(function).parameters)
