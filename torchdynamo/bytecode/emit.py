"""Translate canonical instructions to raw ones of the running Python version."""

from __future__ import annotations

import dis
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import bytecode as package
from bytecode.instr import (
    UNSET,
    CellVar,
    FreeVar,
    Instr,
    InstrLocation,
    TryBegin,
    TryEnd,
)

from torchdynamo.bytecode import rows, versions
from torchdynamo.bytecode.bound import maybe_unbound
from torchdynamo.bytecode.constants import Constants
from torchdynamo.bytecode.depth import Raw
from torchdynamo.bytecode.instruction import Instruction, Item, Label, RegionEnd, RegionStart
from torchdynamo.bytecode.lines import location

Writer = Callable[["StreamWriter", Any], None]


class End(NamedTuple):
    """The end of a loop or of a `yield from`, which its FOR_ITER or SEND jumps to: instructions before a label."""

    target: package.Label
    location: InstrLocation | None
    names: tuple[str, ...]


class Cleanup(NamedTuple):
    """A handler of exceptions that are thrown into the iterator of a `yield from`."""

    target: package.Label
    outer: RegionStart | None
    end: package.Label
    location: InstrLocation | None


class StreamWriter:
    """Translates one stream. `at` is the index of the current item; some translations depend on its neighbours."""

    def __init__(
        self,
        items: Sequence[Item],
        constants: Constants,
        cellvars: Sequence[str],
        freevars: Sequence[str],
        varnames: Sequence[str],
        arguments: Sequence[str],
        writers: Mapping[str, Writer],
    ) -> None:
        self.items = items
        self.writers = writers
        self.varnames = frozenset(varnames)
        self.constants = constants
        self.cells: dict[str, CellVar | FreeVar] = {
            **{name: FreeVar(name) for name in freevars},
            **{name: CellVar(name) for name in cellvars},
        }
        # indices of items that read a local which may be unset
        self.unbound = maybe_unbound(items, arguments) if versions.LOAD_FAST_TRUSTS else frozenset()
        self.stream: list[Raw] = []
        self.location: InstrLocation | None = None
        self.place = {item: index for index, item in enumerate(items) if isinstance(item, Label)}
        self.labels = {label: package.Label() for label in self.place}
        self.ends: dict[Label, End] = {}
        self.cleanups: list[Cleanup] = []
        self.open: list[tuple[RegionStart, TryBegin]] = []
        self.at = 0
        self._locations: dict[Any, InstrLocation] = {}

    def run(self) -> list[Raw]:
        for item in self.items if versions.ENDS else ():
            if isinstance(item, Instruction) and item.op in versions.ENDS:
                self.ends[item.arg] = End(package.Label(), self.where(item.position), versions.ENDS[item.op])
        for index, item in enumerate(self.items):
            self.at = index
            _WRITE[type(item)](self, item)
        for cleanup in self.cleanups:
            self.write_cleanup(cleanup)
        return self.stream

    def raw(self, name: str, arg: Any = UNSET) -> None:
        self.stream.append(Instr(name, arg, location=self.location))

    def const(self, value: Any) -> None:
        self.raw("LOAD_CONST", self.constants.number(value))

    def neighbour(self, step: int) -> Instruction:
        """Return the instruction before (-1) or after (1) the current one; an empty one at labels and region marks."""
        index = self.at + step
        item = self.items[index] if 0 <= index < len(self.items) else None
        return item if isinstance(item, Instruction) else _NOTHING

    def forward(self, label: Label) -> bool:
        return self.place[label] > self.at

    def instruction(self, item: Instruction) -> None:
        self.location = self.where(item.position)
        writer = self.writers.get(item.op)
        if writer is not None:
            writer(self, item.arg)
        else:
            self.row(item.op, item.arg)

    def row(self, op: str, arg: Any = None) -> None:
        """Translate an instruction by its table row. Raises ValueError if this Python version has
        no such instruction.
        """
        family = _FAMILY.get((op, arg[0] if type(arg) is tuple else arg))
        if family is not None:
            self.raw(family, *(arg[1:] if type(arg) is tuple else ()))
            return
        name = _RENAMED.get(op, op)
        opcode = versions.OPCODES.get(name)
        if opcode is None:
            raise ValueError(f"{op} {arg!r} cannot be said in this Python version")
        if opcode in versions.RELATIVE or opcode in versions.ABSOLUTE:
            self.raw(name, self.labels[arg])
        elif opcode in dis.hasfree:
            self.raw(name, self.cells[arg])
        elif opcode in dis.haslocal:
            self.raw(name, self.slot(arg))
        elif opcode in versions.HAS_ARG:
            self.raw(name, arg)
        else:
            self.raw(name)

    def slot(self, name: str) -> str | CellVar | FreeVar:
        """Return the name of a fast local, or the cell if its slot is meant, as in an inlined comprehension."""
        return self.cells[name] if self.names_cell(name) else name

    def names_cell(self, name: str) -> bool:
        return versions.CLOSURE_IS_FAST and name in self.cells and name not in self.varnames

    def where(self, position: versions.Positions | None) -> InstrLocation | None:
        if position is None:
            return None  # the position of the previous instruction
        found = self._locations.get(position)
        if found is None:
            found = self._locations[position] = location(position)
        return found

    def label(self, label: Label) -> None:
        if label in self.ends:
            self.end(label)
        self.stream.append(self.labels[label])

    def end(self, label: Label) -> None:
        """Emit the end of a loop or `yield from`, which only its FOR_ITER or SEND may reach; others jump over it."""
        same_place: list[Raw] = []
        while self.stream and type(self.stream[-1]) is package.Label:
            same_place.append(self.stream.pop())
        last = next((item for item in reversed(self.stream) if isinstance(item, (Instr, package.Label))), None)
        if not (isinstance(last, Instr) and last.is_final()):
            self.raw("JUMP_FORWARD", self.labels[label])
        target, self.location, names = self.ends[label]
        self.stream.append(target)
        for name in names:
            self.raw(name)
        self.stream += same_place

    def cleanup_start(self) -> RegionStart:
        """Begin the region of a `yield from` at its YIELD_VALUE, which comes right after its SEND."""
        start = RegionStart(Label())
        target = self.labels[start.handler] = package.Label()
        outer = self.open[-1][0] if self.open else None
        self.cleanups.append(Cleanup(target, outer, self.ends[self.neighbour(-1).arg].target, self.location))
        self.region_start(start)
        return start

    def write_cleanup(self, cleanup: Cleanup) -> None:
        """Emit the handler of such a region, in the region that is around the `yield from`."""
        self.stream.append(cleanup.target)
        self.location = cleanup.location
        if cleanup.outer is not None:
            self._begin(cleanup.outer)
        self.raw("CLEANUP_THROW")
        self.raw("JUMP_BACKWARD_NO_INTERRUPT", cleanup.end)
        if cleanup.outer is not None:
            self._close(self.open.pop()[1])

    def in_outermost_region(self) -> bool:
        """Return whether the innermost handler is the generator's own, which turns StopIteration into RuntimeError."""
        if not self.open:
            return False
        target = self.place[self.open[-1][0].handler] + 1
        item = self.items[target] if target < len(self.items) else None
        return isinstance(item, Instruction) and item.op == "INTRINSIC" and item.arg == "STOPITERATION_ERROR"

    def region_start(self, start: RegionStart) -> None:
        if not versions.EXCEPTION_TABLE:
            self.raw("SETUP_FINALLY", self.labels[start.handler])
            return
        if self.open:
            self._close(self.open[-1][1])
        self._begin(start)

    def region_end(self, end: RegionEnd) -> None:
        if not versions.EXCEPTION_TABLE:
            self.raw("POP_BLOCK")
            return
        start, begun = self.open.pop()
        if start is not end.start:
            raise ValueError(f"{end!r} does not end the region that is open, {start!r}")
        self._close(begun)
        if self.open:
            self._begin(self.open.pop()[0])  # resume the outer region

    def _begin(self, start: RegionStart) -> None:
        depth = UNSET if start.depth is None else start.depth
        begun = TryBegin(self.labels[start.handler], start.lasti, depth)
        self.open.append((start, begun))
        self.stream.append(begun)

    def _close(self, begun: TryBegin) -> None:
        last = len(self.stream) - 1
        while type(self.stream[last]) is package.Label:
            last -= 1
        if self.stream[last] is begun:  # nothing inside
            del self.stream[last]
        else:
            self.stream.append(TryEnd(begun))


_WRITE: dict[type, Callable[[StreamWriter, Any], None]] = {
    Instruction: StreamWriter.instruction,
    Label: StreamWriter.label,
    RegionStart: StreamWriter.region_start,
    RegionEnd: StreamWriter.region_end,
}
_NOTHING = Instruction("")
_RENAMED = {op: name for name, op in rows.RENAMED.items() if name in versions.OPCODES and name != "LOAD_FAST_CHECK"}
_FAMILY = {row: name for name, row in rows.FAMILIES.items() if name in versions.OPCODES}
