"""Decode the bytes of a code object in one pass."""

from __future__ import annotations

import dis
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

from torchdynamo.bytecode import versions
from torchdynamo.bytecode.instruction import Code, Instruction, Label, Region
from torchdynamo.bytecode.regions import block_entries, table_entries

EXTENDED_ARG = versions.OPCODES["EXTENDED_ARG"]
Action = Callable[["Decoder", int], None]


class Decoder:
    """The state of one pass: instructions decoded so far, and the raw instruction that is being read."""

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.instructions: list[Instruction] = []
        self.index_at: list[int] = []  # for each code unit, the index of its instruction or of the next one kept
        self.jumps: list[tuple[Instruction, str | None, int]] = []  # jumps whose labels are not resolved yet
        self.fast, self.free = versions.slot_names(code)
        self.positions = versions.positions(code)
        self.cells = frozenset(code.co_cellvars)
        self.offset = 0
        self.position: versions.Positions | None = None
        self.kwnames: tuple[str, ...] = ()  # names of KW_NAMES, for the CALL that follows
        self.in_prologue = True
        self.raw_targets: frozenset[int] | None = None  # computed when first needed, which is rare
        self.skip = ""  # the next instruction of this name belongs to what came before it
        self.cleanups: set[int] = set()  # code units with the handler of a `yield from`

    def emit(self, op: str, arg: Any = None) -> None:
        if not self.skips(op):
            self.instructions.append(Instruction(op, arg, self.position, self.offset))

    def skips(self, op: str) -> bool:
        """Return whether an instruction is the one that is to be skipped; there is none then."""
        if op != self.skip:
            return False
        self.skip = ""
        return True

    def jump(self, op: str, key: str | None, target: int) -> None:
        if not self.skips(op):
            self.emit(op)
            self.jumps.append((self.instructions[-1], key, target))

    def drop_last(self) -> Any:
        """Remove the last instruction, which the current one absorbs, and return its argument."""
        self.index_at[-1] -= 1
        return self.instructions.pop().arg

    def jumped_to_here(self) -> bool:
        if self.raw_targets is None:
            self.raw_targets = frozenset(dis.findlabels(self.code.co_code))  # type: ignore[arg-type]
        return self.offset in self.raw_targets

    def run(self, actions: Sequence[Action | None]) -> Code:
        raw = self.code.co_code
        positions = self.positions
        last: tuple[int | None, ...] | None = None
        extended = 0
        for offset in range(0, len(raw), 2):
            self.index_at.append(len(self.instructions))
            opcode = raw[offset]
            arg = extended | raw[offset + 1]
            if opcode == EXTENDED_ARG:
                extended = arg << 8
                continue
            extended = 0
            action = actions[opcode]
            if action is None:
                continue
            if positions[offset >> 1] is not last:
                last = positions[offset >> 1]
                self.position = versions.Positions(*last)
            self.offset = offset
            action(self, arg)
        self.index_at.append(len(self.instructions))
        return Code(self.instructions, self.resolve_jumps(), self.regions(), self.code)

    def resolve_jumps(self) -> dict[Label, int]:
        labels: dict[int, Label] = {}
        for instruction, key, target in self.jumps:
            label = labels.setdefault(self.index_at[target >> 1], Label())
            instruction.arg = label if key is None else (key, label)
        return {label: index for index, label in labels.items()}

    def regions(self) -> list[Region]:
        entries = list((table_entries if versions.EXCEPTION_TABLE else block_entries)(self.code))
        found: list[Region] = []
        for entry in entries:
            target = entry
            if entry.handler in self.cleanups:  # exceptions go on to the handler around it
                target = next((each for each in entries if each.start <= entry.handler < each.end), entry)
            start, end, handler = (self.index_at[unit] for unit in (entry.start, entry.end, target.handler))
            if start == end or handler == len(self.instructions) or target.handler in self.cleanups:
                continue  # it or its handler held only instructions that are dropped
            region = Region(start, end, handler, target.depth, target.lasti)
            if found and found[-1].end == start and found[-1][2:] == region[2:]:
                region = region._replace(start=found.pop().start)
            found.append(region)
        return found
