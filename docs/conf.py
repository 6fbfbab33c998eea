"""Build the documentation with Sphinx: `make docs`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torchdynamo

ROOT = Path(__file__).parent.parent

project = "torchdynamo"
release = torchdynamo.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"torchdynamo {release}"
nitpicky = True
# Names of Python and PyTorch, whose inventories are on the network, internals, and type variables.
nitpick_ignore_regex = [(r"py:.*", r"(?!torchdynamo\.).*|torchdynamo\.(core|_native)\..*|.*\.[A-Z]")]
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
default_role = "code"
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

ARGUMENTS = re.compile(r"^(\w+(?:, \w+)*): ")
NO_ARGUMENTS = frozenset({"Note", "Raises", "Returns", "Example"})


def as_fields(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Make a list of fields of the lines `name: meaning` that describe arguments."""
    if what not in ("function", "method", "class"):
        return
    for number, line in enumerate(lines):
        found = ARGUMENTS.match(line)
        if found and found[1] not in NO_ARGUMENTS:
            lines[number] = f":param {found[1]}: {line[found.end() :]}"
        elif line.startswith("Raises "):
            lines[number] = f"*Raises* {line.removeprefix('Raises ')}"
    for number in range(len(lines) - 1, 0, -1):
        if lines[number].startswith(":param") and not lines[number - 1].startswith((":param", " ")):
            lines.insert(number, "")


def setup(app: Any) -> None:
    """Connect the function that reads the arguments of docstrings."""
    app.connect("autodoc-process-docstring", as_fields)
