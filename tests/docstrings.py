"""Print docstrings drawn at random, without their code, to be read as a stranger would: can each be understood alone?

python tests/docstrings.py [SEED [COUNT]]
"""

from __future__ import annotations

import ast
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "torchdynamo"


class Docstring(NamedTuple):
    """A docstring, with what a reader of generated documentation sees beside it."""

    path: Path
    line: int
    heading: str
    text: str
    is_function: bool  # a property is none


def docstrings() -> Iterator[Docstring]:
    """Walk through the docstrings of the package: modules, classes, functions."""
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                continue
            text = ast.get_docstring(node)
            if text:
                yield Docstring(path, node.body[0].lineno, heading(node), text, is_function(node))


def heading(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> str:
    """Return the line that defines something, without decorators."""
    if isinstance(node, ast.Module):
        return "module"
    if isinstance(node, ast.ClassDef):
        return f"class {node.name}"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"def {node.name}({ast.unparse(node.args)}){returns}"


def is_function(node: ast.AST) -> bool:
    """Return whether a node is a function, and no property."""
    return isinstance(node, ast.FunctionDef) and not any(
        "property" in ast.unparse(each) for each in node.decorator_list
    )


def main(seed: int = 0, count: int = 40) -> None:
    """Print `count` docstrings."""
    for each in random.Random(seed).sample(list(docstrings()), count):
        print(f"{each.path.relative_to(ROOT)}:{each.line}: {each.heading}\n{each.text}\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
