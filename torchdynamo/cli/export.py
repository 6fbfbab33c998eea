"""The command `export`: capture a call of a function or model as one graph, and write it as a `.pt2` file."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

import torch
import torch.export

from torchdynamo.cli.explain import evaluated, target_of
from torchdynamo.errors import TorchDynamoError
from torchdynamo.exporting.api import export
from torchdynamo.exporting.conditions import KEY


def main(given: Sequence[str]) -> int:
    """Export one function or model. Returns 0, 1 if it cannot be exported, 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m torchdynamo export", description=__doc__)
    parser.add_argument("target", metavar="MODULE:NAME", help="a function, a model, or a class to be called for one")
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="[NAME=]EXPRESSION",
        help='an argument, in Python with the names of torch: "randn(2, 3)", "mask=ones(2)"; once for each',
    )
    parser.add_argument(
        "--dynamic",
        action="append",
        default=[],
        metavar="NAME:DIM[:MIN:MAX]",
        help="a dimension of an argument that varies, with its bounds; once for each",
    )
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the file to write, such as model.pt2")
    parser.add_argument("--train", action="store_true", help="leave the model in training mode; the default is eval()")
    parser.add_argument(
        "--no-strict", action="store_true", help="export the call even if it changes what it depends on"
    )
    parser.add_argument("--guards", action="store_true", help="print all that the program rests on")
    found = parser.parse_args(given)
    sys.path.insert(0, os.getcwd())
    try:
        target = target_of(found.target)
        args, kwargs = inputs_of(found.input)
        shapes = shapes_of(found.dynamic)
    except Exception as error:  # of the user's own module or expression: shown with its name, whatever it is
        parser.error(f"{type(error).__name__}: {error}")
    if isinstance(target, torch.nn.Module) and not found.train:
        target.eval()
    if not os.path.isdir(os.path.dirname(found.output) or "."):
        parser.error(f"there is no folder {os.path.dirname(found.output)!r} to write to")
    try:
        program = export(target, *args, kwargs=kwargs, dynamic_shapes=shapes, strict=not found.no_strict)
    except (TorchDynamoError, TypeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    torch.export.save(program, found.output)
    tell(program, found.output, found.guards)
    return 0


def inputs_of(expressions: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments and keywords that expressions of the command line stand for."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for text in expressions:
        name, is_named, value = text.partition("=")
        named = bool(is_named) and name.strip().isidentifier() and not value.startswith("=")
        made = evaluated(value if named else text)
        if named:
            kwargs[name.strip()] = made
        else:
            args.append(made)
    return args, kwargs


def shapes_of(rows: Sequence[str]) -> dict[str, Any]:
    """Return `dynamic_shapes` for rows such as `x:0` and `x:1:2:64`. Raises ValueError for another form."""
    found: dict[str, Any] = {}
    for row in rows:
        name, *numbers = row.split(":")
        if len(numbers) not in (1, 3):
            raise ValueError(f"{row!r} is not of the form NAME:DIM or NAME:DIM:MIN:MAX")
        dim, *bounds = map(int, numbers)
        varies = torch.export.Dim.DYNAMIC
        found.setdefault(name, {})[dim] = varies(*bounds) if bounds else varies
    return found


def tell(program: torch.export.ExportedProgram, file: str, all_guards: bool) -> None:
    """Print what was written, and what it rests on."""
    calls = sum(node.op == "call_function" for node in program.graph.nodes)
    size = os.path.getsize(file)
    print(f"{file}: {calls} operators, {len(program.state_dict)} tensors of state, {size:,} bytes")
    kept = program.graph_module.meta["custom"][KEY]
    for guard in kept["guards"]:
        if all_guards or guard["checked"]:
            place = f"  ({guard['place']})" if guard["place"] else ""
            print(f"  {'checked: ' if guard['checked'] else ''}{guard['text']}{place}")
    for effect in kept["lost"]:
        print(f"  left out: {effect}")
