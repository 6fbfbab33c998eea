"""The words every other part speaks: an instruction, a label, a try region, a decoded code object.

An instruction's argument is what the raw index stood for (a name, a constant, a Label, an operator), so nothing
outside this package knows how a Python version spells it.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType
from typing import Any, NamedTuple
from weakref import ref

from torchdynamo.bytecode.versions import EXCEPTION_TABLE, Positions


class Label:
    """A place in the stream that jumps can name. It has no content: two labels are equal when they are one object."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"L{id(self) & 0xFFFFF:05x}"


class Instruction:
    """One canonical operation. `offset` is where `dis` prints it in the original code; -1 if nobody wrote it."""

    __slots__ = ("arg", "offset", "op", "position")

    def __init__(self, op: str, arg: Any = None, position: Positions | None = None, offset: int = -1) -> None:
        self.op = op
        self.arg = arg
        self.position = position
        self.offset = offset

    def __repr__(self) -> str:
        return self.op if self.arg is None and self.op != "LOAD_CONST" else f"{self.op} {self.arg!r}"


class RegionStart:
    """From here to the matching RegionEnd, an exception cuts the stack to `depth`, pushes, and goes to `handler`.

    `lasti`: the offset of the raising instruction is pushed below the exception. `depth` None: the smallest
    depth found inside. Regions may nest; the innermost one wins.
    """

    __slots__ = ("depth", "handler", "lasti")

    def __init__(self, handler: Label, lasti: bool = False, depth: int | None = None) -> None:
        self.handler = handler
        self.lasti = lasti
        self.depth = depth

    def __repr__(self) -> str:
        return f"RegionStart({self.handler!r}, lasti={self.lasti}, depth={self.depth})"


class RegionEnd:
    """Ends the region that `start` began."""

    __slots__ = ("start",)

    def __init__(self, start: RegionStart) -> None:
        self.start = start

    def __repr__(self) -> str:
        return f"RegionEnd({self.start.handler!r})"


Item = Instruction | Label | RegionStart | RegionEnd


class Region(NamedTuple):
    """A try range of decoded code: instructions `start` to `end` (not included) are guarded by `handler`."""

    start: int
    end: int
    handler: int
    depth: int
    lasti: bool


class Code:
    """A code object, decoded. Shared by everyone who decodes it: do not change it.

    It does not keep the original alive (it is remembered for as long as that lives).
    """

    __slots__ = ("_code", "_region_at", "analyses", "instructions", "regions", "targets")

    def __init__(
        self,
        instructions: list[Instruction],
        targets: dict[Label, int],
        regions: list[Region],
        code: CodeType,
    ) -> None:
        self.instructions = instructions
        self.targets = targets  # label -> index of the instruction it precedes
        self.regions = regions
        self.analyses: dict[str, Any] = {}  # results of liveness and the like, by name
        self._code = ref(code)
        self._region_at: list[Region | None] = [None] * len(instructions)
        for region in regions:
            self._region_at[region.start : region.end] = [region] * (region.end - region.start)

    @property
    def code(self) -> CodeType:
        code = self._code()
        if code is None:
            raise ReferenceError("the code object that was decoded is gone: hold it as long as its Code")
        return code

    def lookup(self, index: int) -> Region | None:
        """Return the region whose handler gets what the instruction at `index` raises."""
        return self._region_at[index]

    def line(self, index: int) -> int | None:
        position = self.instructions[index].position
        return None if position is None else position.lineno

    def labels_at(self) -> dict[int, list[Label]]:
        """Return `targets` turned round: labels by place."""
        found: dict[int, list[Label]] = {}
        for label, index in self.targets.items():
            found.setdefault(index, []).append(label)
        return found

    def items(self) -> list[Item]:
        """Return the stream `assemble` takes: the same instruction objects, with labels and region marks in place."""
        labels_at = self.labels_at()
        regions = self.regions if EXCEPTION_TABLE else []  # else SETUP_FINALLY and POP_BLOCK are in the stream
        for region in regions:
            labels_at.setdefault(region.handler, [Label()])
        starts = {region.start: RegionStart(labels_at[region.handler][0], region.lasti, region.depth)
                  for region in regions}  # fmt: skip
        ends = {region.end: starts[region.start] for region in regions}
        stream: list[Item] = []
        for index in range(len(self.instructions) + 1):
            if index in ends:
                stream.append(RegionEnd(ends[index]))
            stream += labels_at.get(index, ())
            if index in starts:
                stream.append(starts[index])
            stream += self.instructions[index : index + 1]
        return stream


def find(items: Sequence[Item], offset: int) -> int:
    """Return where the instruction that `dis` prints at `offset` is in a stream."""
    for index, item in enumerate(items):
        if getattr(item, "offset", None) == offset:
            return index
    raise ValueError(f"no instruction at offset {offset}")
