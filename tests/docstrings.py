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

PACKAGE = Path(__file__).resolve().parent.parent / "torchdynamo"
DRAWN = 40

Function: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"

# Words that continue a neighbour's sentence: no docstring begins with one.
CONTINUING = frozenset(
    """
    what whether where when who whom whose how why which that of as is has have had if are was does
    same this these those it its they their them he his so and but or nor also too such other others another
    else further here there then than while once by in on at to from for with without within inside between after
    before because since until unless not no none nothing something anything everything all any each every one two
    both either neither only per
    """.split()
)
# A function does something: its docstring begins with a verb in the imperative.
NOT_VERBS = CONTINUING | frozenset("the a an true false".split())
VERBS_THAT_LOOK_OTHERWISE = frozenset("have bring embed feed need".split())


class Docstring(NamedTuple):
    """A docstring, with what a reader of generated documentation sees beside it."""

    path: Path
    line: int
    heading: str
    text: str
    is_function: bool  # a property is none


def is_third_person(word: str) -> bool:
    """Return whether a word ends like `returns`, and not like `address`."""
    return word.endswith("s") and not word.endswith("ss")


def names_a_thing(node: ast.AST) -> bool:
    """Return whether a definition is read like an attribute: a property."""
    return any("property" in ast.unparse(each) for each in getattr(node, "decorator_list", ()))


def signature(node: ast.Module | ast.ClassDef | Function) -> str:
    """Return the line that defines a class or a function, without its body."""
    if isinstance(node, ast.Module):
        return "(module)"
    if isinstance(node, ast.ClassDef):
        return f"class {node.name}({', '.join(map(ast.unparse, node.bases))})" if node.bases else f"class {node.name}"
    returned = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    return f"def {node.name}({ast.unparse(node.args)}){returned}"


def docstrings_in(path: Path) -> Iterator[Docstring]:
    """Yield the docstrings of a file, its own first."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
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


def main(seed: str = "0", folder: str = "") -> None:
    """Print the drawn docstrings, each with its place and signature."""
    found = docstrings(folder)
    for each in random.Random(seed).sample(found, min(DRAWN, len(found))):
        print(f"{each.path.relative_to(PACKAGE.parent)}:{each.line}: {each.signature}")
        print(textwrap.indent(each.text, "    ") + "\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
