"""The documentation builds without a warning, where Sphinx is installed (requirements-docs.txt): `make docs`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
