"""What goes with a release says the same as the package."""

from __future__ import annotations

import re
from pathlib import Path

import torchdynamo

ROOT = Path(__file__).parent.parent
REQUIREMENT = re.compile(r'"([A-Za-z][\w.-]*)[^"]*"')


def requirements() -> set[str]:
    """The packages that `pyproject.toml` names, optional ones among them."""
    text = (ROOT / "pyproject.toml").read_text()
    lists = re.findall(r"^(?:dependencies|onnxruntime|openvino|tvm|tensorrt|ray) = \[(.*)\]$", text, re.MULTILINE)
    return {name.lower() for line in lists for name in REQUIREMENT.findall(line)}


def test_licenses_of_all_dependencies_are_listed() -> None:
    listed = set(re.findall(r"^\| ([\w.-]+) \| \S", (ROOT / "docs" / "licenses.md").read_text(), re.MULTILINE))
    assert len(requirements()) > 8
    assert requirements() - listed == set()


def test_versions_agree() -> None:
    for file, form in (
        ("pyproject.toml", 'version = "{}"'),
        ("CITATION.cff", "version: {}"),
        ("CHANGELOG.md", "## {}"),
        ("torchdynamo/report/summary.py", 'VERSION = "{}"'),
    ):
        assert f"\n{form.format(torchdynamo.__version__)}" in (ROOT / file).read_text(), file
