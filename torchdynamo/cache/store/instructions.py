"""Write replacement code as canonical instructions, and assemble it again.

Plain constants are written by value, objects by facts. What belongs to the entry itself is written by its name: code
that the frame goes on with, the frame's own code, and the reaction to a graph that raised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchdynamo.bytecode.instruction import Instruction, Item, Label, RegionEnd, RegionStart
from torchdynamo.bytecode.versions import Positions
from torchdynamo.cache.store.values import Malformed, NotStorable
from torchdynamo.capture.vm.wrap import holds_nan

INSTRUCTION, LABEL, START, END = range(4)
GRAPH = "__compiled_fn"
OF_FRAME = ("LOAD_FAST", "STORE_FAST", "DELETE_FAST")


def plain_items(items: Sequence[Item], of_entry: Callable[[Any], Any], graph: str = "") -> tuple[Any, ...]:
    """Return instructions as tuples of values and objects. Raises NotStorable.

    of_entry: returns (name, content) for an object that belongs to the entry, None for others. graph: the name of the
    variable that holds the graph, which is another in each process: it is written as GRAPH.
    """
    numbers = {id(item): at for at, item in enumerate(items)}
    made = [_PLAIN[type(item)](item, numbers, of_entry) for item in items]
    return tuple(
        (row[0], row[1], ("", GRAPH), *row[3:]) if graph and row[0] == INSTRUCTION and is_graph(row, graph) else row
        for row in made
    )


def is_graph(row: tuple[Any, ...], graph: str) -> bool:
    """Return whether an instruction is about the variable that holds the graph."""
    return row[1] in OF_FRAME and row[2] == ("", graph)


def _instruction(item: Instruction, numbers: dict[int, int], of_entry: Callable[[Any], Any]) -> tuple[Any, ...]:
    position = None if item.position is None else tuple(item.position)
    constant = item.op == "LOAD_CONST"
    arg = (of_entry(item.arg) or ("", storable(item.arg))) if constant else _argument(item.arg, numbers)
    return INSTRUCTION, item.op, arg, position, item.offset


def storable(const: Any) -> Any:
    """Return a constant of code. Raises NotStorable for what no other process has: the order of a set, a NaN."""
    if type(const) is frozenset and len(const) > 1:
        raise NotStorable("its code holds a set, whose order is that of this process")
    if type(const) is not tuple and holds_nan(const):
        raise NotStorable("its code holds a NaN that the capture made: which one, only its address tells")
    return tuple(map(storable, const)) if type(const) is tuple else const


def _argument(arg: Any, numbers: dict[int, int]) -> Any:
    """Return an argument with labels as numbers, in a tuple of their own."""
    if type(arg) is Label:
        return "label", numbers[id(arg)]
    if type(arg) is tuple:
        return "tuple", tuple(_argument(each, numbers) for each in arg)
    return "", arg


_PLAIN: dict[type, Callable[..., tuple[Any, ...]]] = {
    Instruction: _instruction,
    Label: lambda item, numbers, of_entry: (LABEL,),
    RegionStart: lambda item, numbers, of_entry: (START, numbers[id(item.handler)], item.lasti, item.depth),
    RegionEnd: lambda item, numbers, of_entry: (END, numbers[id(item.start)]),
}


def items_of(rows: Sequence[Any], of_entry: Callable[[str, Any], Any]) -> list[Item]:
    """Return instructions from tuples. Raises Malformed.

    of_entry: returns the object of the entry with this name and content.
    """
    labels = {at: Label() for at, row in enumerate(rows) if row[0] == LABEL}
    starts = {at: RegionStart(labels[row[1]], row[2], row[3]) for at, row in enumerate(rows) if row[0] == START}
    made: list[Item] = []
    positions: dict[Any, Positions] = {}
    for at, row in enumerate(rows):
        if row[0] == INSTRUCTION:
            _, op, arg, place, offset = row
            value = _argument_of(arg, labels) if op != "LOAD_CONST" else of_entry(*arg) if arg[0] else arg[1]
            position = None if place is None else positions.setdefault(place, Positions(*place))
            made.append(Instruction(op, value, position, offset))
        elif row[0] == LABEL:
            made.append(labels[at])
        elif row[0] == START:
            made.append(starts[at])
        elif row[0] == END:
            made.append(RegionEnd(starts[row[1]]))
        else:
            raise Malformed(f"{row!r} is no instruction")
    return made


def _argument_of(arg: Any, labels: dict[int, Label]) -> Any:
    how, content = arg
    if how == "label":
        return labels[content]
    if how == "tuple":
        return tuple(_argument_of(each, labels) for each in content)
    return content


def renamed(items: Sequence[Item], old: str, new: str) -> None:
    """Give the variable that holds the graph another name."""
    for item in items:
        if isinstance(item, Instruction) and item.op in OF_FRAME and item.arg == old:
            item.arg = new
