"""Print 40 docstrings of `torchdynamo/`, drawn at random, without their code: `make docstrings` (SEED: which ones).

    python tests/docstrings.py [SEED] [FOLDER]

Read them as a stranger would: is each understood alone? `tests/test_layout.py` checks how docstrings begin.
"""

from __future__ import annotations

import ast
import random
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

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
PROPERTIES = ("property", "cached_property")


class Docstring(NamedTuple):
    path: Path
    line: int
    signature: str
    text: str
    is_function: bool

    @property
    def folder(self) -> str:
        """Folder of the file below the package: the top one, of `capture/` the second one too."""
        parts = self.path.relative_to(PACKAGE).parent.parts
        return "/".join(parts[: 2 if parts[:1] == ("capture",) else 1]) or "."

    def offends(self) -> bool:
        """Return whether the text begins with an offending word: for functions, anything but a verb."""
        found = re.match(r"[\w'-]+", self.text)
        if not self.is_function:
            return found is not None and found[0].lower() in CONTINUING
        word = found[0].lower() if found is not None else ""
        if word in VERBS_THAT_LOOK_OTHERWISE:
            return False
        return not word.isalpha() or word in NOT_VERBS or word.endswith(("ed", "ing")) or is_third_person(word)


def is_third_person(word: str) -> bool:
    """Return whether a word ends like `returns`, and not like `address`."""
    return word.endswith("s") and not word.endswith("ss")


def names_a_thing(node: ast.AST) -> bool:
    """Return whether a definition is read like an attribute: a property."""
    decorators = getattr(node, "decorator_list", ())
    return any(part in ast.unparse(each) for each in decorators for part in PROPERTIES)


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
                is_function = not isinstance(node, (ast.Module, ast.ClassDef)) and not names_a_thing(node)
                yield Docstring(path, getattr(node, "lineno", 1), signature(node), text, is_function)


def docstrings(folder: str = "") -> list[Docstring]:
    """Return the docstrings of the package, or of one of its folders, in the order of files."""
    return [each for path in sorted((PACKAGE / folder).rglob("*.py")) for each in docstrings_in(path)]


def main(seed: str = "0", folder: str = "") -> None:
    """Print the drawn docstrings, each with its place and signature."""
    for each in random.Random(seed).sample(docstrings(folder), DRAWN):
        print(f"{each.path.relative_to(PACKAGE.parent)}:{each.line}: {each.signature}")
        print(textwrap.indent(each.text, "    ") + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
