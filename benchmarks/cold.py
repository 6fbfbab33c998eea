"""Find the functions of the capture that no model of the corpus enters: correct and rare, or dead.

    COLD=FILE runner.py all --frontend cold:compiled    with this folder on PYTHONPATH
    cold.py FILE                                        prints, by file, the functions that FILE does not name

As a front end of the corpus's runner it puts a call before the code of every function under `torchdynamo/capture`,
which adds the function's name to FILE when it is first entered. The functions stay the same objects, so that no table
that holds them needs to know.
"""

from __future__ import annotations

import ast
import functools
import gc
import os
import pkgutil
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bytecode import Bytecode, Instr

import torchdynamo
from torchdynamo import capture

FOLDER = Path(capture.__file__).parent


def compiled(fn: Callable[..., Any], backend: Any, *, fullgraph: bool = False, dynamic: bool | None = None) -> Any:
    """Compile a function, with all that captures it under watch."""
    watch(os.environ["COLD"])
    return torchdynamo.compile(fn, backend=backend, fullgraph=fullgraph, dynamic=dynamic)


def reset() -> None:
    """Forget what was compiled, as the runner asks of front ends."""
    torchdynamo.reset()


@functools.cache
def watch(file: str) -> None:
    """Have each function under `torchdynamo/capture` that there is now add its name to a file when it is entered."""
    seen: set[str] = set()

    def note(name: str) -> None:
        if name not in seen:
            seen.add(name)
            with open(file, "a") as names:
                names.write(name + "\n")

    for each in gc.get_objects():
        if type(each) is types.FunctionType and each.__code__.co_filename.startswith(f"{FOLDER}/"):
            path = Path(each.__code__.co_filename).relative_to(FOLDER)
            each.__code__ = beginning_with(
                each.__code__, functools.partial(note, f"{path}:{each.__code__.co_qualname}")
            )


def beginning_with(code: types.CodeType, call: Callable[[], None]) -> types.CodeType:
    """Return code that calls something first. For Python 3.11, which the corpus is run on."""
    instructions = Bytecode.from_code(code)
    begins = 1 + next(at for at, each in enumerate(instructions) if isinstance(each, Instr) and each.name == "RESUME")
    line = code.co_firstlineno
    instructions[begins:begins] = [
        Instr("PUSH_NULL", lineno=line),
        Instr("LOAD_CONST", call, lineno=line),
        Instr("PRECALL", 0, lineno=line),
        Instr("CALL", 0, lineno=line),
        Instr("POP_TOP", lineno=line),
    ]
    return instructions.to_code()


def defined(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, int]]:
    """Walk through the functions of a module and of its classes: qualified name, number of lines."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from defined(node, f"{inside}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield f"{inside}{node.name}", (node.end_lineno or node.lineno) - node.lineno + 1


def main(file: str) -> None:
    """Print the functions that a file does not name, by file of the package, those with most of them first."""
    entered = set(Path(file).read_text().splitlines())
    found: dict[Path, list[tuple[str, int]]] = {}
    count = 0
    for path in sorted(FOLDER.rglob("*.py")):
        name = path.relative_to(FOLDER)
        rows = list(defined(ast.parse(path.read_text())))
        count += len(rows)
        found[name] = [row for row in rows if f"{name}:{row[0]}" not in entered]
    for name, rows in sorted(found.items(), key=lambda item: -sum(lines for _, lines in item[1])):
        if rows:
            print(f"{name}: {len(rows)} functions, {sum(lines for _, lines in rows)} lines")
            print(f"    {', '.join(row[0] for row in rows)}")
    cold = sum(map(len, found.values()))
    print(f"{cold} of {count} functions are not entered, {sum(n for rows in found.values() for _, n in rows)} lines")


for each in pkgutil.walk_packages(capture.__path__, capture.__name__ + "."):
    __import__(each.name)

if __name__ == "__main__":
    main(sys.argv[1])
