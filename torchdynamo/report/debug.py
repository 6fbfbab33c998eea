"""Print each compiled frame for `config.debug = True`: graph, bytecode before and after, guards."""

from __future__ import annotations

import dis
from collections.abc import Iterable
from pathlib import Path
from types import CodeType

import torch.fx
from tabulate import tabulate

from torchdynamo.codegen.resume import is_continuation, origin
from torchdynamo.core.source import Guard, Source

# root of a source -> its name in the list of guards
ROOTS = {"local": "local", "globals": "global", "builtins": "builtin", "closure": "free", "module": "module"}


def print_frame(
    name: str | None,
    gm: torch.fx.GraphModule | None,
    code: CodeType,
    new_code: CodeType,
    guards: Iterable[Guard],
    again: str = "",
) -> None:
    """Print what was compiled for one frame. name, gm: None if it has no graph. again: why it was compiled again."""
    if gm is not None:
        print(graph_table(name or "", gm))
    print(bytecode("ORIGINAL", code))
    print(bytecode("MODIFIED", new_code))
    print(guard_list(guards))
    if again:
        print(again)


def graph_table(name: str, gm: torch.fx.GraphModule) -> str:
    """Return the nodes of a graph as a table, under its name and the file name of its generated code."""
    rows = [[node.op, node.name, node.target, node.args, node.kwargs] for node in gm.graph.nodes]
    table = tabulate(rows, headers=["opcode", "name", "target", "args", "kwargs"])
    return f"{name} {gm.forward.__code__.co_filename}\n{table}\n"


def bytecode(which: str, code: CodeType) -> str:
    """Return a code object as `dis` prints it, under a heading with its origin."""
    heading = f"{which} BYTECODE {origin(code).title} {Path(code.co_filename).name} {code.co_firstlineno}"
    listing = dis.Bytecode(code).dis()
    for each in code.co_consts:
        if isinstance(each, CodeType) and is_continuation(each):
            listing = listing.replace(repr(each), origin(each).title)
    return f"{heading}\n{listing}"


def guard_list(guards: Iterable[Guard]) -> str:
    """Return one line for each guard of a compiled frame."""
    return "\n".join(["GUARDS:", *(f" - {guard_line(guard)}" for guard in guards), ""])


def guard_line(guard: Guard) -> str:
    """Return a guard as a line: root of the source, source as the user would write it, kind."""
    return f"{place(guard.source)} {guard.kind}"


def place(source: Source) -> str:
    """Return a source with the kind of variable that it starts from."""
    if source.base is None and source.how == "globals":
        return "torch's state"  # GLOBAL_STATE has no source: grad mode, autocast, default dtype, ...
    root = source.root()
    return f"{ROOTS.get(root.how, root.how)} {str(source)!r}"
